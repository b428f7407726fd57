//! The file of a trace.

use super::{
    compute,
    event::Event,
    gpus,
    proto::{CounterDescriptor, Type, Unit},
    samples, threads,
    tracks::TrackWriter,
};
use crate::{
    export::{category, flows::LaunchFlows},
    trace::Trace,
};
use std::io::{self, Write};

/// Writes the file of a trace.
pub(super) fn write(trace: &Trace, out: &mut dyn Write) -> io::Result<()> {
    let flows = LaunchFlows::new(trace);
    let mut out = TrackWriter::new(trace, out);
    out.process()?;
    write_steps(&mut out)?;
    write_marks(&mut out)?;
    write_counters(&mut out)?;
    write_host_memory(&mut out)?;
    threads::write(&mut out, &flows)?;
    threads::write_calls(&mut out)?;
    gpus::write(&mut out, &flows)?;
    compute::write(&mut out)?;
    samples::write(&mut out)?;
    out.packets.flush()
}

/// Writes the track of steps, with the losses at its beginning.
fn write_steps(out: &mut TrackWriter<'_>) -> io::Result<()> {
    let trace = out.trace;
    // PyTorch's steps are also spans.
    let steps = if trace.torch().is_some() { &[] } else { trace.steps() };
    if steps.is_empty() && trace.losses().is_empty() {
        return Ok(());
    }
    let mut sequence = out.child(out.uuid, "steps".to_owned())?;
    if !trace.losses().is_empty() {
        let name = format!("kernspan {}", trace.losses());
        let event = Event::new(Type::Instant, Event::default()).name(&name);
        sequence.instant(&mut out.packets, trace.start(), event)?;
    }
    for step in steps {
        let name = format!("ProfilerStep#{}", step.number());
        let mut event = sequence.nameless(category::STEP).name(&name);
        sequence.annotate_cut(&mut event, step.cut());
        sequence.slice(&mut out.packets, step.start(), step.end(), event)?;
    }
    sequence.finish(&mut out.packets)
}

/// Writes the markers of PyTorch's window, each on its own track.
fn write_marks(out: &mut TrackWriter<'_>) -> io::Result<()> {
    for mark in out.trace.torch().into_iter().flat_map(|torch| &torch.marks) {
        let mut sequence = out.child(out.uuid, mark.name.clone())?;
        match mark.end {
            Some(end) => {
                let event = sequence.named("Trace", &mark.name);
                sequence.slice(&mut out.packets, mark.start, end, event)?;
            }
            None => {
                let event = sequence.new_event(Type::Instant).name(&mark.name);
                sequence.instant(&mut out.packets, mark.start, event)?;
            }
        }
        sequence.finish(&mut out.packets)?;
    }
    Ok(())
}

/// Writes the host memory in use, which only PyTorch traces contain.
fn write_host_memory(out: &mut TrackWriter<'_>) -> io::Result<()> {
    let changes = out.trace.torch().map_or(&[][..], |torch| &torch.host_allocations);
    if changes.is_empty() {
        return Ok(());
    }
    let bytes = CounterDescriptor { unit: Some(Unit::SizeBytes as i32), ..CounterDescriptor::default() };
    let mut sequence = out.counter(out.uuid, "CPU memory in use".to_owned(), bytes)?;
    changes.iter().try_for_each(|change| sequence.count(&mut out.packets, change.at, change.in_use as f64))
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
            // Counter tracks cannot show NaN or infinity, and such a sample matters most.
            let name = format!("{} is {value}", counter.name());
            let event = Event::new(Type::Instant, Event::default()).name(&name).track(out.uuid);
            sequence.instant(&mut out.packets, at, event)?;
        }
    }
    Ok(())
}
