//! A thread's end, in a process of its own: only a global subscriber is there to the last.

use crate::support::child;
use kernspan::{Collected, Profiler};
use tracing::{info, info_span};
use tracing_subscriber::prelude::*;

/// Says goodbye when its thread is gone, as a handle of a library might.
struct Logging;

impl Drop for Logging {
    fn drop(&mut self) {
        // An event, not a span: the registry itself cannot make one then.
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
        // Made before anything of the profiler's, so that it is destroyed after.
        HANDLE.with(|_| ());
        info_span!("work", turn = 1).in_scope(|| ());
    };
    std::thread::spawn(work).join().unwrap();
    let report = profiler.finish().unwrap();
    let trace = collected.only();
    assert!(trace.spans().any(|span| span.name() == "work"));
    assert_eq!(trace.events().len() as u64 + report.losses().unreachable, 1, "{report}");
}
