//! Planted leaks on the heap, and programs that only look like leaks.

use crate::alone;
use kernspan::{
    Activity, Collected, Html, Profiler, Report, Schedule,
    analysis::{MemorySeries, MemorySource},
    report::{Leak, Leaks},
};
use std::{collections::HashMap, hint::black_box, thread, time::Duration};
use tracing::{info_span, subscriber::with_default};
use tracing_subscriber::prelude::*;

/// Trains for so many steps: each allocates and frees a megabyte in `forward`, and then does `step`. Tests are alone
/// until they have freed all they kept, as another test would count that.
fn train(steps: u64, pause: Duration, mut step: impl FnMut(u64)) -> Report {
    let (layer, profiler) = Profiler::builder()
        .activities([Activity::Host, Activity::Heap])
        .schedule(Schedule::new().wait(20).warmup(1).active(4).repeat(3))
        .build()
        .unwrap();
    with_default(tracing_subscriber::registry().with(layer), || {
        for number in 0..steps {
            info_span!("train_step").in_scope(|| {
                info_span!("forward").in_scope(|| drop(black_box(vec![0_u8; 1 << 20])));
                step(number);
            });
            thread::sleep(pause);
            profiler.step();
        }
    });
    profiler.finish().unwrap()
}

const MILLI: Duration = Duration::from_millis(1);

fn heap_leak(report: &Report) -> Option<Leak> {
    match report.leaks() {
        Leaks::Found(leaks) => leaks.into_iter().find(|leak| leak.source == MemorySource::Heap),
        Leaks::None => None,
        other => panic!("{other}"),
    }
}

#[test]
fn a_growing_list_is_found_in_its_span_within_200_steps() {
    let _alone = alone();
    let mut kept = Vec::new();
    let report = train(200, 3 * MILLI, |_| {
        info_span!("cache").in_scope(|| kept.push(black_box(vec![0_u8; 100_000])));
    });
    let leak = heap_leak(&report).unwrap_or_else(|| panic!("{report}\n{:?}", report.memory_series()));
    assert!((80_000.0..120_000.0).contains(&leak.growth.bytes_per_step), "{leak}");
    assert!(leak.growth.first_step < 60, "{leak}");
    let owner = leak.owners.first().unwrap_or_else(|| panic!("{leak}"));
    assert_eq!(owner.path, ["cache", "train_step"], "{leak}");
    assert!(owner.location.as_ref().is_some_and(|location| location.contains("leaks.rs")), "{leak}");
    assert!((40_000.0..250_000.0).contains(&owner.bytes_per_step), "{leak}");
    let text = report.to_string();
    assert!(text.contains("possible leak: the heap grows by ") && text.contains("cache < train_step"), "{text}");
}

#[test]
fn what_is_freed_or_full_is_not_a_leak() {
    let _alone = alone();
    let mut cache: HashMap<u64, Vec<u8>> = HashMap::new();
    let mut queue = std::collections::VecDeque::new();
    let report = train(400, 2 * MILLI, |number| {
        // A cache that fills and stops, a queue of the last batches, and a buffer that is replaced in every step.
        info_span!("cache").in_scope(|| cache.entry(number % 100).or_insert_with(|| vec![0_u8; 100_000]).len());
        info_span!("load").in_scope(|| queue.push_back(black_box(vec![0_u8; 500_000])));
        if queue.len() > 3 {
            queue.pop_front();
        }
    });
    assert_eq!(heap_leak(&report), None, "{:?}", report.memory_series());
}

#[test]
fn memory_is_followed_in_every_step_and_shown_in_traces() {
    let _alone = alone();
    let report = train(60, 5 * MILLI, |_| ());
    let sources: Vec<_> = report.memory_series().iter().map(MemorySeries::source).collect();
    assert!(sources.contains(&MemorySource::Heap), "{sources:?}");
    assert_eq!(sources.contains(&MemorySource::Process), cfg!(target_os = "linux"), "{sources:?}");
    for series in report.memory_series() {
        let points = series.points();
        assert!(points.len() > 10, "{points:?}");
        assert!(points.is_sorted_by_key(|point| point.step), "{points:?}");
        assert!(points.iter().any(|point| point.step > 50), "{points:?}");
        assert!(series.peak() >= points.iter().map(|point| point.bytes).max().unwrap());
        assert!(series.limit().is_none_or(|limit| limit > series.peak()));
    }
    assert!(!matches!(report.leaks(), Leaks::Found(_)), "{}", report.leaks());
}

/// Ten thousand steps of a program that keeps nothing but a number for each.
#[test]
fn ten_thousand_clean_steps_raise_no_alarm() {
    let _alone = alone();
    let mut losses = Vec::new();
    // Long enough for many readings.
    let report = train(10_000, MILLI / 10, |number| {
        info_span!("backward", number, text = "a text").in_scope(|| losses.push(number as f64));
        tracing::info!(counter.loss = number as f64);
    });
    assert_eq!(report.leaks(), Leaks::None, "{}", report.leaks());
}

/// The run ends with its second reading: it is not known to be clean.
#[test]
fn a_run_of_a_moment_is_too_short_to_tell() {
    let _alone = alone();
    let mut kept = Vec::new();
    let report = train(3, Duration::ZERO, |_| kept.push(black_box(vec![0_u8; 100_000])));
    let leaks = report.leaks();
    assert!(matches!(leaks, Leaks::TooShort(_)), "{leaks}");
    assert!(report.to_string().contains("too short to tell whether memory leaks"), "{report}");
}

#[test]
fn the_page_and_traces_have_the_memory() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let collected = Collected::new();
    let (layer, profiler) = Profiler::builder()
        .activities([Activity::Host, Activity::Heap])
        .schedule(Schedule::new().wait(20).warmup(1).active(4))
        .export(Html::to_dir(folder.path()))
        .export(collected.clone())
        .build()
        .unwrap();
    let mut kept = Vec::new();
    with_default(tracing_subscriber::registry().with(layer), || {
        for _ in 0..200 {
            info_span!("cache").in_scope(|| kept.push(black_box(vec![0_u8; 100_000])));
            thread::sleep(3 * MILLI);
            profiler.step();
        }
    });
    let report = profiler.finish().unwrap();
    let page = report.files().iter().find(|file| file.extension().is_some_and(|it| it == "html")).unwrap();
    let page = std::fs::read_to_string(page).unwrap();
    assert!(page.contains("Memory that grows") && page.contains("the heap grows by "), "no leak in the page");
    assert!(page.contains("Memory over the run"), "no chart of the memory");
    let trace = &collected.traces()[0];
    let heap = trace.counters().iter().find(|counter| counter.name() == "memory.heap").unwrap();
    assert!(heap.samples().iter().all(|&(at, bytes)| at >= trace.start() && at <= trace.end() && bytes > 1e6));
}
