//! The cost of an allocation and its free: by the system's allocator, with `kernspan::Allocator` on top of it while no
//! profiler counts, and while one does.
//!
//! ```text
//! cargo run --release -p compare --bin heap
//! ```
//!
//! Prints nanoseconds for one allocation and one free, the least of many rounds in turns, with one thread and with two.

use kernspan::{Activity, Allocator, Profiler};
use std::{
    alloc::{GlobalAlloc, Layout, System},
    hint::black_box,
    thread,
    time::Instant,
};

#[global_allocator]
static ALLOCATOR: Allocator = Allocator::system();

const ROUNDS: usize = 200;
const PAIRS: usize = 20_000;

fn main() -> Result<(), kernspan::Error> {
    println!("{:<10}{:>10}{:>12}{:>10}{:>12}{:>10}", "bytes", "system", "not counted", "more", "counted", "more");
    for threads in [1, 2] {
        println!("with {threads} thread{}", if threads == 1 { "" } else { "s" });
        for bytes in [16, 256, 4096] {
            let mut least = [f64::INFINITY; 3];
            for _ in 0..ROUNDS {
                least[0] = least[0].min(measure(&System, bytes, threads));
                least[1] = least[1].min(measure(&ALLOCATOR, bytes, threads));
            }
            // No window is open, as in most steps of a training.
            let builder = Profiler::builder().activities([Activity::Heap]);
            let (_layer, profiler) = builder.schedule(kernspan::Schedule::manual()).build()?;
            for _ in 0..ROUNDS {
                least[0] = least[0].min(measure(&System, bytes, threads));
                least[2] = least[2].min(measure(&ALLOCATOR, bytes, threads));
            }
            profiler.finish()?;
            let [system, off, counted] = least;
            println!(
                "{bytes:<10}{system:>10.1}{off:>12.1}{:>10.1}{counted:>12.1}{:>10.1}",
                off - system,
                counted - system
            );
        }
    }
    Ok(())
}

/// Returns the mean nanoseconds of an allocation and its free, on the slowest of so many threads.
fn measure(allocator: &(impl GlobalAlloc + Sync), bytes: usize, threads: usize) -> f64 {
    let Ok(layout) = Layout::from_size_align(bytes, 8) else { return f64::INFINITY };
    let run = || {
        let start = Instant::now();
        for _ in 0..PAIRS {
            pair(allocator, layout);
        }
        start.elapsed().as_nanos() as f64 / PAIRS as f64
    };
    if threads == 1 {
        return run();
    }
    let slowest = |times: Vec<f64>| times.into_iter().fold(0.0, f64::max);
    thread::scope(|scope| {
        let running: Vec<_> = (0..threads).map(|_| scope.spawn(run)).collect();
        slowest(running.into_iter().map(|thread| thread.join().unwrap_or(f64::INFINITY)).collect())
    })
}

#[allow(unsafe_code, reason = "allocators are unsafe to call")]
#[inline(never)]
fn pair(allocator: &impl GlobalAlloc, layout: Layout) {
    // SAFETY: the layout is not empty, and what was allocated is freed with the same one.
    unsafe {
        let address = black_box(allocator.alloc(layout));
        if !address.is_null() {
            allocator.dealloc(address, layout);
        }
    }
}
