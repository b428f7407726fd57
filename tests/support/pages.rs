//! Checks of the pages of TensorBoard's plugin for PyTorch against a trace.

use kernspan::{
    Trace,
    trace::{Allocation, ApiCall, Attribution, Detail, MemoryChange, Span, Timestamp, Work},
};
use serde_json::Value as Json;
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

/// The maximum error of a time, in microseconds: the plugin's times are multiples of 1/1024 µs.
const ROUNDING: f64 = 0.5 / 1024.0;

/// The name that the plugin gives to spans named `data`.
const DATA: &str = "enumerate(DataLoader)#kernspan.__next__";

/// Checks the pages that every trace has, and the page of kernels if there are any.
pub fn check_all(trace: &Trace, pages: &Json) {
    check_steps(trace, &pages["overview"]["steps"]);
    check_operators(trace, &pages["operators"]);
    check_shapes(trace, &pages["operators"]["OperationAndInputShape"]);
    check_stacks(trace, &pages["operators"]["Operation"]);
    if trace.work().len() > 0 {
        check_kernels(trace, &pages["kernel"]);
    }
}

type Range = (Timestamp, Timestamp);

/// Returns the time within a range that is covered by at least one of the others, in microseconds.
fn covered<'a>(ranges: impl Iterator<Item = &'a Range>, within: Range) -> f64 {
    let mut ranges: Vec<_> = ranges.map(|&(start, end)| (start.max(within.0), end.min(within.1))).collect();
    ranges.sort_unstable();
    let (mut until, mut total) = (within.0, Duration::ZERO);
    for (start, end) in ranges {
        total += end.since(start.max(until));
        until = until.max(end);
    }
    micros(total)
}

fn micros(duration: Duration) -> f64 {
    duration.as_nanos() as f64 / 1e3
}

/// Returns the steps as the plugin defines them: a step ends when the GPU has done its work, and the next begins then.
fn plugin_steps(trace: &Trace) -> Vec<(u64, Range)> {
    let mut until = Timestamp::default();
    let ends = trace.steps().iter().map(|step| {
        let own = trace
            .work()
            .filter(|work| work.call().is_some_and(|call| step.start() <= call.start() && call.end() <= step.end()));
        let end = own.map(Work::end).max().max(Some(step.end())).unwrap();
        let start = step.start().max(until);
        until = end;
        (step.number(), (start, end))
    });
    ends.collect()
}

/// Checks how each step is divided up: the time of kernels, then of copies outside of kernels, and so on.
fn check_steps(trace: &Trace, steps: &Json) {
    let expected = plugin_steps(trace);
    assert_eq!(steps.as_object().unwrap().len(), expected.len());
    let work = |is: fn(&Detail) -> bool| {
        trace.work().filter(move |work| is(work.detail())).map(|work| (work.start(), work.end()))
    };
    let spans = |loads: bool| {
        trace.spans().filter(move |span| (span.name() == "data") == loads).map(|span| (span.start(), span.end()))
    };
    let roles: [(&str, Vec<Range>); 6] = [
        ("Kernel", work(|detail| matches!(detail, Detail::Kernel(_))).collect()),
        ("Memcpy", work(|detail| matches!(detail, Detail::Copy(_))).collect()),
        ("Memset", work(|detail| matches!(detail, Detail::Fill(_))).collect()),
        ("Runtime", trace.api_calls().map(|call| (call.start(), call.end())).collect()),
        ("DataLoader", spans(true).collect()),
        ("CPU Exec", spans(false).collect()),
    ];
    for (number, step) in expected {
        let shown = &steps[number.to_string()];
        let total: f64 = shown.as_object().unwrap().values().map(|part| part.as_f64().unwrap()).sum();
        // Each range has two ends, and is part of two sums.
        let tolerance = 4.0 * ROUNDING * roles.iter().map(|(_, ranges)| ranges.len()).sum::<usize>() as f64;
        assert!((total - micros(step.1.since(step.0))).abs() < 2.0 * ROUNDING, "step {number}: {total} µs");
        let mut before = 0.0;
        for role in 0..roles.len() {
            let sum = covered(roles[..=role].iter().flat_map(|(_, ranges)| ranges), step);
            let part = shown.get(roles[role].0).map_or(0.0, |part| part.as_f64().unwrap());
            let expected = sum - before;
            assert!((part - expected).abs() < tolerance, "step {number}, {}: {part}, not {expected}", roles[role].0);
            before = sum;
        }
    }
}

/// A row of the operator view: the spans of one name, with times in microseconds.
#[derive(Default)]
struct Operator {
    calls: u64,
    host: f64,
    host_self: f64,
    device: f64,
    device_self: f64,
    /// The number of times that were added up.
    times: usize,
}

fn name(span: Span<'_>) -> &str {
    if span.name() == "data" { DATA } else { span.name() }
}

/// Returns the children of a span that are on its own row, as the plugin looks at one row at a time.
fn children<'a>(trace: &'a Trace, span: Span<'a>) -> impl Iterator<Item = Span<'a>> {
    let is_child = move |child: &Span<'_>| child.parent().is_some_and(|parent| parent.id() == span.id());
    trace.spans().filter(is_child).filter(move |child| child.track_id() == span.track_id())
}

fn operators(trace: &Trace) -> BTreeMap<&str, Operator> {
    let mut operators: BTreeMap<&str, Operator> = BTreeMap::new();
    for span in trace.spans() {
        let operator = operators.entry(name(span)).or_default();
        operator.calls += 1;
        operator.host += micros(span.duration());
        operator.host_self += micros(span.duration());
        operator.times += 1;
        for child in children(trace, span) {
            operator.host_self -= micros(child.duration());
            operator.times += 1;
        }
        let merges =
            children(trace, span).count() == 1 && children(trace, span).all(|child| child.name() == span.name());
        assert!(!merges, "{}: the plugin would make one of both", span.name());
    }
    for call in trace.api_calls() {
        if let Some(operator) = call.span().and_then(|span| operators.get_mut(name(span))) {
            operator.host_self -= micros(call.duration());
            operator.times += 1;
        }
    }
    for work in trace.work().filter(|work| work.call().is_some()) {
        for (depth, span) in work.span().into_iter().flat_map(Span::stack).enumerate() {
            let operator = operators.get_mut(name(span)).unwrap();
            operator.device += micros(work.duration());
            operator.device_self += if depth == 0 { micros(work.duration()) } else { 0.0 };
            operator.times += 1;
        }
    }
    // Loading data is no operator to the plugin.
    operators.remove(DATA);
    operators
}

fn check_operators(trace: &Trace, page: &Json) {
    let expected = operators(trace);
    let rows = page["Operation"].as_array().unwrap();
    assert_eq!(rows.len(), expected.len());
    for row in rows {
        let name = row["name"].as_str().unwrap();
        let operator = &expected[name];
        assert_eq!(row["calls"], operator.calls, "{name}");
        let times = &page["times"][name];
        for (key, expected) in [
            ("host_total_time", operator.host),
            ("host_self_time", operator.host_self.max(0.0)),
            ("device_total_time", operator.device),
            ("device_self_time", operator.device_self),
        ] {
            let shown = times[key].as_f64().unwrap();
            let tolerance = 2.0 * ROUNDING * operator.times as f64;
            assert!((shown - expected).abs() <= tolerance, "{key} of {name}: {shown} µs, not {expected}");
        }
        let rounded = row["host_self_duration"].as_f64().unwrap();
        assert!((rounded - operator.host_self).abs() <= 1.0, "host self time of {name}: {rounded} µs");
    }
}

fn check_shapes(trace: &Trace, rows: &Json) {
    let mut expected: BTreeMap<(String, String), u64> = BTreeMap::new();
    for span in trace.spans().filter(|span| span.name() != "data") {
        let shapes: Vec<_> = span.fields().op().shapes().map(|(_, shape)| shape).collect();
        *expected.entry((span.name().to_owned(), format!("[{}]", shapes.join(", ")))).or_default() += 1;
    }
    let text = |value: &Json| value.as_str().unwrap().to_owned();
    let rows = rows.as_array().unwrap().iter();
    let shown: BTreeMap<_, _> =
        rows.map(|row| ((text(&row["name"]), text(&row["input_shape"])), row["calls"].as_u64().unwrap())).collect();
    assert_eq!(shown, expected);
}

fn check_stacks(trace: &Trace, rows: &Json) {
    let mut expected: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    for span in trace.spans() {
        let frame = |span: Span<'_>| {
            let callsite = span.callsite();
            format!("{}({}): {}", callsite.file().unwrap(), callsite.line().unwrap(), span.name()).replace(';', ",")
        };
        let stack: Vec<_> = span.stack().map(frame).collect();
        expected.entry(span.name()).or_default().insert(stack.join(";"));
    }
    for row in rows.as_array().unwrap() {
        let stacks = row["stacks"].as_array().unwrap().iter().map(|stack| stack.as_str().unwrap().to_owned());
        assert_eq!(stacks.collect::<BTreeSet<_>>(), expected[row["name"].as_str().unwrap()]);
    }
}

fn check_kernels(trace: &Trace, page: &Json) {
    let mut by_name: BTreeMap<String, (u64, f64)> = BTreeMap::new();
    let mut by_operator: BTreeMap<(String, String), u64> = BTreeMap::new();
    for (work, kernel) in trace.work().filter_map(|work| Some((work, work.kernel()?))) {
        let (count, total) = by_name.entry(kernel.name.to_string()).or_default();
        *count += 1;
        *total += micros(work.duration());
        // An unattributed kernel is shown as `CallTreeRoot` if the thread that launched it has spans.
        let has_spans = |call: ApiCall<'_>| trace.spans().any(|span| span.track_id() == call.track_id());
        let nobody = work.call().filter(|call| has_spans(*call)).map(|_| "CallTreeRoot");
        if let Some(owner) = work.span().map(name).or(nobody) {
            *by_operator.entry((kernel.name.to_string(), owner.to_owned())).or_default() += 1;
        }
    }
    assert_eq!(page["by_name"].as_object().unwrap().len(), by_name.len());
    for (name, (count, total)) in by_name {
        let shown = &page["by_name"][&name];
        assert_eq!(shown[0], count, "{name}");
        let tolerance = 2.0 * ROUNDING * count as f64;
        assert!((shown[1].as_f64().unwrap() - total).abs() <= tolerance, "{name}: {shown}, not {total} µs");
    }
    let text = |value: &Json| value.as_str().unwrap().to_owned();
    let mut shown: BTreeMap<(String, String), u64> = BTreeMap::new();
    for row in page["by_operator"].as_array().unwrap() {
        *shown.entry((text(&row[0]), text(&row[1]))).or_default() += row[2].as_u64().unwrap();
    }
    assert_eq!(shown, by_operator);
}

pub fn check_memory(trace: &Trace, page: &Json) {
    let peak = trace.allocations().map(Allocation::in_use).max().unwrap();
    assert_eq!(page["peak"]["GPU0"].as_f64().unwrap(), peak as f64);
    // There is a row for each allocation and its free, and one for each address that is only freed.
    let (mut open, mut rows, mut freed) = (BTreeSet::new(), 0, BTreeSet::new());
    for allocation in trace.allocations() {
        if allocation.change() == MemoryChange::Allocate {
            rows += 1;
            open.insert(allocation.address());
        } else if !open.remove(&allocation.address()) {
            freed.insert(allocation.address());
        }
    }
    assert_eq!(page["events"]["GPU0"].as_array().unwrap().len(), rows + freed.len());
    let mut expected: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
    // The plugin joins by thread and time, so memory that a thread allocates for another belongs to no operator.
    let is_taken =
        |it: &Allocation<'_>| it.change() == MemoryChange::Allocate && it.attribution() == Attribution::Direct;
    let taken = trace.allocations().filter(is_taken);
    for allocation in taken {
        if let Some(span) = allocation.span().filter(|span| span.name() != "data") {
            let (count, bytes) = expected.entry(span.name()).or_default();
            *count += 1;
            *bytes += allocation.bytes().unwrap();
        }
    }
    let shown = page["operators"]["GPU0"].as_object().unwrap().values();
    assert_eq!(
        shown.map(|row| row[4].as_u64().unwrap()).sum::<u64>(),
        expected.values().map(|(count, _)| count).sum::<u64>()
    );
    for (name, (count, bytes)) in expected {
        let row = &page["operators"]["GPU0"][name];
        assert_eq!((row[4].as_u64(), row[6].as_f64()), (Some(count), Some(bytes as f64)), "{name}: {row}");
    }
}

pub fn check_modules(trace: &Trace, page: &Json) {
    let mut expected: BTreeMap<&str, (u64, f64, f64)> = BTreeMap::new();
    for span in trace.spans() {
        if let Some(path) = span.fields().op().module() {
            let (calls, host, device) = expected.entry(path).or_default();
            *calls += 1;
            *host += micros(span.duration());
            let in_span = trace
                .work()
                .filter(|work| work.span().is_some_and(|own| own.stack().any(|outer| outer.id() == span.id())));
            *device += in_span.map(|work| micros(work.duration())).sum::<f64>();
        }
    }
    assert!(!expected.is_empty());
    let mut left: Vec<_> = page.as_array().unwrap().iter().collect();
    let mut count = 0;
    while let Some(module) = left.pop() {
        left.extend(module["children"].as_array().unwrap());
        count += 1;
        let (calls, host, device) = expected[module["name"].as_str().unwrap()];
        assert_eq!(module["occurences"], calls);
        let tolerance = ROUNDING * (trace.work().len() + trace.spans().len()) as f64;
        assert!((module["host_duration"].as_f64().unwrap() - host).abs() <= tolerance, "{module}: {host} µs");
        assert!((module["device_duration"].as_f64().unwrap() - device).abs() <= tolerance, "{module}: {device} µs");
    }
    assert_eq!(count, expected.len());
}
