//! Tests that the hot path does not allocate, by an allocator that counts.

#![allow(unsafe_code, reason = "an allocator is unsafe to write")]

use kernspan::{Profiler, Schedule, TensorBoard};
use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
};
use tracing::info_span;
use tracing_subscriber::prelude::*;

struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: everything is left to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller's promises are passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's promises are passed on.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Returns the number of allocations of this thread during `f`.
fn allocations(f: impl FnOnce()) -> u64 {
    let before = ALLOCATIONS.get();
    f();
    ALLOCATIONS.get() - before
}

fn plain(turns: u32) {
    for _ in 0..turns {
        let _outer = info_span!("outer").entered();
        info_span!("inner").in_scope(|| ());
    }
}

fn numbers(turns: u32) {
    for turn in 0..turns {
        info_span!("numbers", turn, loss = 0.5, done = false, offset = -1).in_scope(|| ());
    }
}

fn text(turns: u32) {
    for turn in 0..turns {
        info_span!("text", turn = %turn).in_scope(|| ());
    }
}

/// Returns the number of allocations of `work` under a profiler, after a first round in which lanes and tables are
/// made.
fn under_a_profiler(schedule: Schedule, work: fn(u32)) -> u64 {
    let (layer, profiler) = Profiler::builder().schedule(schedule).build().unwrap();
    let mut count = 0;
    tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
        // Each slot of the table of living spans has a list, which allocates on first use.
        work(100_000);
        count = allocations(|| work(10_000));
    });
    profiler.finish().unwrap();
    count
}

#[test]
fn spans_without_fields_and_with_numbers_do_not_allocate() {
    for work in [plain, numbers] {
        assert_eq!(under_a_profiler(Schedule::always(), work), 0);
        assert_eq!(under_a_profiler(Schedule::manual(), work), 0);
    }
    // Allocations are counted: text does allocate.
    assert!(under_a_profiler(Schedule::always(), text) >= 10_000);
}

/// Requests on one thread and on several, as many as fill the lists of notes again and again.
#[cfg(feature = "serving")]
#[test]
fn requests_do_not_allocate() {
    use kernspan::serving::RequestKind;
    let serve = |turns: u32| {
        for turn in 0..turns {
            let request = info_span!("request", route = turn % 7, error = false, request.batch_size = 3_u32);
            request.in_scope(|| {
                tracing::info!(request.tokens = 1_u32);
                tracing::info!(request.tokens = 2_u32);
            });
        }
    };
    for schedule in [Schedule::manual(), Schedule::always()] {
        let kind = RequestKind::new("request").by("route");
        let (layer, profiler) = Profiler::builder().schedule(schedule).request_on(kind).build().unwrap();
        let dispatch = tracing::Dispatch::new(tracing_subscriber::registry().with(layer));
        std::thread::scope(|scope| {
            for threads in [1, 4] {
                let measured: Vec<_> = (0..threads)
                    .map(|_| {
                        scope.spawn(|| {
                            tracing::dispatcher::with_default(&dispatch, || {
                                // The thread's list of notes, the groups and their histograms are made.
                                serve(20_000);
                                allocations(|| serve(10_000))
                            })
                        })
                    })
                    .collect();
                for thread in measured {
                    assert_eq!(thread.join().unwrap(), 0);
                }
            }
        });
        profiler.finish().unwrap();
    }
}

#[test]
fn step_does_not_allocate_while_waiting() {
    let (layer, profiler) = Profiler::builder().schedule(Schedule::steps(1_000_000..)).build().unwrap();
    drop(layer);
    assert_eq!(allocations(|| (0..10_000).for_each(|_| profiler.step())), 0);
    profiler.finish().unwrap();
}

#[test]
fn step_summaries_and_their_counters_do_not_allocate() {
    let folder = tempfile::tempdir().unwrap();
    let exporter = TensorBoard::to_dir(folder.path());
    let (layer, profiler) = Profiler::builder().schedule(Schedule::manual()).export(exporter).build().unwrap();
    tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
        let step = |turn: u32| {
            tracing::info!(counter.loss = 0.5, counter.turn = turn, epoch = 3, "not formatted: {turn}");
            profiler.step();
        };
        step(0);
        // These are more steps than fit into the ring.
        assert_eq!(allocations(|| (0..50_000).for_each(step)), 0);
    });
    profiler.finish().unwrap();
}
