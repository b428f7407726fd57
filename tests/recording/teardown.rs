//! A test of the end of a thread. It has its own process, since only a global subscriber is still there then.

use crate::support::child;
use kernspan::{Collected, Profiler};
use tracing::{info, info_span};
use tracing_subscriber::prelude::*;

/// A thread-local value that logs an event when it is destroyed, as a handle of a library might.
struct Logging;

impl Drop for Logging {
    fn drop(&mut self) {
        // An event and not a span, since the registry cannot make spans any more.
        info!(status = ?"closed", "in a destructor");
    }
}

thread_local!(static HANDLE: Logging = const { Logging });

#[test]
fn events_in_the_destructors_of_thread_locals_are_recorded_or_counted() {
    child::alone("teardown::events_in_the_destructors_of_thread_locals_are_recorded_or_counted", end_a_thread);
}

fn end_a_thread() {
    let collected = Collected::new();
    let (layer, profiler) = Profiler::builder().export(collected.clone()).build().unwrap();
    tracing_subscriber::registry().with(layer).init();
    let work = || {
        // It is made before the profiler's own thread-local values, so that it is destroyed after them.
        HANDLE.with(|_| ());
        info_span!("work", turn = 1).in_scope(|| ());
    };
    std::thread::spawn(work).join().unwrap();
    let report = profiler.finish().unwrap();
    let trace = collected.only();
    assert!(trace.spans().any(|span| span.name() == "work"));
    assert_eq!(trace.events().len() as u64 + report.losses().unreachable, 1, "{report}");
}
