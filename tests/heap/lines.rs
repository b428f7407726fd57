//! The lines of the program that allocate.

use crate::alone;
use kernspan::{Activity, Html, Profiler, Report, Schedule, report::Leaks};
use std::{backtrace::Backtrace, hint::black_box, panic, thread, time::Duration};
use tracing::{info_span, subscriber::with_default};
use tracing_subscriber::prelude::*;

/// Records what this does, with lines.
fn record(run: impl FnOnce()) -> Report {
    let builder = Profiler::builder().activities([Activity::Host, Activity::Heap]).heap_lines(true);
    let (layer, profiler) = builder.build().unwrap();
    with_default(tracing_subscriber::registry().with(layer), run);
    profiler.finish().unwrap()
}

const LINE: u32 = line!() + 4;

#[inline(never)]
fn allocate(bytes: usize) -> Vec<u8> {
    black_box(vec![1_u8; bytes])
}

fn this_line(line: u32) -> String {
    format!("tests/heap/lines.rs:{line}")
}

#[test]
fn a_line_has_what_it_allocates_and_keeps() {
    const COUNT: u64 = 4_000;
    let _alone = alone();
    let mut kept = Vec::with_capacity(COUNT as usize);
    let mut grown: Vec<u64> = Vec::new();
    let grows = line!() + 4;
    let report = record(|| {
        kept.extend((0..COUNT).map(|_| allocate(10_000)));
        kept.truncate(COUNT as usize / 4);
        (0..1 << 20).for_each(|number| grown.push(number));
    });
    let rows = report.heap_lines().limit(usize::MAX).rows();
    let row = |line: u32| rows.iter().find(|row| row.line == this_line(line)).unwrap_or_else(|| panic!("{rows:#?}"));
    // Some 1,800 samples, so that 3 % are a standard deviation.
    let row_of = row(LINE);
    assert!((34_000_000..46_000_000).contains(&row_of.allocated), "{row_of:?}");
    assert!((7_000_000..13_000_000).contains(&row_of.kept), "{row_of:?}");
    assert!((3_400..4_600).contains(&row_of.allocations), "{row_of:?}");
    assert_eq!(rows[0].line, this_line(LINE), "the most bytes come first");
    // The vector doubles up to 8 MiB, and the last allocation is kept.
    assert!((8 << 20..24 << 20).contains(&row(grows).allocated), "{:?}", row(grows));
    let text = report.to_string();
    assert!(text.contains("Allocated at") && text.contains(&this_line(LINE)), "{text}");
    let json = serde_json::to_value(&report).unwrap();
    assert_eq!(json["heap_lines"][0]["line"], this_line(LINE));
}

#[test]
fn lines_are_an_option() {
    let _alone = alone();
    let (layer, profiler) = Profiler::builder().activities([Activity::Host, Activity::Heap]).build().unwrap();
    with_default(tracing_subscriber::registry().with(layer), || drop(allocate(1 << 24)));
    let report = profiler.finish().unwrap();
    assert!(report.heap_lines().is_empty());
    assert!(!report.to_string().contains("Allocated at"));
}

#[test]
fn a_leak_names_its_line() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let (layer, profiler) = Profiler::builder()
        .activities([Activity::Host, Activity::Heap])
        .schedule(Schedule::new().wait(20).warmup(1).active(4).repeat(3))
        .heap_lines(true)
        .export(Html::to_dir(folder.path()))
        .build()
        .unwrap();
    let mut kept = Vec::new();
    with_default(tracing_subscriber::registry().with(layer), || {
        for _ in 0..200 {
            info_span!("train_step").in_scope(|| {
                info_span!("forward").in_scope(|| drop(black_box(vec![0_u8; 1 << 20])));
                info_span!("cache").in_scope(|| kept.push(allocate(100_000)));
            });
            thread::sleep(Duration::from_millis(3));
            profiler.step();
        }
    });
    let report = profiler.finish().unwrap();
    let Leaks::Found(leaks) = report.leaks() else { panic!("{}", report.leaks()) };
    let owner = leaks.iter().find_map(|leak| leak.owners.first()).unwrap_or_else(|| panic!("{leaks:?}"));
    assert_eq!(owner.path, ["cache", "train_step"]);
    assert_eq!(owner.line, Some(this_line(LINE)), "{leaks:?}");
    let leak = leaks[0].to_string();
    assert!(leak.contains(&format!(" at {}", this_line(LINE))), "{leak}");
    let page = report.files().iter().find(|file| file.extension().is_some_and(|it| it == "html")).unwrap();
    let page = std::fs::read_to_string(page).unwrap();
    assert!(page.contains("Heap by line") && page.contains(&this_line(LINE)), "no lines in the page");
}

/// The standard library captures and writes backtraces under a lock, and allocates meanwhile: a sample that did the
/// same there would wait for itself forever.
#[test]
fn threads_that_write_backtraces_and_panic_do_not_hang() {
    const THREADS: usize = 8;
    #[inline(never)]
    fn deep(depth: usize) -> usize {
        let kept = allocate(2_000 + depth);
        black_box(kept.len()) + if depth == 0 { 0 } else { deep(depth - 1) }
    }
    let _alone = alone();
    // What a hook writes is not for the output of a test.
    let hook = panic::take_hook();
    panic::set_hook(Box::new(|_| drop(Backtrace::force_capture().to_string())));
    let report = record(|| {
        thread::scope(|scope| {
            for thread in 0..THREADS {
                scope.spawn(move || {
                    for round in 0..20 {
                        black_box(deep(1 + (thread * 7 + round) % 40));
                        if thread % 2 == 0 {
                            let text = Backtrace::force_capture().to_string();
                            drop(black_box(format!("{text}{text}{text}{text}")));
                        }
                        if thread % 4 == 1 {
                            let _ = panic::catch_unwind(|| panic!("{}", allocate(100_000).len()));
                        }
                    }
                });
            }
        });
    });
    panic::set_hook(hook);
    assert!(!report.heap_lines().is_empty());
}
