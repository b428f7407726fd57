//! The events of the host, except its spans: names of rows, steps, events, operations, counters and losses.

use super::{
    event::{Head, Scope},
    fields,
    output::Output,
    rows::Row,
    torch::steps_shown,
};
use crate::{
    export::{category, json::Members},
    trace::{Attribution, Callsite, Operation},
};
use std::{fmt::Write as _, io};

/// The row of steps that do not nest with the spans of their thread: no thread has this id.
const STEPS_TID: i64 = 0;

/// Names the process and its threads, in display order.
pub(super) fn write_names(out: &mut Output<'_>, nested_steps: bool) -> io::Result<()> {
    let (trace, pid) = (out.trace, out.pid);
    let metadata = trace.metadata();
    out.name_process(pid, &metadata.process, "CPU", metadata.pid.into())?;
    for (index, track) in trace.tracks().iter().enumerate() {
        out.name_row(out.row(track), &track.label(), index as i64)?;
    }
    if !nested_steps {
        out.name_row(Row { pid, tid: STEPS_TID }, "steps", -1)?;
    }
    Ok(())
}

/// Writes steps: on the rows of their threads if they nest there, or else on a separate row.
pub(super) fn write_steps(out: &mut Output<'_>, nested_steps: bool) -> io::Result<()> {
    let trace = out.trace;
    let shown = steps_shown(trace, out.options.flavor);
    let mut name = String::new();
    for (step, shown) in trace.steps().iter().zip(shown) {
        let row = match nested_steps {
            true => out.row(&trace.tracks()[step.track_id().index()]),
            false => Row { pid: out.pid, tid: STEPS_TID },
        };
        let thread = out.row(&trace.tracks()[step.track_id().index()]).tid;
        name.clear();
        // A `String` takes all that is written to it.
        let _ = write!(name, "{}#{}", if shown { "ProfilerStep" } else { "step" }, step.number());
        let event = out.events.slice(category::STEP, &name).on(row).during(step.start(), step.end());
        event.args(|args| {
            args.number("step", step.number());
            if !nested_steps {
                args.number("thread", thread);
            }
            fields::write_cut(args, step.cut());
        })?;
    }
    Ok(())
}

/// Writes events as instants.
pub(super) fn write_events(out: &mut Output<'_>) -> io::Result<()> {
    let callsites: Vec<_> = out.trace.callsites().iter().map(callsite_members).collect();
    let rows = out.rows();
    for (event, data) in out.trace.events().zip(&out.trace.events) {
        let instant = out.events.instant(Scope::Thread, "cpu_instant_event", event.message());
        instant.on_row(&rows[event.track_id().index()]).at(event.at()).args(|args| {
            args.members(&callsites[data.callsite.index()]);
            fields::write(args, event.fields(), Some("message"), &fields::RESERVED);
        })?;
    }
    Ok(())
}

/// Returns the arguments shared by all events of a callsite.
fn callsite_members(callsite: &Callsite) -> Members {
    Members::new(|args| {
        args.string("level", &callsite.level().to_string());
        fields::write_location(args, callsite);
    })
}

/// Writes the samples of counters.
pub(super) fn write_counters(out: &mut Output<'_>) -> io::Result<()> {
    let row = Row { pid: out.pid, tid: 0 };
    for counter in out.trace.counters() {
        for &(at, value) in counter.samples() {
            let event = if value.is_finite() {
                out.events.counter(counter.name())
            } else {
                // Counter tracks cannot show NaN or infinity, and such a sample matters most.
                let name = format!("{} is {value}", counter.name());
                out.events.instant(Scope::Process, "cpu_instant_event", &name)
            };
            event.on(row).at(at).args(|args| args.float("value", value))?;
        }
    }
    Ok(())
}

/// Writes losses as an instant at the window's start, across all rows, where people see it.
pub(super) fn write_losses(out: &mut Output<'_>) -> io::Result<()> {
    let losses = out.trace.losses();
    if losses.is_empty() {
        return Ok(());
    }
    let event = out.events.instant(Scope::Global, "cpu_instant_event", &format!("kernspan {losses}"));
    event.on(Row { pid: out.pid, tid: 0 }).at(out.trace.start()).args(|_| ())
}

/// The arguments of operations that are not fields. A field of the same name is called `field.NAME`.
const OPERATION_RESERVED: [&str; 7] =
    ["External id", "span", "attribution", "Input Dims", "Input type", "step", "batch"];

/// Writes each call of an operation, on the row of the thread that reported it.
pub(super) fn write_operations(out: &mut Output<'_>) -> io::Result<()> {
    let mut texts: Vec<Option<OperationText>> = out.trace.operations.iter().map(|_| None).collect();
    let rows = out.rows();
    for call in out.trace.operations() {
        let text = &mut texts[call.operation_id().index()];
        let text = text.get_or_insert_with(|| OperationText::new(call.operation()));
        out.events.event(&text.head).on_row(&rows[call.track_id().index()]).at(call.at()).args(|args| {
            if let Some(span) = call.span() {
                args.number("External id", span.id().index() + 1);
                args.string("span", span.name());
            }
            if call.attribution() != Attribution::Direct {
                args.string("attribution", call.attribution().as_str());
            }
            if call.step_id() != out.trace.step_at(call.at()) {
                fields::write_step(args, call.step());
            }
            if let Some(batch) = call.batch_id() {
                args.number("batch", batch.index() + 1);
            }
            args.members(&text.fields);
        })?;
    }
    Ok(())
}

/// The text shared by all calls of an operation.
#[derive(Debug)]
struct OperationText {
    head: Head,
    fields: Members,
}

impl OperationText {
    fn new(operation: &Operation) -> Self {
        Self {
            head: Head::instant(Scope::Thread, "operation", operation.name()),
            fields: Members::new(|args| {
                fields::write_inputs(args, operation.fields());
                fields::write(args, operation.fields(), None, &OPERATION_RESERVED);
            }),
        }
    }
}
