//! Tests of timelines.

use super::{Timelines, WindowTimeline};
use crate::{
    analysis::Analysis,
    export::{
        html::packed::{Names, tests::unpack},
        json::Json,
    },
    trace::{
        StepId, Trace,
        sample::{at, gpu_trace, ranks, repeat_work, set_steps},
    },
};
use serde_json::Value;

/// The most bytes of a window that has room for everything.
const ENOUGH: usize = 1 << 20;

/// An item as it comes back: its row, its lane there, and its start and duration in nanoseconds.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Unpacked {
    row: String,
    lane: usize,
    start: u64,
    nanos: u64,
    name: String,
    launcher: Option<usize>,
}

fn json(window: &WindowTimeline) -> Value {
    let mut json = Json::default();
    json.object(|object| window.write(object));
    serde_json::from_slice(json.as_bytes()).unwrap()
}

/// Reads a window as the page does.
fn items(window: &WindowTimeline, names: &Names) -> Vec<Unpacked> {
    let json = json(window);
    let strings: Vec<_> = json["items"].as_array().unwrap().iter().map(|chunk| chunk.as_str().unwrap()).collect();
    let mut numbers = unpack(&strings).into_iter();
    let (mut items, mut last) = (Vec::new(), 0_i64);
    for row in json["rows"].as_array().unwrap() {
        for (lane, count) in row[2].as_array().unwrap().iter().enumerate() {
            let mut start = 0;
            for _ in 0..count.as_u64().unwrap() {
                start += numbers.next().unwrap();
                let (nanos, name) = (numbers.next().unwrap(), numbers.next().unwrap() as usize);
                let link = if row[1] == 1 { numbers.next().unwrap() } else { 0 };
                let launcher = link.checked_sub(1).map(|zigzag| {
                    last += (zigzag >> 1) as i64 ^ -((zigzag & 1) as i64);
                    last as usize
                });
                let (row, name) = (row[0].as_str().unwrap().to_owned(), names.get(name).to_owned());
                items.push(Unpacked { row, lane, start, nanos, name, launcher });
            }
        }
    }
    assert_eq!(numbers.next(), None, "all is read");
    items
}

fn window(trace: &Trace, detailed: &[StepId], bytes: usize) -> (WindowTimeline, Vec<Unpacked>) {
    let mut names = Names::default();
    let window = WindowTimeline::of(trace, detailed, &mut names, bytes).unwrap();
    let items = items(&window, &names);
    (window, items)
}

#[test]
fn all_items_come_back_with_what_launched_them() {
    for trace in ranks().into_iter().chain([gpu_trace()]) {
        let (window, items) = window(&trace, &[], ENOUGH);
        assert!(window.notes.is_empty());
        let since = |at: crate::trace::Timestamp| at.since(trace.start()).as_nanos() as u64;
        let spans = trace.spans().map(|it| (since(it.start()), since(it.end()), it.name().to_owned()));
        let calls = trace.api_calls().map(|it| (since(it.start()), since(it.end()), it.name().to_owned()));
        let work = trace.work().map(|it| (since(it.start()), since(it.end()), it.name().to_string()));
        let mut expected: Vec<_> = spans.chain(calls).chain(work).collect();
        let mut found: Vec<_> = items.iter().map(|it| (it.start, it.start + it.nanos, it.name.clone())).collect();
        expected.sort();
        found.sort();
        assert_eq!(found, expected);
        // Each kernel leads to its call.
        let work: Vec<_> = items.iter().filter(|item| item.row.starts_with("GPU")).collect();
        let launched = work.iter().filter_map(|item| Some((item, &items[item.launcher?])));
        let calls: Vec<_> = launched.filter(|(_, call)| call.name.starts_with("cu")).collect();
        assert_eq!(calls.len(), trace.work().filter(|work| work.call().is_some()).count());
        assert!(calls.iter().all(|(work, call)| call.start <= work.start), "{calls:?}");
    }
}

#[test]
fn inner_spans_go_first() {
    let trace = gpu_trace();
    let (all, everything) = window(&trace, &[], ENOUGH);
    let levels = |items: &[Unpacked]| items.iter().map(|item| item.lane).max().unwrap();
    assert_eq!(levels(&everything), 2, "calls in spans in spans");
    let work = |items: &[Unpacked]| items.iter().filter(|item| item.row.starts_with("GPU")).count();

    let (few, shown) = window(&trace, &[], 7 * trace.work().len() + 7 * 12);
    assert_eq!(work(&shown), trace.work().len());
    assert!(levels(&shown) < 2, "{shown:?}");
    let left_out = everything.len() - shown.len();
    assert_eq!(few.notes, [format!("{left_out} spans and calls nested more than 2 deep are left out")]);
    assert!(few.items.len() < all.items.len());
}

#[test]
fn of_too_much_work_the_shortest_is_left_out() {
    let mut trace = gpu_trace();
    repeat_work(&mut trace, 0, 10_000);
    trace.work.sort_by_key(|work| (work.stream, work.start));
    let (window, items) = window(&trace, &[], 7 * 1_000);
    let work: Vec<_> = items.iter().filter(|item| item.row.starts_with("GPU")).collect();
    assert!(work.iter().all(|item| item.nanos >= 4_096), "{work:?}");
    let short = trace.work().len() - work.len();
    assert!(short > 10_000);
    let note = format!("{short} kernels and copies shorter than 4.10 µs are left out");
    assert!(window.notes.contains(&note), "{:?}", window.notes);
}

#[test]
fn windows_share_the_room_and_a_slow_step_finds_some() {
    let (trace, mut names) = (gpu_trace(), Names::default());
    let mut timelines = Timelines::default();
    timelines.expect(2);
    [&trace, &trace].iter().for_each(|trace| timelines.add(trace, &[], &mut names));
    assert_eq!((timelines.windows.len(), timelines.left_out), (2, 0));
    // Nothing is left but for what is very slow.
    timelines.windows[1].items = super::Packed::default();
    (0..Timelines::BYTES).for_each(|_| timelines.windows[1].items.push(1));
    timelines.add(&trace, &[], &mut names);
    assert_eq!((timelines.windows.len(), timelines.left_out), (2, 1));
    let mut slow = gpu_trace();
    set_steps(&mut slow, &[900_000]);
    timelines.add(&slow, &[], &mut names);
    assert_eq!((timelines.windows.len(), timelines.left_out), (2, 2));
    assert_eq!(timelines.windows[1].steps.len(), 1);
}

#[test]
fn the_moments_of_findings_are_found_in_their_rank() {
    let mut traces = ranks();
    // The second rank begins a little later, at the same time by the numbers of steps.
    for step in &mut traces[1].steps {
        step.start = step.start + std::time::Duration::from_nanos(10);
    }
    let mut timelines = Timelines::default();
    traces.iter().for_each(|trace| timelines.add(trace, &[], &mut Names::default()));
    for (index, trace) in traces.iter().enumerate() {
        let ranges: Vec<_> = Analysis::of(trace).findings().iter().flat_map(|finding| finding.ranges.clone()).collect();
        assert!(!ranges.is_empty());
        for range in &ranges {
            let start = range.start.since(at(0)).as_nanos() as u64;
            assert_eq!(timelines.find(range), Some((index, start)), "{range:?}");
        }
    }
}
