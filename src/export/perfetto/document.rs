//! The file of a trace.

use super::{
    calls,
    event::Event,
    gpus,
    proto::{CounterDescriptor, Type},
    threads,
    tracks::TrackWriter,
};
use crate::{
    export::{category, flows::Flows},
    trace::Trace,
};
use std::io::{self, Write};

/// Writes the file of a trace.
pub(super) fn write(trace: &Trace, out: &mut dyn Write) -> io::Result<()> {
    let flows = Flows::new(trace);
    let mut out = TrackWriter::new(trace, out);
    out.process()?;
    write_steps(&mut out)?;
    write_counters(&mut out)?;
    threads::write(&mut out, &flows)?;
    calls::write(&mut out)?;
    gpus::write(&mut out, &flows)?;
    out.packets.flush()
}

/// Writes the track of steps, with the losses at its beginning.
fn write_steps(out: &mut TrackWriter<'_>) -> io::Result<()> {
    let trace = out.trace;
    if trace.steps().is_empty() && trace.losses().is_empty() {
        return Ok(());
    }
    let mut sequence = out.child(out.uuid, "steps".to_owned())?;
    if !trace.losses().is_empty() {
        let name = format!("kernspan {}", trace.losses());
        let event = Event::new(Type::Instant, Event::default()).name(&name);
        sequence.instant(&mut out.packets, trace.start(), event)?;
    }
    for step in trace.steps() {
        let name = format!("ProfilerStep#{}", step.number());
        let mut event = sequence.nameless(category::STEP).name(&name);
        sequence.annotate_cut(&mut event, step.cut());
        sequence.slice(&mut out.packets, step.start(), step.end(), event)?;
    }
    sequence.finish(&mut out.packets)
}

/// Writes a track for each counter.
fn write_counters(out: &mut TrackWriter<'_>) -> io::Result<()> {
    for counter in out.trace.counters() {
        let mut sequence = out.counter(out.uuid, counter.name().to_owned(), CounterDescriptor::default())?;
        for &(at, value) in counter.samples() {
            if value.is_finite() {
                sequence.count(&mut out.packets, at, value)?;
                continue;
            }
            // No counter track can show NaN or infinity, and such a sample matters most.
            let name = format!("{} is {value}", counter.name());
            let event = Event::new(Type::Instant, Event::default()).name(&name).track(out.uuid);
            sequence.instant(&mut out.packets, at, event)?;
        }
    }
    Ok(())
}
