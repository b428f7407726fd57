//! Functions that run a program under a profiler, and read the spans of its traces.

use kernspan::{Collected, Profiler, ProfilerBuilder, Report, Trace, trace::Span};
use std::sync::Arc;
use tracing_subscriber::prelude::*;

/// Runs `program` under a profiler set up by `setup`, and returns all traces and the report.
pub fn profiled(
    setup: impl FnOnce(ProfilerBuilder) -> ProfilerBuilder,
    program: impl FnOnce(&Profiler),
) -> (Vec<Arc<Trace>>, Report) {
    let collected = Collected::new();
    let (layer, profiler) = setup(Profiler::builder()).export(collected.clone()).build().unwrap();
    tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || program(&profiler));
    let report = profiler.finish().unwrap();
    (collected.traces(), report)
}

/// Returns the trace of a program that is recorded from start to end.
pub fn trace_of(program: impl FnOnce(&Profiler)) -> Arc<Trace> {
    let (mut traces, _) = profiled(|builder| builder, program);
    assert_eq!(traces.len(), 1);
    traces.remove(0)
}

/// Returns a trace's spans as indented lines, thread by thread: `name` or `name{field=value}`, with `…` for cut ends.
pub fn tree(trace: &Trace) -> String {
    let mut lines = String::new();
    for span in trace.spans() {
        let indent = "  ".repeat(span.stack().count() - 1);
        lines += &format!("{indent}{}\n", line(span));
    }
    lines
}

fn line(span: Span<'_>) -> String {
    let fields: Vec<_> = span.fields().iter().map(|(name, value)| format!("{name}={value}")).collect();
    let fields = if fields.is_empty() { String::new() } else { format!("{{{}}}", fields.join(" ")) };
    let cut = span.cut();
    format!("{}{}{fields}{}", if cut.start { "…" } else { "" }, span.name(), if cut.end { "…" } else { "" })
}

/// Returns the names of all spans, in order.
pub fn names(trace: &Trace) -> Vec<String> {
    trace.spans().map(|span| span.name().to_owned()).collect()
}

/// Returns the only span of this name.
pub fn span<'a>(trace: &'a Trace, name: &str) -> Span<'a> {
    let mut found = trace.spans().filter(|span| span.name() == name);
    let span = found.next().unwrap_or_else(|| panic!("no span {name} in\n{}", tree(trace)));
    assert!(found.next().is_none(), "several spans {name} in\n{}", tree(trace));
    span
}
