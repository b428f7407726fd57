//! Tests of callers: the spans that others work for, where the thread's stack does not say it.

use crate::support::{profiled, span, trace_of};
use kernspan::{
    Collected, Profiler, Schedule, Trace,
    trace::{Span, Value},
};
use std::{sync::mpsc::channel, thread};
use tracing::{info_span, subscriber::with_default};
use tracing_subscriber::{filter::filter_fn, prelude::*};

/// Returns the names of the parent and of the caller of the only span of this name.
fn around<'a>(trace: &'a Trace, name: &str) -> (Option<&'a str>, Option<&'a str>) {
    let span = span(trace, name);
    (span.parent().map(Span::name), span.caller().map(Span::name))
}

/// Returns a program as a thread runs it whose spans go to the subscriber of this thread.
fn subscribed(program: impl FnOnce() + Send) -> impl FnOnce() + Send {
    let dispatch = tracing::dispatcher::get_default(Clone::clone);
    move || tracing::dispatcher::with_default(&dispatch, program)
}

/// Enters a span on a thread of its own, and another one inside it.
fn enter_elsewhere(span: tracing::Span) {
    let enter = move || span.in_scope(|| info_span!("inside").in_scope(|| ()));
    thread::scope(|scope| scope.spawn(subscribed(enter)).join().unwrap());
}

#[test]
fn a_parent_that_is_given_is_the_caller() {
    let trace = trace_of(|_| {
        let request = info_span!("request");
        request.in_scope(|| ());
        let _worker = info_span!("worker").entered();
        info_span!(parent: &request, "child").in_scope(|| info_span!("inner").in_scope(|| ()));
        info_span!(parent: None, "root").in_scope(|| ());
        info_span!("usual").in_scope(|| ());
    });
    assert_eq!(around(&trace, "child"), (Some("worker"), Some("request")));
    assert_eq!(around(&trace, "inner"), (Some("child"), Some("child")));
    // No parent is given, so the thread's stack decides, as for a span that is made once and entered in every step.
    assert_eq!(around(&trace, "root"), (Some("worker"), Some("worker")));
    assert_eq!(around(&trace, "usual"), (Some("worker"), Some("worker")));
    // Time is that of the thread, whoever is the caller.
    let of = |name| span(&trace, name);
    let nested = of("child").duration() + of("root").duration() + of("usual").duration();
    assert_eq!(of("worker").self_time(), of("worker").duration() - nested);
    assert_eq!(of("request").self_time(), of("request").duration());
}

#[test]
fn a_parent_that_was_never_entered_leaves_a_span_where_its_thread_has_it() {
    let trace = trace_of(|_| {
        let request = info_span!("request");
        let _worker = info_span!("worker").entered();
        info_span!(parent: &request, "child").in_scope(|| ());
        enter_elsewhere(info_span!(parent: &request, "there"));
    });
    assert_eq!(around(&trace, "child"), (Some("worker"), Some("worker")));
    assert_eq!(around(&trace, "there"), (None, None));
}

#[test]
fn a_parent_that_is_around_the_span_is_the_caller_even_if_another_thread_entered_it_later() {
    let trace = trace_of(|_| {
        let shared = info_span!("shared");
        let _here = shared.enter();
        enter_elsewhere(shared.clone());
        info_span!(parent: &shared, "child", fields = 1).in_scope(|| ());
    });
    let child = span(&trace, "child");
    assert_eq!(child.caller().unwrap().id(), child.parent().unwrap().id());
}

#[test]
fn a_span_without_others_around_it_works_for_the_one_that_it_was_made_in() {
    let trace = trace_of(|_| {
        let request = info_span!("request").entered();
        let (there, later, nested) = (info_span!("there"), info_span!("later", fields = 1), info_span!("nested"));
        enter_elsewhere(there);
        drop(request);
        later.in_scope(|| ());
        info_span!("other").in_scope(|| nested.in_scope(|| ()));
        info_span!("outside").in_scope(|| ());
    });
    assert_eq!(around(&trace, "there"), (None, Some("request")));
    assert_eq!(around(&trace, "inside"), (Some("there"), Some("there")));
    assert_eq!(around(&trace, "later"), (None, Some("request")));
    assert_eq!(around(&trace, "nested"), (Some("other"), Some("other")));
    assert_eq!((around(&trace, "other"), around(&trace, "outside")), ((None, None), (None, None)));
}

#[test]
fn spans_that_a_filter_hides_are_passed_over() {
    let collected = Collected::new();
    let (layer, profiler) = Profiler::builder().export(collected.clone()).build().unwrap();
    let layer = layer.with_filter(filter_fn(|metadata| metadata.name() != "hidden"));
    with_default(tracing_subscriber::registry().with(layer), || {
        let _request = info_span!("request").entered();
        let _hidden = info_span!("hidden").entered();
        enter_elsewhere(info_span!("there"));
    });
    profiler.finish().unwrap();
    assert_eq!(around(&collected.only(), "there"), (None, Some("request")));
}

#[test]
fn ids_that_the_registry_uses_again_are_not_confused() {
    let program = |_: &Profiler| {
        for turn in 0..20_000_u64 {
            let request = info_span!("request", turn);
            request.in_scope(|| ());
            info_span!(parent: &request, "child", turn).in_scope(|| ());
        }
    };
    let (traces, _) = profiled(|builder| builder.lane_capacity(1 << 18), program);
    assert!(traces[0].losses().is_empty(), "{}", traces[0].losses());
    let children: Vec<_> = traces[0].spans().filter(|span| span.name() == "child").collect();
    assert_eq!(children.len(), 20_000);
    let turn = |span: Span<'_>| span.field("turn").and_then(Value::as_u64);
    assert!(children.into_iter().all(|child| child.parent().is_none() && turn(child) == turn(child.caller().unwrap())));
}

#[test]
fn spans_that_are_open_when_a_window_opens_have_callers() {
    let (traces, _) = profiled(
        |builder| builder.schedule(Schedule::new().wait(1).active(1).repeat(1)),
        |profiler| {
            let request = info_span!("request").entered();
            // One of the threads writes something in the window, the other is silent.
            let threads = ["busy", "silent"].map(|name| {
                let (span, (entered, has_entered), (go_on, may_go_on)) = (info_span!("task"), channel(), channel());
                let enter = move || {
                    let _task = span.enter();
                    entered.send(()).unwrap();
                    while may_go_on.recv().is_ok() {
                        info_span!("piece").in_scope(|| entered.send(()).unwrap());
                    }
                };
                let thread = thread::Builder::new().name(name.to_owned()).spawn(subscribed(enter));
                has_entered.recv().unwrap();
                (thread.unwrap(), go_on, has_entered)
            });
            profiler.step();
            threads[0].1.send(()).unwrap();
            threads[0].2.recv().unwrap();
            profiler.step();
            for (thread, go_on, _) in threads {
                drop(go_on);
                thread.join().unwrap();
            }
            drop(request);
        },
    );
    let tasks: Vec<_> = traces[0].spans().filter(|span| span.name() == "task").collect();
    assert_eq!(tasks.len(), 2);
    assert!(tasks.iter().all(|task| task.parent().is_none() && task.caller().unwrap().name() == "request"));
    assert_eq!(around(&traces[0], "piece"), (Some("task"), Some("task")));
}

#[test]
fn callers_are_known_whichever_thread_began_first() {
    let (traces, _) = profiled(
        |builder| builder.schedule(Schedule::new().wait(1).active(1).repeat(1)),
        |profiler| {
            let ((give, given), (entered, has_entered)) = (channel::<tracing::Span>(), channel());
            let (go_on, may_go_on) = channel::<()>();
            let task = subscribed(move || {
                let task = given.recv().unwrap();
                task.in_scope(|| {
                    entered.send(()).unwrap();
                    assert!(may_go_on.recv().is_err());
                });
            });
            let task = thread::spawn(task);
            let ((end, may_end), (made, is_made)) = (channel::<()>(), channel());
            let request = thread::spawn(subscribed(move || {
                let _request = info_span!("request").entered();
                made.send(info_span!("task")).unwrap();
                assert!(may_end.recv().is_err());
            }));
            give.send(is_made.recv().unwrap()).unwrap();
            has_entered.recv().unwrap();
            profiler.step();
            profiler.step();
            drop((go_on, end));
            task.join().unwrap();
            request.join().unwrap();
        },
    );
    assert_eq!(around(&traces[0], "task"), (None, Some("request")));
    let (task, request) = (span(&traces[0], "task"), span(&traces[0], "request"));
    assert!(task.cut().start && request.cut().start);
}

#[test]
fn spans_that_are_entered_the_wrong_way_round_are_no_circle() {
    let program = |before: bool| {
        let schedule = Schedule::new().wait(u64::from(before)).active(1).repeat(1);
        let (traces, _) = profiled(
            |builder| builder.schedule(schedule),
            |profiler| {
                let outer = info_span!("outer");
                let _inner = info_span!(parent: &outer, "inner").entered();
                let _outer = outer.entered();
                if before {
                    profiler.step();
                }
                info_span!("piece").in_scope(|| ());
            },
        );
        assert_eq!(around(&traces[0], "piece"), (Some("outer"), Some("outer")));
        assert_eq!(around(&traces[0], "outer"), (Some("inner"), Some("inner")));
        assert_eq!(around(&traces[0], "inner"), (None, None));
    };
    program(false);
    program(true);
}

#[test]
fn the_report_says_what_spans_work_for_and_counts_the_time_of_threads() {
    let (_, report) = profiled(
        |builder| builder,
        |_| {
            let task = || info_span!("task");
            for _ in 0..3 {
                // The second is not inside of the task that it works for.
                let _task = task().entered();
                enter_elsewhere(task());
            }
        },
    );
    let rows = report.averages().rows();
    let task = rows.iter().find(|row| row.name == "task").unwrap();
    assert_eq!((task.calls, task.outermost_calls, task.enters), (6, 6, 6));
    let mut stacks: Vec<_> =
        report.averages().group_by_stack(3).rows().into_iter().map(|row| (row.name, row.stack)).collect();
    stacks.sort();
    let stack = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    let expected = [("inside", stack(&["task", "task"])), ("task", stack(&[])), ("task", stack(&["task"]))];
    assert_eq!(stacks, expected.map(|(name, stack)| (name.to_owned(), stack)));
}

#[test]
fn a_span_follows_from_others_whenever_that_is_said() {
    let trace = trace_of(|_| {
        let requests = ["first", "second", "third"].map(|name| info_span!("request", name));
        // The third one is never entered, so the window does not have it.
        requests[..2].iter().for_each(|request| request.in_scope(|| ()));
        let batch = info_span!("batch");
        requests.iter().for_each(|request| _ = batch.follows_from(request));
        // Twice is once.
        batch.follows_from(&requests[0]);
        enter_elsewhere(batch.clone());
        // After the first enter, and by an id.
        batch.follows_from(info_span!("late").in_scope(tracing::Span::current).id());
        enter_elsewhere(batch);
        info_span!("other").in_scope(|| ());
    });
    let causes = |span: kernspan::trace::Span<'_>| -> Vec<String> {
        let name = |cause: kernspan::trace::Span<'_>| match cause.field("name") {
            Some(value) => value.to_string(),
            None => cause.name().to_owned(),
        };
        span.follows_from().map(name).collect()
    };
    let batches: Vec<_> = trace.spans().filter(|span| span.name() == "batch").map(causes).collect();
    assert_eq!(batches, [["first", "second", "late"], ["first", "second", "late"]]);
    assert!(trace.spans().filter(|span| span.name() != "batch").all(|span| span.follows_from().len() == 0));
}
