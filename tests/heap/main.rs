//! Tests of the allocator that counts, in a program that has it.

mod leaks;
#[cfg(all(unix, feature = "serde"))]
mod lines;

use kernspan::{
    Activity, Allocator, Collected, Exporter, Profiler, Schedule, Trace,
    report::SortBy,
    trace::{HeapSample, HeapUse},
};
use std::{
    hint::black_box,
    sync::{Arc, Barrier, Mutex, MutexGuard, PoisonError},
    thread,
};
use tracing::{info_span, subscriber::with_default};
use tracing_subscriber::prelude::*;

#[global_allocator]
static ALLOCATOR: Allocator = Allocator::system();

/// Only one profiler of a process can count, and tests run in parallel.
static ALONE: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Records what this does, in one window.
fn record(run: impl FnOnce()) -> Trace {
    let _alone = alone();
    let collected = Collected::new();
    let builder = Profiler::builder().activities([Activity::Host, Activity::Heap]).export(collected.clone());
    let (layer, profiler) = builder.build().unwrap();
    with_default(tracing_subscriber::registry().with(layer), run);
    profiler.finish().unwrap();
    Trace::clone(&collected.only())
}

/// The sum over all spans of a name.
fn heap_of(trace: &Trace, name: &str) -> HeapUse {
    let mut sum = HeapUse::default();
    trace.spans().filter(|span| span.name() == name).for_each(|span| sum += span.heap());
    sum
}

fn counts(heap: HeapUse) -> (u64, u64, u64) {
    (heap.allocations, heap.allocated, heap.freed)
}

#[test]
fn each_span_counts_what_it_allocates_itself() {
    let trace = record(|| {
        let outer = info_span!("outer").entered();
        let kept = black_box(vec![1_u8; 100]);
        info_span!("inner").in_scope(|| drop(black_box(vec![1_u8; 3000])));
        let mut grown = black_box(Vec::<u8>::with_capacity(10));
        grown.reserve_exact(50);
        info_span!("frees").in_scope(|| drop(kept));
        info_span!("idle").in_scope(|| black_box([0_u8; 64]));
        drop(grown);
        drop(outer);
    });
    assert!(trace.is_heap_counted());
    assert_eq!(counts(heap_of(&trace, "outer")), (3, 100 + 10 + 50, 10 + 50));
    assert_eq!(counts(heap_of(&trace, "inner")), (1, 3000, 3000));
    assert_eq!(counts(heap_of(&trace, "frees")), (0, 0, 100));
    assert_eq!(heap_of(&trace, "frees").net(), -100);
    assert_eq!(counts(heap_of(&trace, "idle")), (0, 0, 0));
    assert!(trace.losses().is_empty(), "{:?}", trace.losses());
}

#[test]
#[cfg(feature = "read")]
fn files_keep_what_spans_allocated() {
    let trace = record(|| {
        let _outer = info_span!("outer", heap = "a field of the same name").entered();
        info_span!("inner").in_scope(|| drop(black_box(vec![1_u8; 3000])));
    });
    let folder = tempfile::tempdir().unwrap();
    let files = kernspan::Chrome::to_dir(folder.path()).export(&kernspan::analysis::Analysis::of(&trace)).unwrap();
    let read = kernspan::read(&files[0]).unwrap().remove(0);
    assert_eq!(counts(heap_of(&read, "inner")), (1, 3000, 3000));
    let outer = read.spans().find(|span| span.name() == "outer").unwrap();
    assert_eq!(outer.field("heap").unwrap().as_str(), Some("a field of the same name"));
}

#[test]
fn the_profilers_own_allocations_are_not_counted() {
    let trace = record(|| {
        let outer = info_span!("outer", text = "a text that is kept", number = 3).entered();
        for index in 0..100 {
            let inner = info_span!("inner", text = %index, kept = "a text of some length, which is copied").entered();
            tracing::info!(loss = 0.5, note = %index, "an event with a text");
            inner.record("kept", "another text that is copied as well");
        }
        drop(outer);
    });
    // Formatting `%index` is the program's business only if the program allocates for it, and it does not.
    assert_eq!(counts(heap_of(&trace, "inner")), (0, 0, 0));
    assert_eq!(heap_of(&trace, "outer").net(), 0, "{:?}", heap_of(&trace, "outer"));
}

#[test]
fn threads_count_for_themselves() {
    const THREADS: usize = 8;
    const TIMES: usize = 1000;
    let trace = record(|| {
        let barrier = Arc::new(Barrier::new(THREADS));
        thread::scope(|scope| {
            for _ in 0..THREADS {
                let (barrier, dispatch) = (Arc::clone(&barrier), tracing::dispatcher::get_default(Clone::clone));
                scope.spawn(move || {
                    let _default = tracing::dispatcher::set_default(&dispatch);
                    barrier.wait();
                    for _ in 0..TIMES {
                        info_span!("work").in_scope(|| drop(black_box(vec![0_u8; 64])));
                    }
                });
            }
        });
    });
    let all = (THREADS * TIMES) as u64;
    assert_eq!(counts(heap_of(&trace, "work")), (all, 64 * all, 64 * all));
}

#[test]
fn samples_stand_for_all_that_was_allocated_and_know_what_was_freed() {
    const MIB: usize = 1 << 20;
    let trace = record(|| {
        let mut kept = Vec::new();
        // Many small ones and a few large ones: 64 MiB each, of which a quarter is kept.
        info_span!("small").in_scope(|| {
            for index in 0..64 * MIB / 256 {
                let block = black_box(vec![1_u8; 256]);
                if index % 4 == 0 {
                    kept.push(block);
                }
            }
        });
        let large = info_span!("large").in_scope(|| {
            (0..64).map(|_| black_box(vec![1_u8; MIB])).filter(|block| block.as_ptr().addr() != 0).collect::<Vec<_>>()
        });
        info_span!("dropped").in_scope(|| {
            drop(kept);
            drop(large.into_iter().skip(16).collect::<Vec<_>>());
        });
        black_box(());
    });
    let bytes = |name: &str, freed: bool| {
        let samples = trace.heap_samples().filter(|sample| sample.span().is_some_and(|span| span.name() == name));
        samples.filter(|sample| sample.freed().is_some() == freed).map(HeapSample::bytes).sum::<u64>() as f64
            / MIB as f64
    };
    // A thousand samples of the small ones: 3 % of standard deviation. `kept` itself grows by copying.
    let small = bytes("small", true) + bytes("small", false);
    assert!((60.0..90.0).contains(&small), "{small}");
    let large = bytes("large", true) + bytes("large", false);
    assert!((63.0..66.0).contains(&large), "{large}");
    assert_eq!(bytes("large", false), 0.0, "all were dropped in the end");
    assert_eq!(trace.losses().total(), 0);
}

#[test]
fn only_one_profiler_counts() {
    let _alone = alone();
    let build = || Profiler::builder().activities([Activity::Host, Activity::Heap]).build();
    let (_layer, first) = build().unwrap();
    let error = build().unwrap_err();
    assert!(error.to_string().contains("another profiler of this process already counts the heap"), "{error}");
    first.finish().unwrap();
    build().unwrap().1.finish().unwrap();
}

#[test]
fn memory_from_before_the_window_can_be_freed_in_it() {
    let _alone = alone();
    let collected = Collected::new();
    let (layer, profiler) = Profiler::builder()
        .activities([Activity::Host, Activity::Heap])
        .schedule(Schedule::new().wait(1).active(1).repeat(2))
        .export(collected.clone())
        .build()
        .unwrap();
    with_default(tracing_subscriber::registry().with(layer), || {
        let mut carried = vec![0_u8; 1 << 20];
        for _ in 0..4 {
            info_span!("step").in_scope(|| carried = black_box(vec![0_u8; 1 << 20]));
            profiler.step();
        }
        drop(carried);
    });
    profiler.finish().unwrap();
    let traces = collected.traces();
    assert_eq!(traces.len(), 2);
    for trace in &traces {
        assert_eq!(counts(heap_of(trace, "step")), (1, 1 << 20, 1 << 20));
        assert!(trace.heap_samples().all(|sample| sample.freed().is_none()));
    }
}

#[test]
fn the_table_has_columns_of_the_heap() {
    let _alone = alone();
    let (layer, profiler) = Profiler::builder().activities([Activity::Host, Activity::Heap]).build().unwrap();
    let mut kept = Vec::with_capacity(2);
    with_default(tracing_subscriber::registry().with(layer), || {
        for _ in 0..2 {
            info_span!("train_step").in_scope(|| {
                kept.push(info_span!("load").in_scope(|| black_box(vec![0_u8; 1 << 20])));
                info_span!("forward").in_scope(|| drop(black_box(vec![0_u8; 4096])));
            });
        }
    });
    let report = profiler.finish().unwrap();
    let rows = report.averages().sort_by(SortBy::Allocations).rows();
    let row = |name: &str| rows.iter().find(|row| row.name == name).unwrap();
    assert_eq!((row("train_step").total_heap.allocations, row("train_step").self_heap.allocations), (4, 0));
    assert_eq!(row("train_step").total_heap.net(), 2 << 20);
    assert_eq!((row("load").self_heap.net(), row("forward").total_heap.net()), (2 << 20, 0));
    assert_eq!(rows[0].name, "train_step");
    let table = report.width(200).to_string();
    for text in ["CPU Mem", "Self CPU Mem", "# of Allocs", "2.00 MiB"] {
        assert!(table.contains(text), "{text}: {table}");
    }
}
