//! Spans as `cpu_op` events.

use super::{
    event::{EventWriter, Head},
    fields,
    json::Members,
    output::Output,
    row::RowText,
    torch::{Module, SpanExtras},
};
use crate::trace::{Callsite, Span};
use std::io;

/// Writes all spans. In the flavor of TensorBoard's plugin, it also writes the modules that spans are calls of.
pub(super) fn write(out: &mut Output<'_>) -> io::Result<()> {
    let callsites: Vec<_> = out.trace.callsites().iter().map(CallsiteText::new).collect();
    let rows = out.rows();
    let mut extras = SpanExtras::new(out.trace, out.options.flavor);
    for (index, span) in out.trace.spans().enumerate() {
        let (text, row) = (&callsites[span.callsite_id().index()], &rows[span.track_id().index()]);
        if let Some(module) = extras.as_mut().and_then(|extras| extras.module(span)) {
            write_module(&mut out.events, span, &module, row)?;
        }
        let event = match extras.as_ref().and_then(|extras| extras.name(span)) {
            Some(name) => out.events.slice("cpu_op", name),
            None => out.events.event(&text.head),
        };
        event.on_row(row).during(span.start(), span.end()).args(|args| {
            args.number("External id", index + 1);
            args.members(&text.location);
            fields::write_cut(args, span.cut());
            if !span.fields().is_empty() {
                if extras.as_ref().is_none_or(|extras| extras.may_have_inputs(span)) {
                    fields::write_inputs(args, span.fields());
                }
                fields::write(args, span.fields(), None, &fields::RESERVED);
            }
            let call_stack = extras.as_mut().map(|extras| extras.call_stack(span));
            if !span.backtrace().is_empty() {
                args.string("Call stack", &span.backtrace().join(";"));
            } else if let Some(call_stack) = call_stack {
                args.quoted("Call stack", call_stack);
            }
        })?;
    }
    Ok(())
}

/// Writes the module of a span, before the span: the plugin takes the first of two equal ranges for the outer one.
fn write_module(events: &mut EventWriter<'_>, span: Span<'_>, module: &Module<'_>, row: &RowText) -> io::Result<()> {
    let event = events.slice("python_function", &format!("nn.Module: {}", module.path));
    event.on_row(row).during(span.start(), span.end()).args(|args| {
        args.number("Python id", module.node);
        match module.parent {
            Some(parent) => args.number("Python parent id", parent),
            None => args.null("Python parent id"),
        }
        args.number("Python module id", module.id);
    })
}

/// The text that all spans of a callsite have in common.
#[derive(Debug)]
struct CallsiteText {
    head: Head,
    location: Members,
}

impl CallsiteText {
    fn new(callsite: &Callsite) -> Self {
        Self {
            head: Head::slice("cpu_op", callsite.name()),
            location: Members::new(|args| fields::write_location(args, callsite)),
        }
    }
}
