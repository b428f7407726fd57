//! The profile of a window for XProf, TensorBoard's profile plugin.
//!
//! A profile is an `XSpace`, which has planes for the host and for each device. A plane has lines for its threads or
//! streams, and a line has events.
//!
//! XProf expects three things that it does not document:
//!
//! - Times are counted from the window's beginning, since those since 1970 overflow.
//! - Kernels refer to their steps by XProf's own step numbers.
//! - A plane has names only for stats that it uses: XProf looks at the names to determine what a plane is about.

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
    plane::{Plane, StatValue},
    program::Program,
    shares::Shares,
    stat::Stat,
    steps::Steps,
};
use crate::{
    analysis::Analysis,
    export::wire,
    trace::{Gpu, Trace},
};
use std::io::{self, Seek, Write};

/// Writes the `XSpace`, plane by plane.
pub(super) fn write(window: &Analysis<'_>, out: &mut (impl Write + Seek)) -> io::Result<()> {
    let trace = window.trace();
    let metadata = trace.metadata();
    let steps = Steps::new(window);
    let mut ops = Ops::new(trace);
    let mut program = Program::new(&metadata.process);
    let shares = Shares::new(trace);
    Devices { trace, steps: &steps, ops: &mut ops, shares, program: &mut program }.write(out)?;
    Host::new(trace, &ops, &steps).write(out)?;
    counters(trace).write(out)?;
    if !program.is_empty() {
        let name = format!("{}({})", program.name, Program::ID);
        plane::write_metadata(out, Program::ID, &name, &program.encode(&ops))?;
    }
    let mut environment = Plane::new(trace, 0, "Task Environment");
    environment.add_stat(Stat::ProfileStart, StatValue::U64(trace.start().as_unix_nanos()));
    environment.add_stat(Stat::ProfileStop, StatValue::U64(trace.end().as_unix_nanos()));
    environment.write(out)?;
    let too_many =
        ops.is_full().then(|| format!("kernspan: operations after the first {} are `{}`", ops.len(), Ops::OTHERS));
    let no_roofline = program.is_full().then(|| {
        format!(
            "kernspan: the roofline has the first {} operations of different FLOPs, and no more",
            Program::MAX_INSTRUCTIONS
        )
    });
    let mut rest = Vec::new();
    let warnings = warnings(trace).into_iter().chain(too_many).chain(no_roofline);
    warnings.for_each(|warning| wire::bytes(&mut rest, 3, warning.as_bytes()));
    wire::bytes(&mut rest, 4, metadata.host_of_files().as_bytes());
    out.write_all(&rest)
}

/// Returns the plane of counters. They are not on the planes of GPUs, where they would make steps longer.
fn counters(trace: &Trace) -> Plane {
    let mut plane = Plane::new(trace, 0, "/device:CUSTOM:counters");
    let mut samples = Vec::new();
    // The stat does not have the counter's name, since XProf may know a stat of that name.
    let stat = plane.text("counter.value");
    for counter in trace.counters() {
        let name = plane.event_name(&counter_name(counter.name()));
        samples.extend(counter.samples().iter().map(|&(at, value)| (at, value, name)));
    }
    samples.retain(|(_, value, ..)| value.is_finite());
    samples.sort_by_key(|&(at, ..)| at);
    let mut line = plane.line();
    for (at, value, name) in samples {
        line.event(name, at, at, |stats| stats.add_named(stat, StatValue::F64(value)));
    }
    plane.add_line(0, "_counters_", line);
    plane
}

/// Returns the name of a counter without characters that JSON escapes: XProf writes it into JSON unchanged.
fn counter_name(name: &str) -> String {
    name.chars().map(|c| if c.is_control() || c == '"' || c == '\\' { '_' } else { c }).collect()
}

/// Returns the warnings that XProf shows above all pages.
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
            "kernspan: spans below {level} were off: a filter for all layers, or a feature of tracing, hides them, or \
             filters of each layer do"
        ));
    }
    warnings
}
