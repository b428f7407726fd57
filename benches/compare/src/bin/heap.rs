//! The cost of an allocation and its free: by the system's allocator, with `kernspan::Allocator` on top of it, and with
//! those of other heap profilers.
//!
//! ```text
//! cargo run --release -p compare --bin heap
//! ```
//!
//! Prints nanoseconds for one allocation and one free, the least of many rounds in turns, what that adds to the
//! system's, and how many times what `kernspan::Allocator` adds while it counts. A program has one global allocator, so
//! all of them are called directly.

#[path = "../../../support/mod.rs"]
mod support;

use hotpath::{CountingAllocator, Format, HotpathGuardBuilder};
use kernspan::{Activity, Allocator, Profiler, Schedule};
use stats_alloc::StatsAlloc;
use std::{
    alloc::{GlobalAlloc, Layout, System},
    hint::black_box,
    sync::Barrier,
    thread,
    time::Instant,
};

#[global_allocator]
static ALLOCATOR: Allocator = Allocator::system();
static STATS_ALLOC: StatsAlloc<System> = StatsAlloc::system();
static HOTPATH: CountingAllocator = CountingAllocator::new();
static DHAT: dhat::Alloc = dhat::Alloc;

/// An allocator under test.
struct Contender {
    name: &'static str,
    /// Takes the time of so many pairs.
    run: fn(Layout, usize) -> f64,
    pairs: usize,
    /// Whether the pairs are in a window of the profiler.
    in_window: bool,
}

const ROUNDS: u32 = 200;
const PAIRS: usize = 20_000;
const SYSTEM: Contender =
    Contender { name: "system", run: |layout, pairs| time(&System, layout, pairs), pairs: PAIRS, in_window: false };
const OURS: Contender =
    Contender { name: "", run: |layout, pairs| time(&ALLOCATOR, layout, pairs), pairs: PAIRS, in_window: false };
const HEADING: [&str; 3] = ["16 bytes", "256 bytes", "4096 bytes"];

fn main() -> Result<(), kernspan::Error> {
    // Without it, hotpath counts only the allocations of functions, and no frees. Its threads are idle.
    let _hotpath = HotpathGuardBuilder::new("heap").format(Format::None).build();
    println!("ns of an allocation and its free; added to the system's; times what kernspan adds while it counts\n");
    println!("{:<34}{:>22}{:>24}{:>24}", "", HEADING[0], HEADING[1], HEADING[2]);
    for (threads, title) in [(1, "one thread"), (2, "two threads"), (2, "two threads after 255 others")] {
        if title.contains("others") {
            (0..256).for_each(|_| drop(thread::spawn(|| black_box(Box::new(0))).join()));
        }
        println!("{title}");
        let mut rows: Vec<(&str, Vec<f64>)> = Vec::new();
        for bytes in [16, 256, 4096] {
            let Ok(layout) = Layout::from_size_align(bytes, 8) else { continue };
            for (name, nanos) in all(layout, threads)? {
                match rows.iter_mut().find(|(known, _)| *known == name) {
                    Some((_, least)) => least.push(nanos),
                    None => rows.push((name, vec![nanos])),
                }
            }
        }
        let of = |name: &str| rows.iter().find(|row| row.0 == name).map(|row| row.1.clone()).unwrap_or_default();
        let (system, ours) = (of("system"), of("kernspan, counting"));
        for (name, least) in &rows {
            print!("  {name:<30}");
            for ((nanos, system), ours) in least.iter().zip(&system).zip(&ours) {
                print!("{nanos:>9.1} {:>+7.1} {:>5.2}x", nanos - system, (nanos - system) / (ours - system));
            }
            println!();
        }
    }
    Ok(())
}

/// Returns the least time of each contender, by name.
fn all(layout: Layout, threads: usize) -> Result<Vec<(&'static str, f64)>, kernspan::Error> {
    let (rounds, few) = (support::rounds(ROUNDS), support::rounds(20));
    let named = |name| Contender { name, ..OURS };
    let peers = || {
        [
            Contender { name: "stats_alloc", run: |layout, pairs| time(&STATS_ALLOC, layout, pairs), ..SYSTEM },
            Contender { name: "hotpath", run: |layout, pairs| time(&HOTPATH, layout, pairs), ..SYSTEM },
        ]
    };
    let [stats_alloc, hotpath] = peers();
    let mut all = race(&[SYSTEM, named("kernspan, not counting"), stats_alloc, hotpath], layout, threads, rounds, None);
    // No window is open, as in most steps of a training.
    let builder = Profiler::builder().activities([Activity::Heap]);
    let (_layer, profiler) = builder.schedule(Schedule::manual()).build()?;
    let [stats_alloc, hotpath] = peers();
    let contenders = [SYSTEM, named("kernspan, counting"), stats_alloc, hotpath];
    all.extend(race(&contenders, layout, threads, rounds, None));
    let in_window = Contender { in_window: true, ..named("kernspan, in a window") };
    all.extend(race(&[SYSTEM, in_window], layout, threads, few, Some(&profiler)));
    profiler.finish()?;
    let builder = Profiler::builder().activities([Activity::Heap]).heap_lines(true);
    let (_layer, profiler) = builder.schedule(Schedule::manual()).build()?;
    let with_lines = Contender { in_window: true, ..named("kernspan, in a window, lines") };
    all.extend(race(&[SYSTEM, with_lines], layout, threads, few, Some(&profiler)));
    profiler.finish()?;
    // It takes a thousand times as long.
    let dhat = Contender { name: "dhat", run: |layout, pairs| time(&DHAT, layout, pairs), pairs: PAIRS / 20, ..SYSTEM };
    let profiler = dhat::Profiler::builder().testing().build();
    all.extend(race(&[SYSTEM, dhat], layout, threads, few, None));
    drop(profiler);
    let mut least: Vec<(&str, f64)> = Vec::new();
    for (name, nanos) in all {
        match least.iter_mut().find(|(known, _)| *known == name) {
            Some((_, known)) => *known = known.min(nanos),
            None => least.push((name, nanos)),
        }
    }
    Ok(least)
}

/// Returns the least of many rounds for each contender, on the slowest of so many threads.
fn race(
    contenders: &[Contender],
    layout: Layout,
    threads: usize,
    rounds: u32,
    profiler: Option<&Profiler>,
) -> Vec<(&'static str, f64)> {
    let barrier = Barrier::new(threads);
    let run = |is_first: bool| {
        let mut times = Vec::with_capacity(rounds as usize * contenders.len());
        for _ in 0..rounds {
            for contender in contenders {
                let window = profiler.filter(|_| contender.in_window && is_first);
                window.inspect(|profiler| assert!(profiler.start()));
                barrier.wait();
                times.push((contender.run)(layout, contender.pairs));
                barrier.wait();
                window.inspect(|profiler| assert!(profiler.stop()));
            }
        }
        times
    };
    let slowest = thread::scope(|scope| {
        let others: Vec<_> = (1..threads).map(|_| scope.spawn(|| run(false))).collect();
        let mut slowest = run(true);
        for other in others {
            let times = other.join().unwrap_or_default();
            slowest.iter_mut().zip(times).for_each(|(slowest, nanos)| *slowest = slowest.max(nanos));
        }
        slowest
    });
    let least =
        |index: usize| slowest.iter().skip(index).step_by(contenders.len()).copied().fold(f64::INFINITY, f64::min);
    contenders.iter().enumerate().map(|(index, contender)| (contender.name, least(index))).collect()
}

/// Returns the mean nanoseconds of an allocation and its free.
fn time(allocator: &impl GlobalAlloc, layout: Layout, pairs: usize) -> f64 {
    let start = Instant::now();
    for _ in 0..pairs {
        pair(allocator, layout);
    }
    start.elapsed().as_nanos() as f64 / pairs as f64
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
