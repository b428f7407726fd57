//! The machinery behind tests that read as sentences.

#![allow(dead_code, unreachable_pub, reason = "each test file uses its own part")]

pub mod awkward;
pub mod child;
pub mod collectors;
pub mod cupti;
pub mod downloads;
pub mod readers;
pub mod server;
pub mod spans;
pub mod steps;
pub mod tensorboard;

use kernspan::{Collected, Profiler, ProfilerBuilder, Report, Trace, trace::Span};
use std::{
    sync::Arc,
    time::{Duration, Instant},
};
use tracing_subscriber::prelude::*;

/// How long a test waits for something before it says that it never comes: longer than any machine takes, however busy.
pub const PATIENCE: Duration = Duration::from_secs(300);

/// Looks for something again and again until it is there.
#[track_caller]
pub fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let until = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < until, "{what}: not after {PATIENCE:?}");
        // The processor is for whoever is waited for.
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Runs `program` under a profiler set up by `setup`, and gives back all traces and the report.
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

/// The trace of a program that is recorded from start to end.
pub fn trace_of(program: impl FnOnce(&Profiler)) -> Arc<Trace> {
    let (mut traces, _) = profiled(|builder| builder, program);
    assert_eq!(traces.len(), 1);
    traces.remove(0)
}

/// A trace's spans as indented lines, `name` or `name{field=value}`, a thread after the other, cut ends as `…`.
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

/// The names of all spans, in order.
pub fn names(trace: &Trace) -> Vec<String> {
    trace.spans().map(|span| span.name().to_owned()).collect()
}

/// The only span of this name.
pub fn span<'a>(trace: &'a Trace, name: &str) -> Span<'a> {
    let mut found = trace.spans().filter(|span| span.name() == name);
    let span = found.next().unwrap_or_else(|| panic!("no span {name} in\n{}", tree(trace)));
    assert!(found.next().is_none(), "several spans {name} in\n{}", tree(trace));
    span
}

/// A window recorded on an H200, replayed.
#[cfg(all(feature = "cuda", target_os = "linux"))]
pub fn recorded(name: &str) -> Trace {
    let path = format!("{}/tests/fixtures/gpu/{name}.kernspan", env!("CARGO_MANIFEST_DIR"));
    kernspan::replay(std::fs::File::open(path).unwrap()).unwrap()
}
