//! Runs a program with one unusual event, `mishaps EVENT`. Each must end as it would without a profiler, with the
//! printed result.
//!
//! - `fork`: the process forks in a window, and the child ends by itself.
//! - `panic`: the user's code panics in a window and continues.
//! - `exit`: the process exits in a window without finishing.
//! - `drop`: the profiler is dropped in a window.
//! - `client`: another client uses CUPTI already.
//! - `profilers`: there are two profilers at once, and ten one after the other.
//! - `hang`: a kernel is still running when the profiler finishes.

use cupti_sys::{Cupti, Driver};
use gpu_bench::Gpu;
use kernspan::{Collected, Profiler, Schedule, trace::Gpu as State};
use std::time::Instant;
use tracing_subscriber::prelude::*;

fn main() {
    let event = std::env::args().nth(1).unwrap_or_default();
    let gpu = Gpu::new();
    let stream = gpu.stream();
    let work = || {
        tracing::info_span!("work")
            .in_scope(|| (0..100).for_each(|n| gpu.launch(n % 8, 1, 32, &stream).expect("a launch")));
    };
    let profiled = || {
        let collected = Collected::new();
        let (layer, profiler) =
            Profiler::builder().schedule(Schedule::manual()).export(collected.clone()).build().expect("a profiler");
        (layer, profiler, collected)
    };
    match event.as_str() {
        "fork" => fork(&work, &profiled()),
        "panic" => {
            let (layer, profiler, collected) = profiled();
            tracing_subscriber::registry().with(layer).init();
            profiler.start();
            let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                tracing::info_span!("doomed").in_scope(|| {
                    gpu.launch(0, 1, 32, &stream).expect("a launch");
                    panic!("as planned");
                });
            }));
            work();
            profiler.finish().expect("a report");
            println!("panicked: {}, {} kernels", caught.is_err(), collected.only().work().len());
        }
        "exit" => {
            let (layer, profiler, _) = profiled();
            tracing_subscriber::registry().with(layer).init();
            profiler.start();
            work();
            println!("exits in a window");
            std::process::exit(0);
        }
        "drop" => {
            let (layer, profiler, collected) = profiled();
            tracing_subscriber::registry().with(layer).init();
            profiler.start();
            work();
            println!("{}", profiler.gpu());
            drop(profiler);
            let trace = collected.only();
            println!("dropped: {} kernels, {}", trace.work().len(), trace.losses());
        }
        "client" => client(&work),
        "profilers" => {
            let (first, _kept, _) = profiled();
            let (second, other, _) = profiled();
            println!("next to another: {}", other.gpu());
            drop((first, second, other, _kept));
            for _ in 0..10 {
                let (layer, profiler, collected) = profiled();
                tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
                    profiler.start();
                    work();
                    profiler.stop();
                });
                profiler.finish().expect("a report");
                assert_eq!(collected.only().work().len(), 100);
            }
            println!("ten after each other: 100 kernels each");
        }
        "hang" => {
            let (layer, profiler, collected) = profiled();
            tracing_subscriber::registry().with(layer).init();
            profiler.start();
            work();
            // The kernel runs for about fifteen seconds.
            gpu.spin(30_000_000_000, &stream).expect("a launch");
            let start = Instant::now();
            let report = profiler.finish().expect("a report");
            println!(
                "finished after {:?}: {} pieces, {}",
                start.elapsed(),
                collected.only().work().len(),
                report.losses()
            );
        }
        _ => panic!("unknown event {event:?}"),
    }
    println!("ended well");
}

#[allow(unsafe_code, reason = "the system's fork")]
fn fork(work: &dyn Fn(), (_, profiler, collected): &(kernspan::ProfilerLayer, Profiler, Collected)) {
    unsafe extern "C" {
        fn fork() -> i32;
        fn waitpid(pid: i32, status: *mut i32, options: i32) -> i32;
    }
    profiler.start();
    work();
    // SAFETY: the child uses only the calling thread.
    match unsafe { fork() } {
        0 => {
            profiler.step();
            profiler.stop();
            println!("the child goes on: {}", profiler.gpu());
            std::process::exit(0);
        }
        child => {
            let mut status = -1;
            // SAFETY: `waitpid` writes one number.
            unsafe { waitpid(child, &mut status, 0) };
            work();
            profiler.stop();
            std::thread::sleep(std::time::Duration::from_millis(300));
            println!("the child ended with {status}; {} kernels in the parent", collected.only().work().len());
        }
    }
}

#[allow(unsafe_code, reason = "CUPTI is a C library")]
fn client(work: &dyn Fn()) {
    unsafe extern "C" fn called(_: *mut std::ffi::c_void, _: u32, _: u32, _: *const std::ffi::c_void) {}
    let cupti = Cupti::find(Driver::load().expect("a driver")).expect("CUPTI");
    // SAFETY: the callback does nothing.
    let subscriber = unsafe { cupti.subscribe(called, std::ptr::null_mut()) }.expect("CUPTI");
    let (layer, profiler) = Profiler::builder().build().expect("a profiler");
    tracing_subscriber::registry().with(layer).init();
    work();
    assert!(matches!(profiler.gpu(), State::Unavailable(_)));
    println!("{}", profiler.finish().expect("a report"));
    cupti.unsubscribe(subscriber).expect("CUPTI");
}
