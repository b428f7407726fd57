//! What happens when: launches at the edges of windows, work that comes back late or never, one profiler after another.
//!
//! No recording can show this, and CI has no GPU, so here a driver and a CUPTI made by a C compiler stand in; what they write is
//! little, and when they write it is up to the test. On a GPU, `benches/gpu` does the same with the real ones.

#![cfg(all(feature = "cuda", target_os = "linux"))]

mod support;

use kernspan::{Collected, Profiler, Schedule};
use std::{
    ffi::{CStr, OsStr, c_char, c_int, c_void},
    path::Path,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    time::Duration,
};
use support::{child, cupti};
use tracing::info_span;
use tracing_subscriber::prelude::*;

/// What the library is told to do.
#[derive(Clone, Copy)]
struct Fake {
    call: unsafe extern "C" fn(c_int) -> u32,
    record: unsafe extern "C" fn(c_int, u32),
    finalized: unsafe extern "C" fn() -> c_int,
}

#[allow(unsafe_code, reason = "the library is in C")]
impl Fake {
    fn load(path: &OsStr) -> Self {
        unsafe extern "C" {
            fn dlopen(path: *const c_char, flags: c_int) -> *mut c_void;
            fn dlsym(library: *mut c_void, name: *const c_char) -> *mut c_void;
        }
        let path = std::ffi::CString::new(path.to_str().unwrap()).unwrap();
        // SAFETY: it is a library of ours.
        let library = unsafe { dlopen(path.as_ptr(), 2) };
        assert!(!library.is_null());
        let function = |name: &CStr| {
            // SAFETY: as above.
            let function = unsafe { dlsym(library, name.as_ptr()) };
            assert!(!function.is_null());
            function
        };
        // SAFETY: these are their types.
        unsafe {
            Self {
                call: std::mem::transmute::<*mut c_void, unsafe extern "C" fn(c_int) -> u32>(function(c"fake_call")),
                record: std::mem::transmute::<*mut c_void, unsafe extern "C" fn(c_int, u32)>(function(c"fake_record")),
                finalized: std::mem::transmute::<*mut c_void, unsafe extern "C" fn() -> c_int>(function(
                    c"fake_finalized",
                )),
            }
        }
    }

    fn call(self, copies: bool) -> u32 {
        // SAFETY: it takes a number.
        unsafe { (self.call)(copies.into()) }
    }

    fn record(self, copies: bool, number: u32) {
        // SAFETY: it takes numbers.
        unsafe { (self.record)(copies.into(), number) }
    }

    fn launch(self) {
        self.record(false, self.call(false));
    }

    fn finalized(self) -> i32 {
        // SAFETY: it takes nothing.
        unsafe { (self.finalized)() }
    }
}

const PROGRAM: &str = "KERNSPAN_TEST_PROGRAM";

/// Runs a program beside the stand-ins.
fn run(program: &str) {
    let folder = tempfile::tempdir().unwrap();
    let source = include_str!("support/cupti.c");
    if !cupti::make_driver(folder.path(), source) {
        return;
    }
    // One library is both.
    let library = folder.path().join("libcuda.so.1");
    let path: &Path = folder.path();
    let variables = [
        ("LD_LIBRARY_PATH", path.as_os_str()),
        ("KERNSPAN_CUPTI", library.as_os_str()),
        (PROGRAM, OsStr::new(program)),
    ];
    child::run("programs", &variables);
}

/// The programs, each of which has a process of its own: without one to run, there is nothing to do.
#[test]
fn programs() {
    let Some(library) = std::env::var_os("KERNSPAN_CUPTI").filter(|_| std::env::var_os(PROGRAM).is_some()) else {
        return;
    };
    let fake = Fake::load(&library);
    match std::env::var(PROGRAM).unwrap().as_str() {
        "back to back" => back_to_back(fake),
        "late" => late(fake),
        "never" => never(fake),
        "again" => again(fake),
        program => panic!("no program {program}"),
    }
}

#[test]
fn no_launch_is_lost_between_windows_that_follow_each_other() {
    run("back to back");
}

fn back_to_back(fake: Fake) {
    let collected = Collected::new();
    let builder = Profiler::builder().schedule(Schedule::new().active(1)).export(collected.clone());
    let (layer, profiler) = builder.build().unwrap();
    assert!(profiler.gpu().is_available(), "{}", profiler.gpu());
    tracing_subscriber::registry().with(layer).init();
    let (stop, made) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    info_span!("work").in_scope(|| fake.launch());
                    made.fetch_add(1, Ordering::Relaxed);
                    (0..200).for_each(|_| std::hint::spin_loop());
                }
            });
        }
        for _ in 0..600 {
            std::thread::sleep(Duration::from_micros(200));
            profiler.step();
        }
        stop.store(true, Ordering::Relaxed);
    });
    let report = profiler.finish().unwrap();
    let (made, losses) = (made.into_inner(), report.losses());
    let calls: u64 = collected.traces().iter().map(|trace| trace.api_calls().len() as u64).sum();
    let attributions = report.attributions();
    println!("{made} made, {calls} calls, {attributions:?}, {losses}");
    // A thread that is suspended for longer than the collector waits is late with its call or its span, and that is counted.
    assert!(calls <= made && made <= calls + losses.late);
    let with_call = |trace: &kernspan::Trace| trace.work().filter(|work| work.call().is_some()).count() as u64;
    assert_eq!(collected.traces().iter().map(|trace| with_call(trace)).sum::<u64>(), calls);
    assert_eq!((losses.gpu_unfinished, losses.gpu_unreadable), (0, 0));
}

#[test]
fn what_comes_back_late_is_waited_for() {
    run("late");
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
    for (copies, number) in numbers {
        std::thread::sleep(Duration::from_millis(100));
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
    run("never");
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
    // CUPTI is not let go, which would be to wait for ever, but is there for the next.
    assert_eq!(fake.finalized(), 0);
    again(fake);
}

#[test]
fn one_profiler_may_follow_another() {
    run("again");
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
