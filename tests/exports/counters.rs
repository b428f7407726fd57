//! Tests of hardware counters that an H200 sampled (`benches/gpu`, program `record FILE counters`), against the FLOPs
//! and the bytes of the work, which are known.

use crate::support::recorded;
#[cfg(feature = "read")]
use kernspan::Chrome;
use kernspan::{
    Exporter, Perfetto, Report, Trace,
    analysis::{Analysis, CounterBound, CounterSubject},
    export::HtmlReport,
    report::CounterAverage,
    trace::{MetricMeaning, Work},
};
use serde_json::Value;
use std::{collections::BTreeMap, time::Duration};

/// The FLOPs of a product of matrices, and the bytes that a copy reads and writes.
const FLOPS: f64 = 2.0 * 4096.0 * 4096.0 * 4096.0;
const BYTES: f64 = 2.0 * (1_u64 << 30) as f64;
/// The FLOPs of bf16 that the tensor cores of an H200 do in a cycle: 4 of 1024 on each of the 132 SMs.
const PER_CYCLE: f64 = 132.0 * 4.0 * 1024.0;

/// The mean duration of the kernels of spans of this name. A product also clears some memory, for a microsecond.
fn kernel_seconds(trace: &Trace, span: &str) -> f64 {
    let kernels = trace.work().filter(|work| work.kernel().is_some());
    let of_span = kernels.filter(|work| work.span().is_some_and(|of| of.name() == span));
    let times: Vec<_> = of_span.map(|work| work.duration().as_secs_f64()).collect();
    times.iter().sum::<f64>() / times.len() as f64
}

fn mean(trace: &Trace, span: &str, meaning: MetricMeaning) -> f64 {
    let window = Analysis::of(trace);
    let subject = CounterSubject::Span(span.to_owned());
    let of_span = window.counter_uses().iter().find(|uses| uses.subject == subject).unwrap();
    of_span.value(meaning).unwrap().mean
}

#[test]
fn samples_are_whole_and_cover_the_window() {
    let trace = recorded("counters");
    let [counters] = trace.gpu_counters() else { panic!("{:?}", trace.gpu_counters()) };
    assert_eq!((counters.interval(), counters.lost(), counters.problem()), (Duration::from_millis(1), 0, None));
    assert_eq!(counters.metrics().len(), 8);
    let ends: Vec<_> = counters.samples().map(|(time, _)| (time.start, time.end)).collect();
    // Each follows the one before.
    assert!(ends.windows(2).all(|pair| pair[0].1 == pair[1].0));
    let window = trace.end().since(trace.start()).as_secs_f64() * 1e3;
    assert!((ends.len() as f64 - window).abs() <= 2.0, "{} samples in {window} ms", ends.len());
    for (_, values) in counters.samples() {
        for (metric, value) in counters.metrics().iter().zip(values) {
            let is_sane = *value >= 0.0 && (metric.unit() != "%" || *value <= 100.0);
            assert!(is_sane, "{}: {value}", metric.label());
        }
    }
}

#[test]
fn counters_agree_with_arithmetic_within_5_percent() {
    let trace = recorded("counters");
    let by_time = FLOPS / kernel_seconds(&trace, "compute");
    let tensor = mean(&trace, "compute", MetricMeaning::TensorActive) / 100.0;
    let by_counters = tensor * mean(&trace, "compute", MetricMeaning::SmClock) * PER_CYCLE;
    assert!((by_counters / by_time - 1.0).abs() < 0.05, "{by_counters:.3e} and {by_time:.3e} FLOP/s");

    let by_time = BYTES / kernel_seconds(&trace, "memory");
    let [read, write] = [MetricMeaning::DramRead, MetricMeaning::DramWrite].map(|it| mean(&trace, "memory", it));
    assert!(((read + write) / by_time - 1.0).abs() < 0.05, "{:.3e} and {by_time:.3e} bytes/s", read + write);
    assert!((read / write - 1.0).abs() < 0.05, "{read:.3e} read and {write:.3e} written");
}

#[test]
fn spans_in_the_same_samples_are_told_apart() {
    let trace = recorded("counters");
    let report = Report::of([&trace]);
    let rows = report.counters().rows();
    let row = |name: &str| -> CounterAverage { rows.iter().find(|row| row.name == name).unwrap().clone() };
    let (compute, memory, small) = (row("compute"), row("memory"), row("small"));
    assert_eq!((compute.bound, memory.bound), (Some(CounterBound::Tensor), Some(CounterBound::Memory)));
    assert!(memory.tensor_active.unwrap() < 1.0 && compute.dram_active.unwrap() < 40.0);
    // Its kernels take too little of each sample for a figure.
    assert_eq!((small.sm_active, small.bound), (None, None));
    let text = report.to_string();
    let table = text.split_once("GPU counters").unwrap().1;
    assert!(table.lines().any(|line| line.starts_with("memory ") && line.contains(" memory ")), "{table}");
}

#[test]
#[cfg(feature = "read")]
fn a_json_trace_keeps_every_sample() {
    let trace = recorded("counters");
    let folder = tempfile::tempdir().unwrap();
    let files = Chrome::to_dir(folder.path()).export(&Analysis::of(&trace)).unwrap();
    assert_eq!(kernspan::read(&files[0]).unwrap()[0].gpu_counters(), trace.gpu_counters());
}

#[test]
fn perfetto_has_the_units_apart_from_the_names() {
    let trace = recorded("counters");
    let folder = tempfile::tempdir().unwrap();
    let files = Perfetto::to_dir(folder.path()).export(&Analysis::of(&trace)).unwrap();
    let bytes = std::fs::read(&files[0]).unwrap();
    let count = |text: &[u8]| bytes.windows(text.len()).filter(|window| *window == text).count();
    // The unit is field 6 of the description of a counter, and field 7 says who has the same scale: four for bytes and
    // three for percentages, which have both, and one for the clock.
    assert_eq!([count(b"\x32\x03B/s"), count(b"\x32\x01%\x3a\x01%"), count(b"\x32\x02Hz")], [4, 3, 1]);
    assert_eq!((count(b"SM active"), count(b"SM active (")), (1, 0));
}

/// Returns the document of the page of a trace.
fn page(trace: &Trace) -> Value {
    let page = HtmlReport::of([trace]).to_string();
    let start = page.split_once("id=\"data\">\n").unwrap().1;
    serde_json::from_str(start.split_once("\n</script>").unwrap().0).unwrap()
}

fn section<'a>(document: &'a Value, id: &str) -> Option<&'a Value> {
    document["sections"].as_array().unwrap().iter().find(|section| section["id"] == id)
}

/// Returns the rows of a table by their name, with the cells by their column.
fn table(document: &Value, id: &str) -> BTreeMap<String, BTreeMap<String, Value>> {
    let table = section(document, id).unwrap();
    let titles: Vec<_> = table["columns"].as_array().unwrap().iter().map(|it| it[0].as_str().unwrap()).collect();
    let row = |row: &Value| {
        let cells = row.as_array().unwrap();
        let name = document["names"][cells[0].as_u64().unwrap() as usize].as_str().unwrap();
        (name.to_owned(), titles.iter().map(|&title| title.to_owned()).zip(cells.iter().cloned()).collect())
    };
    table["rows"].as_array().unwrap().iter().map(row).collect()
}

#[test]
fn the_page_has_tables_of_spans_and_kernels() {
    let trace = recorded("counters");
    let document = page(&trace);
    let (spans, kernels) = (table(&document, "counters"), table(&document, "kernel-counters"));
    assert!(section(&document, "module-counters").is_none(), "no span has a module");
    let of_span = |span: &str, title: &str| spans[span][title].clone();
    assert_eq!([of_span("compute", "Limit"), of_span("memory", "Limit")], ["tensor", "memory"]);
    assert_eq!(of_span("small", "SM"), Value::Null, "its kernels take too little of each sample");
    let tensor = of_span("compute", "Tensor").as_f64().unwrap();
    let per_cycle = tensor / 100.0 * of_span("compute", "SM clock").as_f64().unwrap() * PER_CYCLE;
    let by_time = FLOPS / kernel_seconds(&trace, "compute");
    assert!((per_cycle / by_time - 1.0).abs() < 0.05, "{per_cycle:.3e} and {by_time:.3e} FLOP/s");

    let memory = trace.work().find(|work| work.span().is_some_and(|span| span.name() == "memory")).unwrap();
    let copied = kernels[&memory.name().to_string()]["DRAM bytes/s"].as_f64().unwrap();
    let by_time = BYTES / kernel_seconds(&trace, "memory");
    assert!((copied / by_time - 1.0).abs() < 0.05, "{copied:.3e} and {by_time:.3e} bytes/s");
}

#[test]
#[cfg(feature = "sample")]
fn the_page_has_a_table_of_modules_if_there_are_any() {
    let mut trace = recorded("counters");
    let products: Vec<_> = trace.spans().map(|span| span.name() == "compute").collect();
    for (span, _) in products.iter().enumerate().filter(|(_, is_one)| **is_one) {
        kernspan::trace::sample::set_fields(&mut trace, span, &[("op.module", "layers.0")]);
    }
    let document = page(&trace);
    let (spans, modules) = (table(&document, "counters"), table(&document, "module-counters"));
    assert_eq!(modules.keys().collect::<Vec<_>>(), ["layers.0"]);
    let of_module = &modules["layers.0"];
    assert!(of_module["Tensor"].as_f64().unwrap() > 80.0, "{of_module:?}");
    for title in ["Tensor", "DRAM bytes/s", "Limit"] {
        assert_eq!(of_module[title], spans["compute"][title], "{title}");
    }
}

#[test]
fn the_roofline_has_the_bytes_that_were_measured() {
    let trace = recorded("counters");
    let document = page(&trace);
    let points = section(&document, "roofline").unwrap()["points"].as_array().unwrap();
    let name = |point: &Value| document["names"][point[0].as_u64().unwrap() as usize].as_str().unwrap().to_owned();
    let point = points.iter().find(|point| name(point).ends_with("compute")).unwrap();
    // No field states bytes, or a type whose peak would be known.
    assert_eq!((&point[4], &point[5]), (&Value::Null, &Value::from(1)));

    // Samples that only have products of matrices, unlike those of which the copies before and after have a part.
    let has = |span: &str, from, to| {
        let mut work = trace.work().filter(|work| work.start() < to && work.end() > from);
        work.any(|work| work.span().is_some_and(|of| of.name() == span))
    };
    let first = trace.work().map(Work::start).min().unwrap();
    let counters = &trace.gpu_counters()[0];
    let [read, write] = [MetricMeaning::DramRead, MetricMeaning::DramWrite].map(|it| counters.position(it).unwrap());
    let alone = counters.samples().filter(|(time, _)| {
        let is_alone = !has("memory", time.start, time.end) && !has("small", time.start, time.end);
        time.start >= first && is_alone && has("compute", time.start, time.end)
    });
    let bytes: Vec<_> = alone.map(|(_, values)| values[read] + values[write]).collect();
    assert!(bytes.len() > 10, "{bytes:?}");
    let bytes = bytes.iter().sum::<f64>() / bytes.len() as f64;
    let expected = FLOPS / kernel_seconds(&trace, "compute") / bytes;
    let intensity = point[1].as_f64().unwrap();
    assert!((intensity / expected - 1.0).abs() < 0.1, "{intensity:.1} and {expected:.1} FLOP a byte");
}
