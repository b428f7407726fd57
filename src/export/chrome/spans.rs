//! Spans as `cpu_op` events.

use super::{
    event::{EventWriter, Head},
    fields,
    flavor::Flavor,
    output::Output,
    rows::RowText,
    torch::{Module, SpanExtras},
};
use crate::{
    export::{
        category,
        flows::{CallFlows, SpanFlows},
        json::Members,
        steps::step_name,
    },
    trace::{Callsite, Span, enclosing},
};
use std::io;

/// Writes all spans, with arrows between the enters of a call and from causes. In the flavor of TensorBoard's plugin,
/// which does not support such arrows, it writes the modules that spans call instead.
pub(super) fn write(out: &mut Output<'_>) -> io::Result<()> {
    let is_torch = out.torch().is_some();
    let category = |callsite| if is_torch { category::of_span(out.trace, callsite) } else { category::SPAN };
    let callsites: Vec<_> =
        out.trace.callsites().iter().map(|callsite| CallsiteText::new(callsite, category(callsite))).collect();
    let rows = out.rows();
    let flows = (out.options.flavor == Flavor::Kineto).then(|| CallFlows::new(out.trace));
    let linked = (is_torch || flows.is_some()).then(|| SpanFlows::new(out.trace));
    // A reader takes the innermost span around another on its row for its parent.
    let parents = (out.options.flavor == Flavor::Kineto).then(|| enclosing(&out.trace.spans));
    let mut extras = SpanExtras::new(out.trace, out.options.flavor);
    for (index, span) in out.trace.spans().enumerate() {
        let (text, row) = (&callsites[span.callsite_id().index()], &rows[span.track_id().index()]);
        if let Some(module) = extras.as_mut().and_then(|extras| extras.module(span)) {
            write_module(&mut out.events, span, &module, row)?;
        }
        let step = if is_torch { step_name(out.trace, span) } else { None };
        let event = match (extras.as_ref().and_then(|extras| extras.name(span)), &step) {
            (Some(name), _) => out.events.slice(category::SPAN, name),
            (None, Some(step)) => out.events.slice(category::STEP, step),
            (None, None) => out.events.event(&text.head),
        };
        event.on_row(row).during(span.start(), span.end()).args(|args| {
            args.number("External id", index + 1);
            args.members(&text.location);
            fields::write_cut(args, span.cut());
            let parent = span.parent().map(Span::id);
            if parents.as_ref().is_some_and(|parents| parents[index] != parent) {
                args.number("parent", parent.map_or(0, |parent| parent.index() + 1));
            }
            if let Some(caller) = out.trace.callers.get(&span.id()) {
                args.number("caller", caller.map_or(0, |caller| caller.index() + 1));
            }
            if let Some(causes) = out.trace.follows.get(&span.id()) {
                let ids: Vec<_> = causes.iter().map(|cause| cause.index() + 1).collect();
                args.raw_entry("follows_from", &format!("{ids:?}"));
            }
            if text.category == category::PYTHON {
                fields::write_python_ids(args, span);
            }
            if is_torch {
                fields::write_torch_fields(args, span.fields());
            } else if !span.fields().is_empty() {
                if extras.as_ref().is_none_or(|extras| extras.may_have_inputs(span)) {
                    fields::write_inputs(args, span.fields());
                }
                fields::write(args, span.fields(), None, &fields::RESERVED);
            }
            let heap = span.heap();
            if !heap.is_nothing() {
                args.raw_entry("heap", &format!("[{},{},{}]", heap.allocations, heap.allocated, heap.freed));
            }
            if let Some(cpu_time) = span.cpu_time() {
                args.number(Span::CPU_TIME, u64::try_from(cpu_time.as_nanos()).unwrap_or(u64::MAX));
            }
            let call_stack = extras.as_mut().map(|extras| extras.call_stack(span));
            if !span.backtrace().is_empty() {
                args.string("Call stack", &span.backtrace().join(";"));
            } else if let Some(call_stack) = call_stack {
                args.quoted("Call stack", call_stack);
            }
        })?;
        let mut digits = itoa::Buffer::new();
        if let Some(linked) = &linked {
            for flow in linked.to(span) {
                out.events.arrow_to(linked.category, digits.format(flow + 1), row)?;
            }
            for flow in linked.from(span) {
                out.events.arrow_from(linked.category, digits.format(flow + 1), row)?;
            }
        }
        if let Some(flows) = &flows {
            if let Some(flow) = flows.to(span) {
                out.events.arrow_to(CallFlows::CATEGORY, digits.format(flow.index()), row)?;
            }
            if let Some(flow) = flows.from(span) {
                out.events.arrow_from(CallFlows::CATEGORY, digits.format(flow.index()), row)?;
            }
        }
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

/// The text shared by all spans of a callsite.
#[derive(Debug)]
struct CallsiteText {
    category: &'static str,
    head: Head,
    location: Members,
}

impl CallsiteText {
    fn new(callsite: &Callsite, category: &'static str) -> Self {
        Self {
            category,
            head: Head::slice(category, callsite.name()),
            location: Members::new(|args| fields::write_location(args, callsite)),
        }
    }
}
