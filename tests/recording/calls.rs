//! Tests of calls: enters of a span that belong together, such as the polls of a future.

use crate::support::{profiled, trace_of};
use kernspan::{
    Profiler, Schedule,
    report::Average,
    trace::{Span, Trace},
};
use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll, Waker},
};
use tracing::{Instrument, info_span};

/// A future that is ready when it is polled for the second time.
#[derive(Default)]
struct Second(bool);

impl Future for Second {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
        if std::mem::replace(&mut self.0, true) { Poll::Ready(()) } else { Poll::Pending }
    }
}

fn poll<F: Future + ?Sized>(future: &mut Pin<Box<F>>) -> Poll<F::Output> {
    future.as_mut().poll(&mut Context::from_waker(Waker::noop()))
}

/// Polls all futures in turn until they are ready.
fn run(mut futures: Vec<Pin<Box<dyn Future<Output = ()>>>>) {
    while !futures.is_empty() {
        futures.retain_mut(|future| poll(future).is_pending());
    }
}

fn report_of(program: impl FnOnce(&Profiler)) -> (Vec<Average>, u64) {
    let (traces, report) = profiled(|builder| builder, program);
    let linked = traces.iter().flat_map(|trace| trace.spans()).filter(|span| span.previous().is_some()).count();
    (report.averages().rows(), linked as u64)
}

fn row(rows: &[Average], name: &str) -> (u64, u64) {
    let row = rows.iter().find(|row| row.name == name).unwrap_or_else(|| panic!("no {name} in {rows:#?}"));
    (row.calls, row.enters)
}

/// Returns the number of enters of each call of the spans of a name, sorted.
fn enters(trace: &Trace, name: &str) -> Vec<usize> {
    let first = |span| std::iter::successors(Some(span), |span: &Span<'_>| span.previous()).last();
    let mut calls = std::collections::BTreeMap::new();
    for span in trace.spans().filter(|span| span.name() == name) {
        *calls.entry(first(span).map(Span::id)).or_insert(0) += 1;
    }
    let mut counts: Vec<_> = calls.into_values().collect();
    counts.sort_unstable();
    counts
}

#[test]
fn the_polls_of_a_future_are_one_call() {
    let (rows, linked) = report_of(|_| {
        let fetch =
            |_| Box::pin(Second::default().instrument(info_span!("fetch"))) as Pin<Box<dyn Future<Output = ()>>>;
        run((0..100).map(fetch).collect());
        (0..144).for_each(|number| run(vec![fetch(number)]));
    });
    // Two polls, and one enter when the future is dropped.
    assert_eq!((row(&rows, "fetch"), linked), ((244, 732), 2 * 244));
    let fetch = rows.iter().find(|row| row.name == "fetch").unwrap();
    let latency = fetch.latency.unwrap();
    assert!(latency.longest >= fetch.longest_cpu && latency.average >= fetch.average_cpu, "{fetch:#?}");
}

#[test]
fn futures_inside_others_are_called_as_often_as_they_are_made() {
    let (rows, _) = report_of(|_| {
        let request = || async {
            for _ in 0..3 {
                Second::default().instrument(info_span!("query")).await;
            }
        };
        run((0..5).map(|_| Box::pin(request().instrument(info_span!("request"))) as _).collect());
    });
    assert_eq!((row(&rows, "request"), row(&rows, "query")), ((5, 5 * 5), (15, 15 * 3)));
}

#[test]
fn a_call_may_move_between_threads() {
    let trace = trace_of(|_| {
        let mut future = Box::pin(Second::default().instrument(info_span!("fetch")));
        assert!(poll(&mut future).is_pending());
        std::thread::spawn(move || assert!(poll(&mut future).is_ready())).join().unwrap();
    });
    assert_eq!(enters(&trace, "fetch"), [3]);
    let threads: std::collections::BTreeSet<_> = trace.spans().map(|span| span.track().thread()).collect();
    assert_eq!(threads.len(), 2);
}

#[test]
fn ids_that_the_registry_uses_again_are_other_calls() {
    let program = |_: &Profiler| (0..30_000).for_each(|_| info_span!("again").in_scope(|| ()));
    let (traces, report) = profiled(|builder| builder.lane_capacity(1 << 18), program);
    assert!(traces[0].losses().is_empty(), "{}", traces[0].losses());
    assert_eq!(row(&report.averages().rows(), "again"), (30_000, 30_000));
    assert!(traces[0].spans().all(|span| span.previous().is_none()));
}

#[test]
fn a_layer_is_called_in_each_call_of_the_span_around_it() {
    let (rows, linked) = report_of(|_| {
        // As models of Candle do, whose spans are made once.
        let (block, layer) = (info_span!("block"), info_span!("layer"));
        for _ in 0..10 {
            let _forward = info_span!("forward").entered();
            block.in_scope(|| layer.in_scope(|| ()));
        }
    });
    assert_eq!((row(&rows, "forward"), row(&rows, "block"), row(&rows, "layer")), ((10, 10), (10, 10), (10, 10)));
    assert_eq!(linked, 0);
}

#[test]
fn a_layer_is_called_as_often_as_it_is_entered_in_the_span_around_it() {
    // The rotation of queries and of keys, as in Llama, with another layer in between.
    let forward = |[block, layer, other]: &[tracing::Span; 3]| {
        let _forward = info_span!("forward").entered();
        let _block = block.enter();
        layer.in_scope(|| info_span!("product").in_scope(|| ()));
        other.in_scope(|| layer.in_scope(|| ()));
        layer.in_scope(|| ());
    };
    let model = || [info_span!("block"), info_span!("layer"), info_span!("other")];
    let expected =
        [("forward", (4, 4)), ("block", (4, 4)), ("layer", (12, 12)), ("other", (4, 4)), ("product", (4, 4))];
    let check = |(rows, linked): (Vec<Average>, u64)| {
        assert_eq!(expected.map(|(name, _)| (name, row(&rows, name))), expected);
        assert!(linked == 0 && rows.iter().all(|row| row.latency.is_none()));
    };
    // The model is made in the window: outside of spans, inside of one that goes on, and inside of one that has ended.
    check(report_of(|_| {
        let model = model();
        (0..4).for_each(|_| forward(&model));
    }));
    check(report_of(|_| {
        let _main = info_span!("main").entered();
        let model = model();
        (0..4).for_each(|_| forward(&model));
    }));
    check(report_of(|_| {
        let _main = info_span!("main").entered();
        let model = info_span!("load").in_scope(|| info_span!("weights").in_scope(model));
        (0..4).for_each(|_| forward(&model));
    }));
    // It is made before the window, and on another thread.
    let schedule = Schedule::new().wait(1).active(4).repeat(1);
    let (_, report) = profiled(
        |builder| builder.schedule(schedule),
        |profiler| {
            let dispatch = tracing::dispatcher::get_default(Clone::clone);
            let made = std::thread::spawn(move || tracing::dispatcher::with_default(&dispatch, model));
            let model = info_span!("load").in_scope(|| made.join().unwrap());
            for _ in 0..5 {
                forward(&model);
                profiler.step();
            }
        },
    );
    check((report.averages().rows(), 0));
}

#[test]
fn futures_polled_in_a_loop_inside_a_span_are_one_call() {
    let (rows, _) = report_of(|_| {
        let request = info_span!("request");
        for _ in 0..3 {
            let _request = request.enter();
            run(vec![Box::pin(Second::default().instrument(info_span!("query")))]);
            // Its span is made in another one, which has ended.
            let made = info_span!("make").in_scope(|| Second::default().instrument(info_span!("answer")));
            run(vec![Box::pin(made)]);
        }
    });
    assert_eq!((row(&rows, "request"), row(&rows, "query"), row(&rows, "answer")), ((1, 3), (3, 9), (3, 9)));
}

#[test]
fn a_layer_is_called_in_each_step() {
    let (rows, _) = report_of(|profiler| {
        let layer = info_span!("layer");
        for _ in 0..10 {
            layer.in_scope(|| ());
            layer.in_scope(|| ());
            profiler.step();
        }
    });
    assert_eq!(row(&rows, "layer"), (10, 20));
}

#[test]
fn a_future_that_makes_steps_is_one_call() {
    let (rows, _) = report_of(|profiler| {
        let mut training = Box::pin(
            async {
                for _ in 0..3 {
                    Second::default().instrument(info_span!("batch")).await;
                    profiler.step();
                }
            }
            .instrument(info_span!("training")),
        );
        while poll(&mut training).is_pending() {}
    });
    assert_eq!((row(&rows, "training"), row(&rows, "batch")), ((1, 5), (3, 9)));
}

#[test]
fn a_span_entered_for_ever_outside_of_others_is_one_call() {
    let trace = trace_of(|_| {
        let worker = info_span!("worker");
        (0..10).for_each(|_| worker.in_scope(|| info_span!("job").in_scope(|| ())));
    });
    assert_eq!((enters(&trace, "worker"), enters(&trace, "job")), (vec![10], vec![1; 10]));
}

#[test]
fn a_future_is_one_call_although_others_that_are_steps_end() {
    let (traces, report) = profiled(
        |builder| builder.step_on("request"),
        |_| {
            let request = |polls: usize| async move {
                for _ in 0..polls {
                    Second::default().instrument(info_span!("query")).await;
                }
            };
            let request =
                |polls| Box::pin(request(polls).instrument(info_span!("request"))) as Pin<Box<dyn Future<Output = ()>>>;
            run((1..=5).map(request).collect());
        },
    );
    let rows = report.averages().rows();
    assert_eq!((traces[0].steps().len(), row(&rows, "request").0, row(&rows, "query").0), (5, 5, 15));
}
