//! Children that are forked while a window is open: they go on without the profiler, and their parent is sampled.

#![allow(unsafe_code, reason = "there is no other way to fork")]

use super::{compute, cpu_time, frame, is_sampled, support::child};
use kernspan::{Activity, Collected, Profiler, Samples, trace::ThreadId};
use rustix::process::{Pid, WaitOptions, waitpid};
use std::{process::exit, thread, time::Duration};
use tracing::{info_span, subscriber::with_default};
use tracing_subscriber::prelude::*;

const FORKS: usize = 20;

#[inline(never)]
fn before_or_after() {
    busy(Duration::from_millis(20));
}

#[inline(never)]
fn in_the_child() {
    busy(Duration::from_millis(30));
}

fn busy(duration: Duration) {
    let until = cpu_time() + duration;
    while cpu_time() < until {
        compute();
    }
}

#[test]
fn children_run_to_their_ends_and_only_their_parent_is_sampled() {
    child::alone("forks::children_run_to_their_ends_and_only_their_parent_is_sampled", || {
        let collected = Collected::new();
        let builder = Profiler::builder().activities([Activity::Host]).samples(Samples::default().hertz(999));
        let (layer, profiler) = builder.export(collected.clone()).build().unwrap();
        let mut profiler = Some(profiler);
        let mut children = Vec::new();
        with_default(tracing_subscriber::registry().with(layer), || {
            // At moments at which the sampling thread may be doing anything.
            for _ in 0..FORKS {
                info_span!("parent").in_scope(before_or_after);
                // SAFETY: the child runs the code below, and has no other threads.
                let process = unsafe { libc::fork() };
                if process == 0 {
                    // SAFETY: it takes no pointers. A child that hangs ends with its parent.
                    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
                    info_span!("child").in_scope(in_the_child);
                    thread::sleep(Duration::from_millis(1));
                    let profiler = profiler.take().unwrap();
                    profiler.step();
                    profiler.finish().unwrap();
                    exit(7);
                }
                children.push(Pid::from_raw(process).unwrap());
            }
        });
        // Hangs if a child does, until this process is killed.
        for child in &children {
            let (_, status) = waitpid(Some(*child), WaitOptions::empty()).unwrap().unwrap();
            assert_eq!(status.exit_status(), Some(7), "{status:?}");
        }
        profiler.take().unwrap().finish().unwrap();
        let trace = collected.only();
        assert!(trace.spans().all(|span| span.name() == "parent"));
        if is_sampled(&trace) {
            let samples = |function| trace.stack_samples().filter(|sample| frame(*sample, function).is_some()).count();
            assert_eq!(samples("in_the_child"), 0);
            // The parent has run for 400 ms.
            assert!(samples("before_or_after") > 200, "{}", samples("before_or_after"));
            let is_child = |thread: ThreadId| {
                children.iter().any(|child| u64::from(child.as_raw_pid().unsigned_abs()) == thread.as_u64())
            };
            assert!(!trace.stack_samples().any(|sample| is_child(sample.track().thread())));
        }
    });
}
