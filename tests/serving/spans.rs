//! Requests whose spans end in unusual ways.

use crate::{counts, of, served, support::PATIENCE};
use kernspan::{Profiler, Schedule, serving::RequestKind};
use std::{sync::mpsc, thread, time::Duration};
use tokio::{runtime::Builder, sync::Notify};
use tracing::{Instrument, Span, info_span, subscriber::with_default};
use tracing_subscriber::prelude::*;

fn request() -> Span {
    info_span!("request")
}

#[test]
fn every_request_is_counted_in_every_phase() {
    let (layer, profiler) = Profiler::builder()
        .schedule(Schedule::new().wait(2).warmup(1).active(2).repeat(2))
        .request_on("request")
        .build()
        .unwrap();
    with_default(tracing_subscriber::registry().with(layer), || {
        for step in 0..20 {
            for _ in 0..=step % 3 {
                request().in_scope(|| info_span!("inside").in_scope(|| ()));
            }
            profiler.step();
        }
    });
    let report = profiler.finish().unwrap();
    assert_eq!(report.windows(), 2);
    assert_eq!(counts(report.requests()), (39, 0, 0));
    assert_eq!(of(report.requests()).total.latency.count(), 39);
}

#[test]
fn a_span_is_a_request_until_it_closes_whatever_happens_to_it() {
    let (live, report) = served(
        |builder| builder.request_on("request"),
        |profiler| {
            // Never entered.
            drop(request());
            // Entered again and again.
            let again = request();
            (0..5).for_each(|_| again.in_scope(|| ()));
            // Cloned: it closes with the last handle.
            let clone = again.clone();
            drop(again);
            assert_eq!(counts(&profiler.requests()), (1, 0, 1));
            drop(clone);
            // Dropped on another thread, which has no subscriber and saw no span before.
            let elsewhere = request();
            thread::spawn(move || drop(elsewhere)).join().unwrap();
            // One inside another, of the same kind.
            request().in_scope(|| request().in_scope(|| ()));
            // Leaked.
            std::mem::forget(request());
            // Other names are no requests.
            info_span!("requests").in_scope(|| ());
        },
    );
    assert_eq!(counts(&live), (5, 0, 1));
    assert_eq!(counts(report.requests()), (5, 0, 1));
    assert!(of(report.requests()).peak_in_flight >= 1);
}

#[test]
fn a_request_that_closes_after_the_end_is_in_flight_in_the_report() {
    let (layer, profiler) = Profiler::builder().request_on("request").build().unwrap();
    let dispatch = tracing::Dispatch::new(tracing_subscriber::registry().with(layer));
    tracing::dispatcher::with_default(&dispatch, || {
        let late = request();
        drop(request());
        let report = profiler.finish().unwrap();
        assert_eq!(counts(report.requests()), (1, 0, 1));
        late.in_scope(|| ());
        drop(late);
        drop(request());
    });
}

#[test]
fn a_thread_that_ends_leaves_its_requests() {
    const THREADS: u64 = 200;
    let (_, report) = served(
        |builder| builder.request_on("request"),
        |_| {
            for _ in 0..THREADS {
                let dispatch = tracing::dispatcher::get_default(Clone::clone);
                let serve = move || tracing::dispatcher::with_default(&dispatch, || drop(request()));
                thread::spawn(serve).join().unwrap();
            }
        },
    );
    assert_eq!(counts(report.requests()), (THREADS, 0, 0));
}

#[test]
fn latencies_include_the_time_between_polls() {
    const WAIT: Duration = Duration::from_millis(30);
    let (live, _) = served(
        |builder| builder.request_on("request"),
        |_| {
            let dispatch = tracing::dispatcher::get_default(Clone::clone);
            let runtime = Builder::new_multi_thread()
                .worker_threads(2)
                .on_thread_start(move || std::mem::forget(tracing::dispatcher::set_default(&dispatch)))
                .build()
                .unwrap();
            runtime.block_on(async {
                let (ready, go) = (std::sync::Arc::new(Notify::new()), std::sync::Arc::new(Notify::new()));
                let (told, may_go) = (ready.clone(), go.clone());
                let serve = async move {
                    told.notify_one();
                    may_go.notified().await;
                };
                let task = tokio::spawn(serve.instrument(request()));
                ready.notified().await;
                // It waits for at least this long, outside of any poll.
                thread::sleep(WAIT);
                go.notify_one();
                task.await.unwrap();
            });
        },
    );
    assert_eq!(counts(&live), (1, 0, 0));
    let latency = of(&live).total.latency.max().unwrap();
    // The cycle counter's rate is known to a few hundred parts per million.
    assert!(latency >= WAIT.mul_f64(0.999) && latency < PATIENCE, "{latency:?}");
}

#[test]
fn nothing_is_lost_when_many_threads_serve_faster_than_anybody_reads() {
    const EACH: u64 = if cfg!(debug_assertions) { 20_000 } else { 200_000 };
    const THREADS: u64 = 8;
    let (_, report) = served(
        |builder| builder.request_on(RequestKind::new("request").by("shard")),
        |_| {
            let dispatch = tracing::dispatcher::get_default(Clone::clone);
            thread::scope(|scope| {
                for shard in 0..THREADS {
                    let dispatch = dispatch.clone();
                    scope.spawn(move || {
                        let serve = || (0..EACH).for_each(|_| drop(info_span!("request", shard)));
                        tracing::dispatcher::with_default(&dispatch, serve);
                    });
                }
            });
        },
    );
    assert_eq!(counts(report.requests()), (THREADS * EACH, 0, 0));
    for shard in 0..THREADS {
        assert_eq!(of(report.requests()).group(&[&shard.to_string()]).unwrap().count(), EACH);
    }
}

#[test]
fn more_requests_than_the_table_has_room_for_are_counted_all_the_same() {
    const OPEN: usize = 40_000;
    let (live, report) = served(
        |builder| builder.request_on("request"),
        |profiler| {
            let open: Vec<_> = (0..OPEN).map(|number| info_span!("request", error = number % 2 == 0)).collect();
            assert_eq!(counts(&profiler.requests()), (0, 0, OPEN as u64));
            let (to_closer, closing) = mpsc::channel();
            let closer = thread::spawn(move || closing.into_iter().for_each(drop));
            open.into_iter().for_each(|span: Span| to_closer.send(span).unwrap());
            drop(to_closer);
            closer.join().unwrap();
        },
    );
    assert_eq!(counts(&live), (OPEN as u64, OPEN as u64 / 2, 0));
    assert_eq!(of(report.requests()).peak_in_flight, OPEN as u64);
}

#[test]
fn spans_of_the_profilers_own_threads_are_no_requests() {
    let (_, report) = served(
        |builder| builder.request_on("request"),
        |_| {
            let dispatch = tracing::dispatcher::get_default(Clone::clone);
            let muted = move || {
                kernspan::export::mute_this_thread();
                tracing::dispatcher::with_default(&dispatch, || drop(request()));
            };
            thread::spawn(muted).join().unwrap();
        },
    );
    assert!(report.requests().is_empty());
    assert!(!report.to_string().contains("`request`"));
}

#[test]
fn kinds_are_checked() {
    let problem = |kinds: Vec<RequestKind>| {
        let builder = kinds.into_iter().fold(Profiler::builder(), kernspan::ProfilerBuilder::request_on);
        builder.build().map(drop).unwrap_err().to_string()
    };
    for (kinds, expected) in [
        (vec!["".into()], "empty"),
        (vec!["a".into(), "b".into(), "a".into()], "`a` is named twice"),
        (vec![RequestKind::new("a").most_groups(0)], "0 groups"),
        (vec![["b", "c", "d", "e", "f"].into_iter().fold(RequestKind::new("a"), RequestKind::by)], "5 fields"),
    ] {
        let found = problem(kinds);
        assert!(found.contains(expected), "{found}");
    }
}
