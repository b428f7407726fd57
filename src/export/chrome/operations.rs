//! Framework operations, as instants.

use super::{
    event::{Head, Scope},
    fields,
    output::Output,
};
use crate::{
    export::json::Members,
    trace::{Attribution, Operation},
};
use std::io;

/// The arguments of operations that are not fields. A field of the same name is called `field.NAME`.
const RESERVED: [&str; 7] = ["External id", "span", "attribution", "Input Dims", "Input type", "step", "batch"];

/// Writes each call of an operation, on the row of the thread that reported it.
pub(super) fn write(out: &mut Output<'_>) -> io::Result<()> {
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
                fields::write(args, operation.fields(), None, &RESERVED);
            }),
        }
    }
}
