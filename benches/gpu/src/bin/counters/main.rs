//! Checks hardware counters against arithmetic.
//!
//! - `counters probe [METRIC…]` prints the metrics that fit, what is sampled on an idle GPU, and problems.
//! - `counters truth [INTERVAL_US]` runs matrix products and copies in spans: tensor activity against FLOPs and time,
//!   DRAM traffic against bytes and time.
//! - `counters alternate [INTERVAL_US]` alternates spans of about 2 ms, and compares them with each alone.
//! - `counters cost [ROUNDS [INTERVAL_US [STEP [METRIC…]]]]` measures steps recorded without and with counters, in
//!   turns, with the 95 % confidence interval of the ratio, and the time that decoding takes of a core. STEP is
//!   `launches`, `products`, `copies` or `all`.
//! - `counters decode` prints the time on a CPU for each sample, for several sets of metrics.
//! - `counters windows [WINDOWS]` records many windows, and prints the memory of the process.
//! - `counters plain` runs the work without recording, for other profilers.

mod cost;

use self::cost::cost;
use gpu_bench::{
    Gpu,
    work::{COPIED, SIZE, Work},
};
use kernspan::{
    Collected, Counters, Profiler, Schedule, Trace,
    analysis::{Analysis, CounterSubject},
    trace::{MetricMeaning, Timestamp},
};
use std::{
    sync::{Arc, Mutex},
    time::Duration,
};
use tracing_subscriber::prelude::*;

fn counters_of(argument: Option<&String>) -> Counters {
    let interval = argument.and_then(|text| text.parse().ok()).unwrap_or(1000);
    Counters::default().every(Duration::from_micros(interval))
}

fn main() {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let number = |index: usize, default: u64| {
        arguments.get(index).and_then(|text: &String| text.parse().ok()).unwrap_or(default)
    };
    match arguments.first().map(String::as_str) {
        Some("probe") => probe(&arguments[1..]),
        Some("truth") => truth(counters_of(arguments.get(1))),
        Some("alternate") => alternate(&counters_of(arguments.get(1))),
        Some("cost") => {
            let step = arguments.get(3).map_or("all", String::as_str);
            cost(number(1, 60) as usize, number(2, 1000), step, arguments.get(4..).unwrap_or_default());
        }
        Some("decode") => decode(),
        Some("windows") => windows(number(1, 50) as usize),
        Some("plain") => plain(),
        _ => panic!("counters probe|truth|alternate|cost|decode|windows|plain"),
    }
}

/// Records one window of `run` with these counters.
fn record(counters: Counters, run: impl FnOnce()) -> Arc<Trace> {
    let collected = Collected::new();
    let builder = Profiler::builder().schedule(Schedule::manual()).counters(counters).memory_limit_bytes(1 << 30);
    let (layer, profiler) = builder.export(collected.clone()).build().expect("a profiler");
    assert!(profiler.gpu().is_available(), "{}", profiler.gpu());
    // The counters are set up in the background.
    std::thread::sleep(Duration::from_secs(1));
    tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
        let guard = profiler.record();
        run();
        drop(guard);
    });
    let report = profiler.finish().expect("a report");
    let trace = collected.only();
    println!("  {}; {} pieces of work, {}", trace.gpu(), trace.work().len(), report.losses());
    trace
}

fn probe(metrics: &[String]) {
    let counters = metrics.iter().fold(Counters::default(), Counters::metric);
    let trace = record(counters, || std::thread::sleep(Duration::from_millis(100)));
    for counters in trace.gpu_counters() {
        println!("every {:?}: {} samples, {} lost", counters.interval(), counters.samples().len(), counters.lost());
        println!("problem: {:?}", counters.problem());
        for (index, metric) in counters.metrics().iter().enumerate() {
            let values: Vec<_> = counters.samples().map(|(_, values)| values[index]).collect();
            let mean = values.iter().sum::<f64>() / values.len().max(1) as f64;
            println!("  {:<80} mean {mean:.4}", metric.name());
        }
    }
}

/// Returns the mean of a metric over the samples that lie within a time range, and their number.
fn mean(trace: &Trace, meaning: MetricMeaning, from: Timestamp, to: Timestamp) -> (f64, usize) {
    let counters = trace.gpu_counters().first().expect("counters");
    let Some(index) = counters.position(meaning) else { return (f64::NAN, 0) };
    let within = counters.samples().filter(|(time, _)| time.start >= from && time.end <= to);
    let values: Vec<_> = within.map(|(_, values)| values[index]).collect();
    (values.iter().sum::<f64>() / values.len() as f64, values.len())
}

fn truth(counters: Counters) {
    let gpu = Gpu::new();
    let mut work = Work::new(&gpu);
    (0..5).for_each(|_| work.multiply(SIZE));
    work.copy(COPIED);
    work.wait();
    let trace = record(counters, || {
        tracing::info_span!("products").in_scope(|| (0..60).for_each(|_| work.multiply(SIZE)));
        work.wait();
        tracing::info_span!("copies").in_scope(|| (0..60).for_each(|_| work.copy(COPIED)));
        work.wait();
    });
    let sampled = &trace.gpu_counters()[0];
    println!("{} samples every {:?}, {:?}", sampled.samples().len(), sampled.interval(), sampled.problem());
    for name in ["products", "copies"] {
        let of_span = || trace.work().filter(|work| work.span().is_some_and(|span| span.name() == name));
        let start = of_span().map(kernspan::trace::Work::start).min().expect("work");
        let end = of_span().map(kernspan::trace::Work::end).max().expect("work");
        let busy: f64 = of_span().map(|work| work.duration().as_secs_f64()).sum();
        let value = |meaning| mean(&trace, meaning, start, end);
        let (tensor, samples) = value(MetricMeaning::TensorActive);
        let (clock, _) = value(MetricMeaning::SmClock);
        let (read, write) = (value(MetricMeaning::DramRead).0, value(MetricMeaning::DramWrite).0);
        println!(
            "{name}: {samples} samples, SM {:.1} %, tensor {tensor:.1} %, DRAM {:.1} %, read {:.1} GB/s, \
             write {:.1} GB/s, \
             PCIe {:.3}/{:.3} GB/s, SM clock {:.0} MHz",
            value(MetricMeaning::SmActive).0,
            value(MetricMeaning::DramActive).0,
            read / 1e9,
            write / 1e9,
            value(MetricMeaning::PcieReceived).0 / 1e9,
            value(MetricMeaning::PcieSent).0 / 1e9,
            clock / 1e6,
        );
        // A product may take several pieces of work.
        let count = 60.0;
        if name == "products" {
            // Each of the 132 SMs of an H200 has four tensor cores that do 1024 FLOPs of bf16 a cycle.
            let predicted = tensor / 100.0 * clock * 132.0 * 4.0 * 1024.0;
            let measured = count * 2.0 * (SIZE as f64).powi(3) / busy;
            println!(
                "  {:.1} TFLOP/s by counters, {:.1} by time: {:.3}",
                predicted / 1e12,
                measured / 1e12,
                predicted / measured
            );
        } else {
            let measured = count * 2.0 * COPIED as f64 / busy;
            let predicted = read + write;
            println!(
                "  {:.1} GB/s by counters, {:.1} by time: {:.3}",
                predicted / 1e9,
                measured / 1e9,
                predicted / measured
            );
        }
    }
}

/// Spans of about 2 ms on an H200: products of matrices, and copies. Instead of a span that is left out, one SM is busy
/// for as long, so that the GPU's clocks are the same.
fn run_spans(gpu: &Gpu, work: &mut Work, rounds: usize, compute: bool, memory: bool) {
    const CYCLES: i64 = 3_500_000;
    let pause = |work: &Work| gpu.spin(CYCLES, &work.stream).expect("a launch");
    for _ in 0..rounds {
        match compute {
            true => tracing::info_span!("compute").in_scope(|| (0..10).for_each(|_| work.multiply(4096))),
            false => tracing::info_span!("pause").in_scope(|| pause(work)),
        }
        match memory {
            true => tracing::info_span!("memory").in_scope(|| (0..2).for_each(|_| work.copy(COPIED))),
            false => tracing::info_span!("pause").in_scope(|| pause(work)),
        }
    }
    work.wait();
}

fn alternate(counters: &Counters) {
    let gpu = Gpu::new();
    let mut work = Work::new(&gpu);
    run_spans(&gpu, &mut work, 20, true, true);
    let meanings = [MetricMeaning::SmActive, MetricMeaning::TensorActive, MetricMeaning::DramActive];
    let mut values = |compute: bool, memory: bool, span: &str| {
        let trace = record(counters.clone(), || run_spans(&gpu, &mut work, 100, compute, memory));
        let window = Analysis::of(&trace);
        let subject = CounterSubject::Span(span.to_owned());
        let found = window.counter_uses().iter().find(|uses| uses.subject == subject).cloned();
        let of_span = found.unwrap_or_else(|| {
            let sampled = trace.gpu_counters().first().map(|it| (it.samples().len(), it.problem()));
            panic!(
                "{subject:?} of {} spans and {} pieces of work; {sampled:?}",
                trace.spans().len(),
                trace.work().len()
            )
        });
        let per_span = of_span.gpu / 100;
        let values =
            meanings.map(|meaning| of_span.value(meaning).map_or((f64::NAN, f64::NAN), |it| (it.mean, it.error)));
        (per_span, of_span.samples, values)
    };
    let mut worst: f64 = 0.0;
    for span in ["compute", "memory"] {
        let (alone_time, _, alone) = values(span == "compute", span == "memory", span);
        let (mixed_time, samples, mixed) = values(true, true, span);
        println!("{span}: {alone_time:?} alone, {mixed_time:?} in turns, {samples} samples");
        for ((meaning, alone), mixed) in meanings.iter().zip(alone).zip(mixed) {
            let (points, error) = (mixed.0 - alone.0, mixed.1);
            worst = worst.max(points.abs());
            println!(
                "  {meaning:?}: alone {:.1} %, in turns {:.1} ± {error:.1} %: {points:+.1} points",
                alone.0, mixed.0
            );
        }
    }
    println!("the largest difference is {worst:.1} points");
}

/// A step of a training: products and copies of some hundred microseconds, and small kernels.
fn step(gpu: &Gpu, work: &mut Work) {
    let _step = tracing::info_span!("step").entered();
    tracing::info_span!("compute").in_scope(|| (0..4).for_each(|_| work.multiply(2048)));
    tracing::info_span!("memory").in_scope(|| work.copy(COPIED / 4));
    tracing::info_span!("small").in_scope(|| {
        (0..200).for_each(|number| gpu.launch(number % 8, 1, 32, &work.stream).expect("a launch"));
    });
}

/// The time that threads of this name have spent on a CPU.
fn cpu_time(name: &str) -> Duration {
    let tasks = std::fs::read_dir("/proc/self/task").expect("threads");
    let nanos = tasks.flatten().filter_map(|task| {
        let comm = std::fs::read_to_string(task.path().join("comm")).ok()?;
        let stat = std::fs::read_to_string(task.path().join("schedstat")).ok()?;
        name.starts_with(comm.trim()).then(|| stat.split(' ').next()?.parse::<u64>().ok()).flatten()
    });
    Duration::from_nanos(nanos.sum())
}

fn decode() {
    const SETS: [(&str, &[&str]); 5] = [
        ("the defaults", &[]),
        ("one", &["sm__cycles_active.avg.pct_of_peak_sustained_elapsed"]),
        (
            "SM, tensor and clock",
            &[
                "sm__cycles_active.avg.pct_of_peak_sustained_elapsed",
                "sm__pipe_tensor_cycles_active_realtime.avg.pct_of_peak_sustained_elapsed",
                "sm__cycles_elapsed.avg.per_second",
            ],
        ),
        ("DRAM in %", &["dram__throughput.avg.pct_of_peak_sustained_elapsed"]),
        ("DRAM in bytes", &["dram__bytes_read.sum.per_second", "dram__bytes_write.sum.per_second"]),
    ];
    for (name, metrics) in SETS {
        let defaults = Counters::default();
        let counters = if metrics.is_empty() { defaults } else { defaults.without_defaults() };
        let counters = metrics.iter().fold(counters, |counters, metric| counters.metric(*metric));
        let mut used = Duration::ZERO;
        let trace = record(counters, || {
            let before = cpu_time("kernspan-counters");
            std::thread::sleep(Duration::from_secs(1));
            used = cpu_time("kernspan-counters") - before;
        });
        let samples = trace.gpu_counters()[0].samples().len().max(1) as u32;
        println!("{name}: {samples} samples, {:?} each", used / samples);
    }
}

fn windows(windows: usize) {
    let gpu = Gpu::new();
    let mut work = Work::new(&gpu);
    (0..100).for_each(|_| step(&gpu, &mut work));
    work.wait();
    let seen = Arc::new(Mutex::new((0, 0, Vec::new())));
    let check = Arc::clone(&seen);
    let builder = Profiler::builder().schedule(Schedule::new().wait(40).active(20).repeat(windows as u64));
    let builder = builder.counters(Counters::default()).on_trace(move |window| {
        let mut seen = check.lock().expect("no panic");
        seen.0 += 1;
        for counters in window.gpu_counters() {
            seen.1 += counters.samples().len();
            seen.2.extend(counters.problem().map(|problem| format!("window {}: {problem}", window.window())));
        }
    });
    let (layer, profiler) = builder.build().expect("a profiler");
    std::thread::sleep(Duration::from_secs(1));
    let resident = || std::fs::read_to_string("/proc/self/statm").ok()?.split(' ').nth(1)?.parse::<usize>().ok();
    let mut memory = Vec::new();
    tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
        for number in 0..windows * 60 + 40 {
            step(&gpu, &mut work);
            profiler.step();
            if number % (windows * 60 / 10) == 0 {
                work.wait();
                memory.push(resident().unwrap_or(0) / 256);
            }
        }
        work.wait();
    });
    let report = profiler.finish().expect("a report");
    let (count, samples, problems) = std::mem::take(&mut *seen.lock().expect("no panic"));
    println!(
        "{count} windows, {samples} samples, {}, {:?} unattributed",
        report.losses(),
        report.attributions().unattributed
    );
    println!("resident memory in MiB: {memory:?}; problems: {problems:?}");
}

fn plain() {
    let gpu = Gpu::new();
    let mut work = Work::new(&gpu);
    work.multiply(SIZE);
    work.multiply(4096);
    work.multiply(2048);
    work.copy(COPIED);
    work.copy(COPIED / 4);
    work.wait();
}
