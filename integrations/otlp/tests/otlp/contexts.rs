//! The ids that another layer has for our spans.

use crate::{
    layers::{Both, Stacked, assert_same, ids_of, nested},
    support::span,
};
use kernspan::{Collected, Profiler, ProfilerBuilder, Schedule};
use opentelemetry::trace::TracerProvider;
use opentelemetry_sdk::trace::{InMemorySpanExporter, Sampler, SdkTracerProvider};
use std::{
    sync::{Arc, Barrier},
    thread,
};
use tracing::{Dispatch, dispatcher, info_span};
use tracing_subscriber::{Registry, prelude::*, registry};

#[test]
fn a_span_has_the_ids_that_the_other_layer_sends() {
    for stacked in Stacked::ALL {
        let (trace, sent) = Both::new(stacked).run(|_| nested());
        assert_eq!(trace.spans().len(), 6);
        assert_same(stacked, &trace, &sent);
        let traces: Vec<_> = ["outer", "another trace"].map(|name| ids_of(&sent, name).unwrap().0).into();
        assert_ne!(traces[0], traces[1]);
    }
}

#[test]
fn without_such_a_layer_there_are_none() {
    let (trace, sent) = Both::new(Stacked::WithoutTheirs).run(|_| nested());
    assert!(sent.is_empty() && trace.spans().len() == 6);
    assert!(trace.spans().all(|span| span.context().is_none()));
}

#[test]
fn what_is_not_sampled_is_known_to_be_so() {
    let (trace, sent) = Both::new(Stacked::OursOutside).sampler(Sampler::AlwaysOff).run(|_| nested());
    assert!(sent.is_empty());
    assert!(trace.spans().all(|span| span.context().is_some_and(|context| !context.sampled && context.span_id != 0)));
}

#[test]
fn spans_are_known_on_every_thread() {
    for stacked in Stacked::ALL {
        let (trace, sent) = Both::new(stacked).run(|_| {
            let dispatch = dispatcher::get_default(Dispatch::clone);
            let shared = info_span!("shared");
            thread::scope(|scope| {
                for name in ["a", "b", "c"] {
                    let (dispatch, shared) = (&dispatch, &shared);
                    scope.spawn(move || {
                        dispatcher::with_default(dispatch, || {
                            for _ in 0..50 {
                                shared.in_scope(|| info_span!("own", name).in_scope(|| ()));
                            }
                        });
                    });
                }
            });
        });
        let shared = ids_of(&sent, "shared").map(|(_, span)| span);
        let of = |name| trace.spans().filter(move |span| span.name() == name);
        assert_eq!((of("shared").count(), of("own").count()), (150, 150));
        assert!(of("shared").all(|span| span.context().map(|context| context.span_id) == shared));
        let mut own: Vec<_> = of("own").map(|span| span.context().unwrap().span_id).collect();
        let mut theirs: Vec<_> =
            sent.iter().filter(|span| span.name == "own").map(|span| span.span_context.span_id()).collect();
        own.sort_unstable();
        theirs.sort_unstable_by_key(|id| u64::from_be_bytes(id.to_bytes()));
        assert!(own.iter().copied().eq(theirs.iter().map(|id| u64::from_be_bytes(id.to_bytes()))));
    }
}

#[test]
fn a_span_that_is_entered_again_is_the_same() {
    for stacked in Stacked::ALL {
        let (trace, sent) = Both::new(stacked).run(|_| {
            // Like async tasks that are polled in turn.
            let (first, second) = (info_span!("first"), info_span!("second", n = 2));
            for _ in 0..1000 {
                first.in_scope(|| second.in_scope(|| first.in_scope(|| ())));
                info_span!("between").in_scope(|| ());
            }
        });
        for (name, times) in [("first", 2000), ("second", 1000)] {
            let instances: Vec<_> = trace.spans().filter(|span| span.name() == name).collect();
            assert_eq!(instances.len(), times);
            let ids = ids_of(&sent, name);
            assert!(instances.iter().all(|span| span.context().map(|it| (it.trace_id, it.span_id)) == ids));
        }
    }
}

#[test]
fn spans_begun_before_the_window_are_known() {
    for stacked in Stacked::ALL {
        let manual = |builder: ProfilerBuilder| builder.schedule(Schedule::manual());
        let (trace, sent) = Both::new(stacked).setup(manual).run(|profiler| {
            let dispatch = dispatcher::get_default(Dispatch::clone);
            let long = info_span!("long", epoch = 1).entered();
            let hidden = info_span!("hidden long").entered();
            let again = info_span!("again");
            let (one, barrier) = (again.clone().entered(), Arc::new(Barrier::new(2)));
            let other = again.clone().entered();
            let at = Arc::clone(&barrier);
            let worker = thread::spawn(move || {
                let _default = dispatcher::set_default(&dispatch);
                let before = info_span!("begun on a worker").entered();
                at.wait();
                at.wait();
                drop(before);
                at.wait();
            });
            barrier.wait();
            profiler.start();
            barrier.wait();
            info_span!("in the window").in_scope(|| ());
            barrier.wait();
            profiler.stop();
            worker.join().unwrap();
            drop((one, other, hidden, long));
        });
        assert_eq!(trace.spans().len(), 6);
        assert!(span(&trace, "long").cut().start && span(&trace, "long").cut().end);
        assert_same(stacked, &trace, &sent);
    }
}

#[test]
fn a_window_after_the_other_knows_what_is_open() {
    let schedule = |builder: ProfilerBuilder| builder.schedule(Schedule::new().active(1).repeat(3));
    let exporter = InMemorySpanExporter::default();
    let provider = SdkTracerProvider::builder().with_simple_exporter(exporter.clone()).build();
    let collected = Collected::new();
    let (ours, profiler) = schedule(Profiler::builder()).export(collected.clone()).build().unwrap();
    let dispatch = Stacked::OursOutside.dispatch(ours, provider.tracer("tests"));
    dispatcher::with_default(&dispatch, || {
        let _epoch = info_span!("epoch").entered();
        for _ in 0..3 {
            let _step = info_span!("train_step").entered();
            // The step ends inside the span.
            profiler.step();
        }
    });
    profiler.finish().unwrap();
    let sent = exporter.get_finished_spans().unwrap();
    let epoch = ids_of(&sent, "epoch").unwrap();
    for trace in collected.traces().iter().take(3) {
        assert_eq!(span(trace, "epoch").context().map(|it| (it.trace_id, it.span_id)), Some(epoch));
        assert!(trace.spans().all(|span| span.context().is_some()), "{}", crate::support::tree(trace));
    }
}

#[test]
fn the_layer_is_found_in_any_subscriber() {
    // A program may decide at start whether it has the layer.
    let provider = SdkTracerProvider::builder().build();
    let theirs = Some(tracing_opentelemetry::layer::<Registry>().with_tracer(provider.tracer("tests")));
    let collected = Collected::new();
    let (ours, profiler) = Profiler::builder().export(collected.clone()).build().unwrap();
    tracing::subscriber::with_default(registry().with(theirs).with(ours), nested);
    profiler.finish().unwrap();
    assert!(collected.only().spans().all(|span| span.context().is_some()));
}
