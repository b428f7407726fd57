//! Waits of threads, and what sampling costs while nothing is recorded.

use super::{alone, compute, cpu_time, frame, is_sampled, record, support::eventually};
use kernspan::{
    Activity, Collected, Profiler, Samples, Schedule,
    trace::{Span, StackSample},
};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::{fs, thread, time::Duration};
use tracing::{info_span, subscriber::with_default};
use tracing_subscriber::prelude::*;

/// In place of the stack of a thread that could run, while others did.
const PREEMPTED: &str = "[preempted]";

#[inline(never)]
fn sleep_here(duration: Duration) {
    thread::sleep(duration);
    std::hint::black_box(duration);
}

#[test]
fn a_wait_has_its_duration_its_span_and_its_stack() {
    let trace = record(Samples::default(), || {
        // Until the events are open.
        let start = cpu_time();
        while cpu_time() < start + Duration::from_millis(50) {
            compute();
        }
        for _ in 0..10 {
            info_span!("pause").in_scope(|| sleep_here(Duration::from_millis(20)));
        }
    });
    if !is_sampled(&trace) {
        return;
    }
    let in_pause = |name: Option<&str>| name == Some("pause");
    let waits: Vec<_> = trace
        .stack_samples()
        .filter(|sample| sample.is_waiting() && in_pause(sample.span().map(Span::name)))
        .filter(|sample| sample.duration() > Duration::from_millis(15) && frame(*sample, PREEMPTED).is_none())
        .collect();
    // Another process may have interrupted one.
    assert!((9..=10).contains(&waits.len()), "{}", waits.len());
    for wait in &waits {
        let span = wait.span().unwrap();
        assert!(span.start() <= wait.at() && wait.duration() <= span.duration());
    }
    if trace.stack_sampling().unwrap().problem().is_none() {
        // On a busy machine, stacks of preemption may have taken the room of some.
        let with_stack: Vec<_> = waits.iter().filter(|wait| wait.stack().next().is_some()).collect();
        assert!(2 * with_stack.len() >= waits.len(), "{} of {}", with_stack.len(), waits.len());
        assert!(with_stack.iter().all(|wait| frame(**wait, "sleep_here").is_some()));
    }
}

#[test]
fn a_thread_that_could_run_is_not_waiting_for_anything() {
    let trace = record(Samples::default(), || {
        // Threads of the same core take turns.
        let core = sched_getaffinity(None).unwrap();
        let mut first = CpuSet::new();
        first.set((0..CpuSet::MAX_CPU).find(|&cpu| core.is_set(cpu)).unwrap());
        let busy = || {
            sched_setaffinity(None, &first).unwrap();
            let until = cpu_time() + Duration::from_millis(500);
            while cpu_time() < until {
                compute();
            }
        };
        thread::scope(|scope| {
            for name in ["busy", "also-busy"] {
                thread::Builder::new().name(name.to_owned()).spawn_scoped(scope, busy).unwrap();
            }
        });
    });
    if !is_sampled(&trace) {
        return;
    }
    for name in ["busy", "also-busy"] {
        let of_thread = trace.stack_samples().filter(|sample| sample.track().thread_name() == name);
        let ready: Duration = of_thread
            .filter(|sample| sample.is_waiting() && frame(*sample, PREEMPTED).is_some())
            .map(StackSample::duration)
            .sum();
        // Whichever begins first has no one to wait for until the other does, and the other none after it.
        assert!(ready > Duration::from_millis(100), "{name}: {ready:?}");
    }
}

#[test]
fn waits_can_be_left_out() {
    let trace = record(Samples::default().waits(false).hertz(999), || {
        let start = cpu_time();
        while cpu_time() < start + Duration::from_millis(200) {
            compute();
        }
        thread::sleep(Duration::from_millis(20));
    });
    if is_sampled(&trace) {
        assert!(trace.stack_samples().count() > 50);
        assert!(trace.stack_samples().all(|sample| !sample.is_waiting()));
    }
}

/// Returns how often the sampling thread has waited so far, and the number of the process's events.
fn wakeups_and_events() -> (u64, usize) {
    // A new thread has no name for a moment.
    let status = eventually("the thread is there", || {
        fs::read_dir("/proc/self/task").unwrap().find_map(|thread| {
            let status = fs::read_to_string(thread.unwrap().path().join("status")).ok()?;
            status.starts_with("Name:\tkernspan-sample").then_some(status)
        })
    });
    let wakeups = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:")).unwrap();
    let files = fs::read_dir("/proc/self/fd").unwrap().filter_map(|file| fs::read_link(file.unwrap().path()).ok());
    (wakeups.trim().parse().unwrap(), files.filter(|file| file.to_string_lossy().contains("perf_event")).count())
}

#[test]
fn nothing_happens_between_windows() {
    let _alone = alone();
    let collected = Collected::new();
    let builder = Profiler::builder().activities([Activity::Host, Activity::Samples]).export(collected.clone());
    let (layer, profiler) = builder.schedule(Schedule::new().wait(1).warmup(1).active(1)).build().unwrap();
    // Waits until the thread does nothing for a while, as its last work may take until after the events are closed. In
    // a window, it wakes a hundred times a second.
    let events_when_idle = || {
        eventually("the thread is idle", || {
            let before = wakeups_and_events();
            thread::sleep(Duration::from_millis(300));
            (wakeups_and_events() == before).then_some(before.1)
        })
    };
    let closed = || eventually("events are closed", || (wakeups_and_events().1 == 0).then_some(()));
    let mut prepared = 0;
    with_default(tracing_subscriber::registry().with(layer), || {
        assert_eq!(events_when_idle(), 0);
        profiler.step();
        // Events are opened in the warm-up, and do nothing until the window opens.
        thread::sleep(Duration::from_millis(100));
        prepared = events_when_idle();
        profiler.step();
        let before = wakeups_and_events().0;
        eventually("rings are read", || (wakeups_and_events().0 > before + 5).then_some(()));
        profiler.step();
        closed();
        assert_eq!(events_when_idle(), 0);
    });
    profiler.finish().unwrap();
    assert!(prepared > 0 || !is_sampled(&collected.only()));
}
