//! Tests of futures on the threads of tokio: their calls, enters, latencies and parents.

use crate::support::{profiled, span};
use kernspan::{
    Report, Trace,
    report::Average,
    trace::{Span, Timestamp},
};
use std::{
    future::{Future, pending, poll_fn},
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};
use tokio::{
    runtime::{Builder, Runtime},
    sync::{Notify, oneshot},
    task::yield_now,
};
use tracing::{Instrument, info_span};

/// Returns a runtime with two workers, on which spans go to the subscriber of the calling thread.
fn runtime() -> Runtime {
    let dispatch = tracing::dispatcher::get_default(Clone::clone);
    Builder::new_multi_thread()
        .worker_threads(2)
        // The subscriber is the worker's until its thread ends.
        .on_thread_start(move || std::mem::forget(tracing::dispatcher::set_default(&dispatch)))
        .build()
        .unwrap()
}

/// Runs a future on a runtime, and returns its trace and report.
fn run<F: Future<Output = ()>>(program: impl FnOnce() -> F) -> (Arc<Trace>, Report) {
    let (mut traces, report) = profiled(|builder| builder, |_| runtime().block_on(program()));
    assert_eq!(traces.len(), 1);
    (traces.remove(0), report)
}

/// The number of times that a future was polled.
#[derive(Clone, Default)]
struct Polls(Arc<AtomicU64>);

impl Polls {
    fn count(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Returns a future that counts its polls.
    async fn of<F: Future>(self, future: F) -> F::Output {
        let mut future = pin!(future);
        poll_fn(|context| {
            self.0.fetch_add(1, Ordering::Relaxed);
            future.as_mut().poll(context)
        })
        .await
    }
}

fn row(report: &Report, name: &str) -> Average {
    let rows = report.averages().rows();
    rows.iter().find(|row| row.name == name).unwrap_or_else(|| panic!("no {name} in {rows:#?}")).clone()
}

/// Checks that a span was called so often, and entered once for each poll and once more when each future was dropped.
fn check_calls(report: &Report, name: &str, calls: u64, polls: &Polls) {
    let row = row(report, name);
    assert_eq!((row.calls, row.enters), (calls, polls.count() + calls), "{name}");
    if let Some(latency) = row.latency {
        assert!(latency.longest >= row.longest_cpu && latency.p50 <= latency.p95, "{row:#?}");
    }
}

fn enters<'a>(trace: &'a Trace, name: &str) -> Vec<Span<'a>> {
    trace.spans().filter(|span| span.name() == name).collect()
}

/// Returns the first start and the last end of the spans of a name.
fn extent(trace: &Trace, name: &str) -> (Timestamp, Timestamp) {
    let enters = enters(trace, name);
    (enters.iter().map(|span| span.start()).min().unwrap(), enters.iter().map(|span| span.end()).max().unwrap())
}

/// Returns the name of the span around each enter, which must be the same for all.
fn parent<'a>(trace: &'a Trace, name: &str) -> Option<&'a str> {
    let mut parents: Vec<_> = enters(trace, name).into_iter().map(|span| span.parent().map(Span::name)).collect();
    parents.dedup();
    assert_eq!(parents.len(), 1, "{name}: {parents:?}");
    parents[0]
}

#[test]
fn tasks_on_several_threads_are_a_call_each() {
    const TASKS: u64 = 50;
    let polls = Polls::default();
    let (trace, report) = run(|| async {
        let task = || {
            polls.clone().of(async {
                for _ in 0..3 {
                    info_span!("piece").in_scope(|| ());
                    yield_now().await;
                }
            })
        };
        let tasks: Vec<_> = (0..TASKS).map(|_| tokio::spawn(task().instrument(info_span!("task")))).collect();
        for task in tasks {
            task.await.unwrap();
        }
    });
    assert!(trace.losses().is_empty(), "{}", trace.losses());
    assert!(polls.count() >= 4 * TASKS);
    check_calls(&report, "task", TASKS, &polls);
    assert_eq!((row(&report, "piece").calls, row(&report, "piece").latency), (3 * TASKS, None));
    assert_eq!((parent(&trace, "task"), parent(&trace, "piece")), (None, Some("task")));
    // Each enter leads back to the first of its task.
    let firsts = trace.spans().filter(|span| span.name() == "task" && span.previous().is_none());
    assert_eq!(firsts.count() as u64, TASKS);
}

#[test]
fn futures_that_are_joined_overlap() {
    let (left, right, both) = (Polls::default(), Polls::default(), Polls::default());
    let (trace, report) = run(|| async {
        let (to_left, to_right) = (Notify::new(), Notify::new());
        let left = left.clone().of(async {
            to_right.notify_one();
            to_left.notified().await;
            to_right.notify_one();
        });
        let right = right.clone().of(async {
            to_right.notified().await;
            to_left.notify_one();
            to_right.notified().await;
        });
        let joined = async { tokio::join!(left.instrument(info_span!("left")), right.instrument(info_span!("right"))) };
        both.clone().of(joined).instrument(info_span!("both")).await;
    });
    check_calls(&report, "left", 1, &left);
    check_calls(&report, "right", 1, &right);
    check_calls(&report, "both", 1, &both);
    assert_eq!((parent(&trace, "left"), parent(&trace, "right")), (Some("both"), Some("both")));
    let ((left, left_end), (right, right_end)) = (extent(&trace, "left"), extent(&trace, "right"));
    assert!(left < right_end && right < left_end);
    // No moment of a thread counts for both.
    let both = row(&report, "both");
    let inside = row(&report, "left").total_cpu + row(&report, "right").total_cpu;
    assert!(both.total_cpu >= inside && both.self_cpu <= both.total_cpu - inside, "{both:#?}");
}

#[test]
fn a_future_that_select_cancels_is_a_call() {
    let (cancelled, winner) = (Polls::default(), Polls::default());
    let (trace, report) = run(|| async {
        let (cancelled, winner) = (cancelled.clone().of(pending()), winner.clone().of(yield_now()));
        let selected = async {
            tokio::select! {
                biased;
                () = cancelled.instrument(info_span!("cancelled")) => unreachable!(),
                () = winner.instrument(info_span!("winner")) => {}
            }
            info_span!("after").in_scope(|| ());
        };
        tokio::spawn(selected.instrument(info_span!("select"))).await.unwrap();
    });
    assert!(cancelled.count() >= 2, "it was polled as often as the future beside it");
    check_calls(&report, "cancelled", 1, &cancelled);
    check_calls(&report, "winner", 1, &winner);
    assert_eq!((parent(&trace, "cancelled"), parent(&trace, "winner")), (Some("select"), Some("select")));
    // It ends when it is dropped: after the other was polled, and before the program goes on.
    let ((start, end), (winner, _)) = (extent(&trace, "cancelled"), extent(&trace, "winner"));
    assert!(start < winner && winner < end && end <= span(&trace, "after").start());
}

#[test]
fn a_future_that_is_dropped_is_a_call_until_then() {
    let polls = Polls::default();
    let (trace, report) = run(|| async {
        let (started, has_started) = oneshot::channel();
        let task = async {
            started.send(()).unwrap();
            pending::<()>().await;
        };
        let task = tokio::spawn(polls.clone().of(task).instrument(info_span!("aborted")));
        has_started.await.unwrap();
        info_span!("abort").in_scope(|| task.abort());
        assert!(task.await.unwrap_err().is_cancelled());
        drop(async {}.instrument(info_span!("unused")));
    });
    check_calls(&report, "aborted", 1, &polls);
    let ((start, end), abort) = (extent(&trace, "aborted"), span(&trace, "abort"));
    assert!(start < abort.start() && abort.start() < end);
    // A future that is dropped without a poll enters its span once.
    check_calls(&report, "unused", 1, &Polls::default());
    assert_eq!(row(&report, "unused").latency, None);
}

#[test]
fn a_task_in_the_current_span_goes_on_with_its_call() {
    let (request, task) = (Polls::default(), Polls::default());
    let (trace, report) = run(|| async {
        let spawn = async {
            let work = task.clone().of(async {
                yield_now().await;
                info_span!("inside").in_scope(|| ());
            });
            tokio::spawn(work.in_current_span()).await.unwrap();
        };
        request.clone().of(spawn).instrument(info_span!("request")).await;
    });
    // Two futures are polled and dropped in the span.
    let row = row(&report, "request");
    assert_eq!((row.calls, row.enters), (1, request.count() + task.count() + 2));
    // The time of the call may be longer, since two threads are in the span at once.
    assert!(row.latency.unwrap().longest > span(&trace, "inside").duration(), "{row:#?}");
    assert_eq!((parent(&trace, "request"), parent(&trace, "inside")), (None, Some("request")));
    let ((start, end), inside) = (extent(&trace, "request"), span(&trace, "inside"));
    assert!(start < inside.start() && inside.end() < end);
}

#[test]
fn a_task_with_a_span_is_a_call_inside_the_time_of_the_call_that_waits_for_it() {
    let (request, child) = (Polls::default(), Polls::default());
    let (trace, report) = run(|| async {
        let spawn = async {
            let work = child.clone().of(async {
                yield_now().await;
                yield_now().await;
            });
            tokio::spawn(work.instrument(info_span!("child"))).await.unwrap();
        };
        request.clone().of(spawn).instrument(info_span!("request")).await;
    });
    check_calls(&report, "request", 1, &request);
    check_calls(&report, "child", 1, &child);
    // It runs on another thread, outside of other spans, and for the call that spawned it.
    assert_eq!((parent(&trace, "request"), parent(&trace, "child")), (None, None));
    assert!(enters(&trace, "child").iter().all(|span| span.caller().unwrap().name() == "request"));
    let (outer, inner) = (extent(&trace, "request"), extent(&trace, "child"));
    assert!(outer.0 < inner.0 && inner.1 < outer.1);
    let (outer, inner) = (row(&report, "request").latency.unwrap(), row(&report, "child").latency.unwrap());
    assert!(outer.longest > inner.longest);
}
