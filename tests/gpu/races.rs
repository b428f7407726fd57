//! Tests of timing: launches while windows open and close, work that comes back late or never, one profiler after
//! another.
//!
//! No recording can show this, and CI has no GPU, so a fake driver and a fake CUPTI, compiled from C, stand in. A test
//! decides when they write records. `benches/gpu` does the same on a GPU, with the real ones.

use crate::{
    fake::{self, Fake},
    support::{PATIENCE, eventually},
};
use kernspan::{Collected, Profiler, Schedule, Trace, analysis::Analysis};
use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};
use tracing::info_span;
use tracing_subscriber::prelude::*;

/// This is not a test but the programs that the others run, each in a process of its own.
#[test]
fn programs() {
    let Some((fake, program)) = Fake::program() else { return };
    match program.as_str() {
        "back to back" => back_to_back(fake),
        "late" => late(fake),
        "never" => never(fake),
        "again" => again(fake),
        "incomplete" => incomplete(fake),
        "ambiguous" => ambiguous(fake),
        "suspended" => suspended(fake),
        "waits of 0 steps" => many_windows(fake, 0, false),
        "waits of 1 step" => many_windows(fake, 1, false),
        "waits of 12 steps" => many_windows(fake, 12, false),
        "detached in each wait" => many_windows(fake, 12, true),
        program => panic!("no program {program}"),
    }
}

#[test]
fn no_launch_is_lost_between_windows_that_follow_each_other() {
    fake::run("races::programs", "back to back");
}

fn back_to_back(fake: Fake) {
    let collected = Collected::new();
    let builder = Profiler::builder().schedule(Schedule::new().active(1)).export(collected.clone());
    let (layer, profiler) = builder.build().unwrap();
    assert!(profiler.gpu().is_available(), "{}", profiler.gpu());
    tracing_subscriber::registry().with(layer).init();
    const THREADS: u64 = 3;
    const LAUNCHES: u64 = 16 * THREADS;
    let (stop, made) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    info_span!("work").in_scope(|| fake.launch());
                    made.fetch_add(1, Ordering::Relaxed);
                    (0..200).for_each(|_| std::hint::spin_loop());
                }
            });
        }
        for _ in 0..600 {
            // The other threads launch meanwhile, however slowly.
            let (begin, enough) = (Instant::now(), made.load(Ordering::Relaxed) + LAUNCHES);
            while made.load(Ordering::Relaxed) < enough {
                assert!(begin.elapsed() < PATIENCE);
                std::thread::sleep(Duration::from_micros(50));
            }
            profiler.step();
        }
        stop.store(true, Ordering::Relaxed);
    });
    let report = profiler.finish().unwrap();
    let (made, losses) = (made.into_inner(), report.losses());
    let calls: u64 = collected.traces().iter().map(|trace| trace.api_calls().len() as u64).sum();
    let attributions = report.attributions();
    println!("{made} made, {calls} calls, {attributions:?}, {losses}");
    // A thread that is suspended for longer than the collector waits is late with its call or its span, and that is
    // counted.
    assert!(calls <= made && made <= calls + losses.late);
    // A thread may be late with the one launch that it makes while a window closes, of sixteen.
    let windows = collected.traces().len() as u64;
    assert!(made >= LAUNCHES * (windows - 1) && made - calls <= THREADS * windows, "{made} {calls} {windows}");
    let with_call = |trace: &kernspan::Trace| trace.work().filter(|work| work.call().is_some()).count() as u64;
    assert_eq!(collected.traces().iter().map(|trace| with_call(trace)).sum::<u64>(), calls);
    assert_eq!((losses.gpu_unfinished, losses.gpu_unreadable), (0, 0));
}

#[test]
fn what_comes_back_late_is_waited_for() {
    fake::run("races::programs", "late");
}

fn late(fake: Fake) {
    let collected = Collected::new();
    let builder = Profiler::builder().schedule(Schedule::manual()).export(collected.clone());
    let (layer, profiler) = builder.detach_after(Duration::ZERO).build().unwrap();
    tracing_subscriber::registry().with(layer).init();
    profiler.start();
    let numbers = info_span!("work").in_scope(|| [(false, fake.call(false)), (true, fake.call(true))]);
    fake.launch();
    profiler.stop();
    // The record of the kernel comes last, since a window does not wait long for a copy alone.
    for (copies, number) in numbers.into_iter().rev() {
        let before = fake.flushed();
        eventually("flushes that find nothing", || (fake.flushed() > before + 2).then_some(()));
        fake.record(copies, number);
    }
    let report = profiler.finish().unwrap();
    assert!(report.losses().is_empty(), "{}", report.losses());
    let trace = collected.only();
    assert_eq!((trace.work().len(), trace.api_calls().len()), (3, 3));
    assert_eq!(trace.work().filter(|work| work.span().is_some()).count(), 2);
    assert_eq!(fake.finalized(), 1);
}

#[test]
fn what_never_comes_back_is_given_up_and_counted() {
    fake::run("races::programs", "never");
}

fn never(fake: Fake) {
    let collected = Collected::new();
    let builder = Profiler::builder().schedule(Schedule::new().active(1)).export(collected.clone());
    let (layer, profiler) = builder.build().unwrap();
    tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
        for _ in 0..3 {
            fake.launch();
            fake.call(false);
            profiler.step();
        }
    });
    let report = profiler.finish().unwrap();
    assert_eq!((report.losses().gpu_unfinished, report.losses().total()), (3, 3));
    assert_eq!(collected.traces().iter().map(|trace| trace.work().len()).sum::<usize>(), 3);
    // CUPTI is not detached, which would wait for ever, and the next profiler can use it.
    assert_eq!(fake.finalized(), 0);
    again(fake);
}

#[test]
fn one_profiler_may_follow_another() {
    fake::run("races::programs", "again");
}

fn again(fake: Fake) {
    for _ in 0..10 {
        let collected = Collected::new();
        let (layer, profiler) = Profiler::builder().export(collected.clone()).build().unwrap();
        assert!(profiler.gpu().is_available(), "{}", profiler.gpu());
        tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || fake.launch());
        let report = profiler.finish().unwrap();
        assert!(report.losses().is_empty() && report.gpu().is_available(), "{report}");
        assert_eq!(collected.only().work().len(), 1);
    }
}

#[test]
fn every_window_holds_what_was_launched_in_it_without_waits() {
    fake::run("races::programs", "waits of 0 steps");
}

#[test]
fn every_window_holds_what_was_launched_in_it_with_short_waits() {
    fake::run("races::programs", "waits of 1 step");
}

#[test]
fn every_window_holds_what_was_launched_in_it_with_longer_waits() {
    fake::run("races::programs", "waits of 12 steps");
}

#[test]
fn every_window_holds_what_was_launched_in_it_if_cupti_is_detached() {
    fake::run("races::programs", "detached in each wait");
}

/// Trains as users do: four threads launch in windows and in waits, without sleeping between steps.
fn many_windows(fake: Fake, wait: u64, detaches: bool) {
    // A machine that is not busy needs a fraction of the time for this many.
    const WINDOWS: u64 = 150;
    const AT_MOST: Duration = Duration::from_secs(20);
    const ACTIVE: u64 = 2;
    const LAUNCHES: u64 = 40;
    let wrong = Arc::new(Mutex::new(Vec::new()));
    let (found, checked) = (Arc::clone(&wrong), Arc::new(AtomicU64::new(0)));
    let counted = Arc::clone(&checked);
    let check = move |trace: &Analysis<'_>| {
        counted.fetch_add(1, Ordering::Relaxed);
        found.lock().unwrap().extend(wrong_step(trace, ACTIVE, LAUNCHES));
    };
    let schedule = Schedule::new().wait(wait).warmup(1).active(ACTIVE);
    // The default is too short: on a busy machine, a wait of some steps may take longer.
    let idle = if detaches { Duration::ZERO } else { Duration::from_secs(3600) };
    let builder = Profiler::builder().schedule(schedule).on_trace(check).detach_after(idle);
    let (layer, profiler) = builder.build().unwrap();
    tracing_subscriber::registry().with(layer).init();
    let step = |name| {
        let until = Instant::now() + Duration::from_micros(400);
        let launch = || (0..LAUNCHES).for_each(|_| fake.launch());
        if name == "main" {
            info_span!("main").in_scope(launch);
        } else {
            info_span!("beside").in_scope(launch);
        }
        while Instant::now() < until {
            std::thread::yield_now();
        }
    };
    let (over, start, mut windows, mut off) = (AtomicBool::new(false), Instant::now(), 0, 0);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    step("beside");
                }
            });
        }
        while windows < 2 || windows < WINDOWS && start.elapsed() < AT_MOST {
            for number in 0..wait + 1 + ACTIVE {
                step("main");
                profiler.step();
                if number + 2 == wait && windows == 1 {
                    eventually("a wait without recording", || (!fake.is_recording()).then_some(()));
                }
                off += u64::from(number + 2 == wait && !fake.is_recording());
            }
            windows += 1;
        }
        over.store(true, Ordering::Relaxed);
    });
    let report = profiler.finish().unwrap();
    let losses = report.losses();
    println!(
        "{windows} windows, {} kernels, {losses}, detached {} times, off in {off} waits",
        report.gpu_work(),
        fake.finalized()
    );
    let wrong = std::mem::take(&mut *wrong.lock().unwrap());
    assert!(wrong.is_empty(), "{} of {windows} windows: {:?}", wrong.len(), &wrong[..wrong.len().min(5)]);
    assert_eq!(checked.load(Ordering::Relaxed), windows);
    // A thread that is suspended for longer than the collector waits is late with its call or its span, and that is
    // counted.
    assert_eq!(losses.total(), losses.late, "{losses}");
    // Counted after the last but one step of a wait, since CUPTI is prepared for the next window after the last.
    assert_eq!(off > 0, wait > 1, "recording was off in {off} waits");
    assert!(!fake.is_recording());
    // CUPTI is detached once at the end in any case.
    assert_eq!(fake.finalized() > 1, detaches);
}

/// Returns a description of a step that does not hold what was launched in it, if there is one.
fn wrong_step(trace: &Trace, active: u64, launches: u64) -> Option<String> {
    let whole = trace.spans().filter(|span| !span.cut().any() && matches!(span.name(), "main" | "beside"));
    let mut held: HashMap<_, u64> = whole.map(|span| (span.id(), 0)).collect();
    for work in trace.work() {
        if let Some(count) = work.span().and_then(|span| held.get_mut(&span.id())) {
            *count += 1;
        }
    }
    let late = trace.losses().late > 0;
    let is_main = |id| trace.span(id).name() == "main";
    let steps = held.keys().filter(|id| is_main(**id)).count() as u64;
    let wrong = held.iter().find(|(id, count)| **count != launches && (is_main(**id) || !late));
    let wrong = wrong.map(|(id, count)| format!("{} of {count} kernels", trace.span(*id).name()));
    let wrong = wrong.or_else(|| (steps != active).then(|| format!("{steps} steps")));
    wrong.map(|wrong| format!("window {}: {wrong}; {}", trace.window(), trace.losses()))
}

#[test]
fn a_window_that_cannot_complete_harms_no_other() {
    fake::run("races::programs", "incomplete");
}

fn incomplete(fake: Fake) {
    let collected = Collected::new();
    let schedule = Schedule::new().wait(1).active(1).repeat(3);
    let (layer, profiler) = Profiler::builder().schedule(schedule).export(collected.clone()).build().unwrap();
    tracing_subscriber::registry().with(layer).init();
    for step in 0..6 {
        if step == 3 {
            fake.call(false);
        }
        info_span!("step").in_scope(|| (0..5).for_each(|_| fake.launch()));
        profiler.step();
        // Recording ends all the same, while the program goes on launching.
        while step % 2 == 1 && fake.is_recording() {
            fake.launch();
            std::thread::yield_now();
        }
    }
    let report = profiler.finish().unwrap();
    assert_eq!(work_by_window(&collected), [5, 5, 5]);
    assert_eq!((report.losses().gpu_unfinished, report.losses().total()), (1, 1));
    assert!(report.to_string().contains("\nwindow 1 is incomplete: 1 kernel never came back\n"), "{report}");
}

fn work_by_window(collected: &Collected) -> Vec<usize> {
    collected.traces().iter().map(|trace| trace.work().len()).collect()
}

#[test]
fn a_window_whose_launches_share_a_correlation_takes_nothing_of_the_next() {
    fake::run("races::programs", "ambiguous");
}

fn ambiguous(fake: Fake) {
    let collected = Collected::new();
    let builder = Profiler::builder().schedule(Schedule::manual()).export(collected.clone());
    let (layer, profiler) = builder.detach_after(Duration::from_secs(3600)).build().unwrap();
    tracing_subscriber::registry().with(layer).init();
    for window in 0..3 {
        assert_eq!(fake.finalized(), i32::from(window == 2));
        profiler.start();
        if window == 1 {
            fake.make_ambiguous();
        }
        info_span!("step").in_scope(|| (0..5).for_each(|_| fake.launch()));
        profiler.stop();
        if window == 1 {
            // When CUPTI is attached again, it counts correlation ids from the start.
            eventually("CUPTI detached at once", || (fake.finalized() > 0).then_some(()));
        }
    }
    let report = profiler.finish().unwrap();
    assert_eq!(work_by_window(&collected), [5, 0, 5]);
    assert_eq!((report.losses().gpu_unfinished, report.losses().total()), (5, 5));
}

#[test]
fn kernels_launched_before_a_window_are_not_in_it_though_a_thread_was_suspended() {
    fake::run("races::programs", "suspended");
}

fn suspended(fake: Fake) {
    let collected = Collected::new();
    let schedule = Schedule::new().wait(1).warmup(1).active(1).repeat(1);
    let (layer, profiler) = Profiler::builder().schedule(schedule).export(collected.clone()).build().unwrap();
    tracing_subscriber::registry().with(layer).init();
    profiler.step();
    fake.suspend();
    let before = std::thread::spawn(move || [(); 3].map(|()| fake.call(false))).join().unwrap();
    profiler.step();
    // The call with the lowest correlation id is made in the window, in which the kernels of the earlier calls run.
    info_span!("step").in_scope(|| {
        fake.launch();
        before.into_iter().for_each(|number| fake.record(false, number));
        fake.launch();
    });
    profiler.step();
    let report = profiler.finish().unwrap();
    assert_eq!((collected.only().work().len(), report.attributions().unattributed), (2, 0));
    assert!(report.losses().is_empty(), "{}", report.losses());
}
