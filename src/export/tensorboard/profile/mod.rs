//! A window as XProf reads it, TensorBoard's profile plugin: an `XSpace` of planes, which are hosts and devices, of lines, which are threads
//! and streams, of events.
//!
//! What XProf wants and does not say: all times are from the window's beginning, as those since 1970 overflow; kernels know their steps by
//! numbers that it gives to the steps itself; and a plane that has a name for a stat is taken to be about it.

mod device;
mod host;
mod ops;
mod plane;
mod program;
#[cfg(test)]
mod proto;
mod shares;
mod stat;
mod steps;
#[cfg(test)]
mod tests;

use self::{
    device::Devices,
    host::Host,
    ops::Ops,
    plane::{Plane, Said},
    program::Program,
    shares::Shares,
    stat::Stat,
    steps::Steps,
};
use crate::{
    export::wire,
    trace::{Gpu, Trace},
};
use std::io::{self, Write};

/// Writes the `XSpace`, plane by plane.
pub(super) fn write(trace: &Trace, mut out: impl Write) -> io::Result<()> {
    let metadata = trace.metadata();
    let steps = Steps::new(trace);
    let mut ops = Ops::new(trace);
    let mut program = Program::new(&metadata.process);
    let shares = Shares::new(trace);
    Devices { trace, steps: &steps, ops: &mut ops, shares, program: &mut program }.write(&mut out)?;
    Host::new(trace, &ops, &steps).write(&mut out)?;
    counters(trace).write(&mut out)?;
    if !program.is_empty() {
        let name = format!("{}({})", program.name, Program::ID);
        plane::write_metadata(&mut out, Program::ID, &name, &program.encode(&ops))?;
    }
    let mut environment = Plane::new(trace, 0, "Task Environment");
    environment.say(Stat::ProfileStart, Said::U64(trace.start().as_unix_nanos()));
    environment.say(Stat::ProfileStop, Said::U64(trace.end().as_unix_nanos()));
    environment.write(&mut out)?;
    let too_many =
        ops.left_out().then(|| format!("kernspan: operations after the first {} are `{}`", Ops::MOST, Ops::OTHERS));
    let no_roofline = program.is_full().then(|| {
        format!("kernspan: the roofline has the first {} operations of different FLOPs, and no more", Program::MOST)
    });
    let mut rest = Vec::new();
    let warnings = warnings(trace).into_iter().chain(too_many).chain(no_roofline);
    warnings.for_each(|warning| wire::bytes(&mut rest, 3, warning.as_bytes()));
    wire::bytes(&mut rest, 4, metadata.host.as_bytes());
    out.write_all(&rest)
}

/// Counters have a plane of their own: in those of GPUs, they would make steps longer.
fn counters(trace: &Trace) -> Plane {
    let mut plane = Plane::new(trace, 0, "/device:CUSTOM:counters");
    let mut samples = Vec::new();
    // Not the counter's name, which may be that of a stat that XProf keeps to itself.
    let stat = plane.text("counter.value");
    for counter in trace.counters() {
        let name = plane.event_name(&counter_name(counter.name()));
        samples.extend(counter.samples().iter().map(|&(at, value)| (at, value, name)));
    }
    samples.retain(|(_, value, ..)| value.is_finite());
    samples.sort_by_key(|&(at, ..)| at);
    let mut line = plane.line();
    for (at, value, name) in samples {
        line.event(name, at, at, |stats| stats.say_named(stat, Said::F64(value)));
    }
    plane.add(0, "_counters_", &line);
    plane
}

/// XProf writes names of counters into JSON as they are.
fn counter_name(name: &str) -> String {
    name.chars().map(|c| if c.is_control() || c == '"' || c == '\\' { '_' } else { c }).collect()
}

/// What everybody who looks at the profile must know; XProf shows it above all pages.
fn warnings(trace: &Trace) -> Vec<String> {
    let mut warnings = Vec::new();
    if !trace.losses().is_empty() {
        warnings.push(format!("kernspan: {}", trace.losses()));
    }
    if let Gpu::Unavailable(_) = trace.gpu() {
        warnings.push(format!("kernspan: {}", trace.gpu()));
    }
    if let Some(level) = trace.filtered() {
        warnings.push(format!(
            "kernspan: spans below {level} were off: a filter for all layers, or a feature of tracing, hides them"
        ));
    }
    warnings
}
