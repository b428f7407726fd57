mod received;

use self::received::{buckets, check, collected, histograms, numbers, of, point, points, temporality, texts};
use super::{
    Measured, Metrics,
    hardware::{Gpu, Hardware, Reading},
    histogram::{KERNEL_BOUNDS, STEP_BOUNDS},
    table::{INSTRUMENTS, Instrument, Kind},
};
use crate::{
    export::{
        StepSummary,
        otlp::{
            run_trace::RunTrace,
            settings::Settings,
            span_writer,
            tally::{Cause, Tally},
        },
    },
    schedule::Phase,
    trace::{
        Metadata, Timestamp, Trace,
        sample::{at, gpu_trace},
    },
};
use opentelemetry_proto::tonic::metrics::v1::{AggregationTemporality, MetricsData, ScopeMetrics, exemplar};
use prost::Message;
use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

const DELTA: (&str, &str) = ("OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE", "delta");

fn settings(variables: &[(&str, &str)]) -> Settings {
    Settings::read(|name| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned()))
}

fn run(settings: &Settings) -> RunTrace {
    RunTrace::new(&Metadata::default(), at(0), settings.parent, settings.sampler)
}

fn metrics(samples_per_step: Option<u64>, variables: &[(&str, &str)]) -> Metrics {
    let settings = settings(variables);
    Metrics::new(at(0), run(&settings), samples_per_step, &settings)
}

fn step(number: u64, phase: Phase, micros: u64, counters: &[(&'static str, f64)]) -> StepSummary {
    let (start, duration) = (at(1000 * number), Duration::from_micros(micros));
    StepSummary { number, phase, start, duration, ended: true, counters: counters.to_vec() }
}

fn measured(metrics: &mut Metrics) -> &mut Measured {
    metrics.measured.as_mut().unwrap()
}

#[test]
fn names_are_all_different_and_bounds_go_up() {
    let names: BTreeSet<_> = INSTRUMENTS.iter().map(|instrument| instrument.name).collect();
    assert_eq!(names.len(), INSTRUMENTS.len());
    for bounds in [STEP_BOUNDS, KERNEL_BOUNDS] {
        assert!(bounds.is_sorted_by(|one, next| one < next), "{bounds:?}");
    }
}

/// The table in the documentation is this one.
#[test]
fn metrics_are_documented() {
    let rows = include_str!("../mod.rs").lines().skip_while(|line| *line != "/// # Metrics");
    let rows: Vec<_> =
        rows.take_while(|line| *line != "/// # Environment").filter(|row| row.starts_with("/// | `")).collect();
    let code = |text: &str| if text.is_empty() { String::new() } else { format!("`{text}`") };
    let expected = INSTRUMENTS.iter().map(|Instrument { name, kind, unit, attributes, description }| {
        let kind = match kind {
            Kind::Gauge => "gauge",
            Kind::Counter => "counter",
            Kind::UpDownCounter => "up-down counter",
            Kind::Histogram => "histogram",
        };
        let attributes = attributes.iter().map(|name| code(name)).collect::<Vec<_>>().join(", ");
        format!("/// | {} | {kind} | {} | {attributes} | {description} |", code(name), code(unit))
    });
    assert_eq!(rows, expected.collect::<Vec<_>>());
}

#[test]
fn steps_are_told_by_phase_and_time() {
    let mut metrics = metrics(None, &[]);
    metrics.add_step(&step(0, Phase::Wait, 7_000_000, &[]));
    for (number, micros) in [(1, 250), (2, 500), (3, 501)] {
        metrics.add_step(&step(number, Phase::Wait, micros, &[]));
    }
    metrics.add_step(&step(4, Phase::Warmup, 0, &[]));
    metrics.add_step(&step(5, Phase::Record, 200_000_000, &[]));
    metrics.add_step(&step(6, Phase::RecordAndSave, 1_000_000, &[]));
    metrics.add_step(&StepSummary { ended: false, ..step(7, Phase::Wait, 1, &[("loss", 1.0)]) });
    let found = collected(&mut metrics, 300, &[]);
    let [wait, warmup, record] = histograms(&found["kernspan.step.duration"]) else { panic!("{found:?}") };
    let phases: Vec<_> = [wait, warmup, record].iter().map(|point| texts(&point.attributes)).collect();
    assert_eq!(phases, ["wait", "warmup", "record"]);
    // What is equal to a bound is below it.
    assert_eq!(buckets(wait, STEP_BOUNDS), [(0.0005, 2), (0.001, 1)]);
    assert_eq!(buckets(warmup, STEP_BOUNDS), [(0.0001, 1)]);
    assert_eq!(buckets(record, STEP_BOUNDS), [(1.0, 1), (f64::INFINITY, 1)]);
    assert!((wait.sum.unwrap() - 0.001_251).abs() < 1e-12, "{:?}", wait.sum);
    assert_eq!((wait.min, wait.max), (Some(0.000_25), Some(0.000_501)));
    assert_eq!((record.sum, record.min, record.max), (Some(201.0), Some(1.0), Some(200.0)));
    assert_eq!(temporality(&found["kernspan.step.duration"]), AggregationTemporality::Cumulative);
    let times = (wait.start_time_unix_nano, wait.time_unix_nano);
    assert_eq!(times, (at(0).as_unix_nanos(), at(300_000_000).as_unix_nanos()));
    assert_eq!(point(&found, "kernspan.step.number"), Some(6.0));
}

#[test]
fn recorded_steps_are_examples() {
    let mut metrics = metrics(None, &[]);
    metrics.add_step(&step(1, Phase::Wait, 300, &[]));
    // The second of a bucket takes the place of the first.
    for (number, micros) in [(2, 300), (3, 400), (4, 9000)] {
        metrics.add_step(&step(number, Phase::Record, micros, &[]));
    }
    let found = collected(&mut metrics, 1, &[]);
    let [wait, record] = histograms(&found["kernspan.step.duration"]) else { panic!("{found:?}") };
    assert_eq!(wait.exemplars, []);
    let run = run(&settings(&[]));
    assert_eq!(record.exemplars.len(), 2);
    for (exemplar, (number, micros)) in record.exemplars.iter().zip([(3, 400), (4, 9000)]) {
        let trace = run.step(number).unwrap();
        assert_eq!(exemplar.trace_id, trace.trace.to_bytes());
        assert_eq!(exemplar.span_id, trace.root.to_bytes());
        assert_eq!(exemplar.time_unix_nano, at(1000 * number + micros).as_unix_nanos());
        let value = exemplar::Value::AsDouble(micros as f64 / 1e6);
        assert_eq!(exemplar.value, Some(value));
    }
    // Each is told once.
    let found = collected(&mut metrics, 2, &[]);
    assert!(histograms(&found["kernspan.step.duration"]).iter().all(|point| point.exemplars.is_empty()));
}

#[test]
fn a_trace_that_is_not_sent_is_no_example() {
    let reasons = [
        ("OTEL_METRICS_EXEMPLAR_FILTER", "always_off"),
        ("OTEL_TRACES_EXPORTER", "none"),
        ("OTEL_TRACES_SAMPLER", "always_off"),
    ];
    for reason in reasons {
        let mut metrics = metrics(None, &[reason]);
        metrics.add_step(&step(1, Phase::Record, 300, &[]));
        let found = collected(&mut metrics, 1, &[]);
        assert_eq!(histograms(&found["kernspan.step.duration"])[0].exemplars, [], "{reason:?}");
    }
}

#[test]
fn rates_need_steps_and_samples() {
    let mut plain = metrics(None, &[]);
    plain.add_step(&step(0, Phase::Wait, 100, &[]));
    let found = collected(&mut plain, 1, &[]);
    assert_eq!(point(&found, "kernspan.step.number"), Some(0.0));
    assert_eq!(point(&found, "kernspan.step.rate"), None);
    plain.add_step(&step(1, Phase::Wait, 250_000, &[]));
    plain.add_step(&step(2, Phase::Wait, 750_000, &[]));
    let found = collected(&mut plain, 2, &[]);
    assert_eq!(point(&found, "kernspan.step.rate"), Some(2.0));
    assert_eq!(point(&found, "kernspan.throughput"), None);

    let mut sampled = metrics(Some(32), &[]);
    sampled.add_step(&step(1, Phase::Wait, 500_000, &[]));
    sampled.add_step(&step(2, Phase::Wait, 500_000, &[("samples", 8.0)]));
    assert_eq!(point(&collected(&mut sampled, 2, &[]), "kernspan.throughput"), Some(40.0));
}

#[test]
fn counters_keep_their_last_value() {
    let mut metrics = metrics(None, &[]);
    metrics.add_step(&step(0, Phase::Wait, 1, &[("loss", 2.0), ("lr", 0.1)]));
    metrics.add_step(&step(1, Phase::Wait, 1, &[("loss", f64::INFINITY)]));
    let found = collected(&mut metrics, 1, &[]);
    assert_eq!(points(&found, "kernspan.counter"), of(&[("loss", f64::INFINITY), ("lr", 0.1)]));
    // Also of what comes after the last step.
    metrics.add_step(&StepSummary { ended: false, ..step(2, Phase::Wait, 1, &[("loss", f64::NAN)]) });
    let found = collected(&mut metrics, 2, &[]);
    assert!(points(&found, "kernspan.counter")[0].1.is_nan());
}

#[test]
fn there_are_only_so_many_counters() {
    let names: Vec<&'static str> = (0..300).map(|name| &*format!("counter {name}").leak()).collect();
    let mut metrics = metrics(None, &[]);
    for number in 0..2 {
        let counters: Vec<_> = names.iter().map(|&name| (name, number as f64)).collect();
        metrics.add_step(&step(number, Phase::Wait, 1, &counters));
    }
    let found = collected(&mut metrics, 1, &[]);
    let counters = points(&found, "kernspan.counter");
    assert_eq!(counters.len(), 256);
    assert!(counters.iter().all(|(_, value)| *value == 1.0));
    assert_eq!(points(&found, "kernspan.lost"), of(&[("counter_names", 88.0)]));
}

#[test]
fn windows_are_added_up() {
    let mut metrics = metrics(None, &[]);
    let mut trace = gpu_trace();
    trace.losses.late = 3;
    trace.losses.gpu_dropped = 1;
    metrics.add_window(&trace);
    metrics.add_window(&trace);
    let found = collected(&mut metrics, 1, &[]);
    let expected = [
        ("gpu.cuda.kernel.launch.calls", &[("", 8.0)][..]),
        ("gpu.cuda.graph.launch.calls", &[("", 4.0)]),
        ("gpu.cuda.memory.copies", &[("HtoD", 4.0)]),
        ("gpu.cuda.memory.copied", &[("HtoD", 16_000.0)]),
        ("gpu.cuda.memory.allocations", &[("", 4.0)]),
        ("kernspan.gpu.busy", &[("GPU-0", 0.59)]),
        ("kernspan.gpu.memory.peak", &[("GPU-0", 5096.0)]),
        ("kernspan.lost", &[("late", 6.0), ("gpu_dropped", 2.0)]),
    ];
    for (name, expected) in expected {
        assert_eq!(points(&found, name), of(expected), "{name}");
    }
    let [kernels] = histograms(&found["gpu.kernel.duration"]) else { panic!("{found:?}") };
    assert_eq!(buckets(kernels, KERNEL_BOUNDS), [(0.000_01, 6), (0.000_02, 4), (0.000_05, 4)]);
    assert_eq!((kernels.min, kernels.max), (Some(0.000_01), Some(0.000_03)));
    assert!((kernels.sum.unwrap() - 0.000_26).abs() < 1e-12, "{:?}", kernels.sum);
}

#[test]
fn what_was_not_recorded_is_not_told_of() {
    let mut metrics = metrics(None, &[]);
    metrics.add_window(&Trace::default());
    let found = collected(&mut metrics, 1, &[]);
    let recorded = |name: &&String| name.starts_with("gpu.") || name.starts_with("kernspan.");
    assert_eq!(found.keys().filter(recorded).collect::<Vec<_>>(), [""; 0]);
}

#[test]
fn deltas_begin_again_each_time() {
    let tally = Tally::default();
    let tallies = [("traces", Some(&tally))];
    let mut metrics = metrics(None, &[DELTA]);
    metrics.add_step(&step(1, Phase::Record, 300, &[]));
    metrics.add_window(&gpu_trace());
    tally.send(10);
    let first = collected(&mut metrics, 1, &tallies);
    assert_eq!(point(&first, "gpu.cuda.kernel.launch.calls"), Some(4.0));
    assert_eq!(point(&first, "kernspan.otlp.sent"), Some(10.0));

    metrics.add_step(&step(2, Phase::Record, 5000, &[]));
    metrics.add_window(&gpu_trace());
    tally.send(5);
    let second = collected(&mut metrics, 3, &tallies);
    let [steps] = histograms(&second["kernspan.step.duration"]) else { panic!("{second:?}") };
    assert_eq!(buckets(steps, STEP_BOUNDS), [(0.005, 1)]);
    assert_eq!((steps.sum, steps.min, steps.max), (Some(0.005), Some(0.005), Some(0.005)));
    assert_eq!(steps.exemplars.len(), 1);
    assert_eq!(point(&second, "gpu.cuda.kernel.launch.calls"), Some(4.0));
    assert_eq!(points(&second, "gpu.cuda.memory.copied"), of(&[("HtoD", 8000.0)]));
    assert_eq!(point(&second, "kernspan.otlp.sent"), Some(5.0));
    let times = (at(1_000_000).as_unix_nanos(), at(3_000_000).as_unix_nanos());
    assert_eq!((steps.start_time_unix_nano, steps.time_unix_nano), times);
    let sent = &numbers(&second["kernspan.otlp.sent"])[0];
    assert_eq!((sent.start_time_unix_nano, sent.time_unix_nano), times);
    for name in ["kernspan.step.duration", "gpu.kernel.duration", "kernspan.otlp.sent"] {
        assert_eq!(temporality(&second[name]), AggregationTemporality::Delta, "{name}");
    }
    #[cfg(target_os = "linux")]
    assert_eq!(temporality(&second["process.memory.usage"]), AggregationTemporality::Cumulative);

    let third = collected(&mut metrics, 4, &tallies);
    assert!(!third.contains_key("kernspan.step.duration") && !third.contains_key("gpu.kernel.duration"));
    assert_eq!(point(&third, "gpu.cuda.kernel.launch.calls"), Some(0.0));
    // What is no sum stays.
    assert_eq!(point(&third, "kernspan.step.number"), Some(2.0));
}

#[test]
fn sums_go_on_otherwise() {
    let mut metrics = metrics(None, &[]);
    for number in 1..=3 {
        metrics.add_step(&step(number, Phase::Wait, 300, &[]));
        metrics.add_window(&gpu_trace());
        let found = collected(&mut metrics, number, &[]);
        let steps = &histograms(&found["kernspan.step.duration"])[0];
        assert_eq!((steps.count, steps.start_time_unix_nano), (number, at(0).as_unix_nanos()));
        assert_eq!(point(&found, "gpu.cuda.kernel.launch.calls"), Some(4.0 * number as f64));
    }
}

#[test]
fn what_became_of_what_was_sent_is_told() {
    let (traces, sent) = (Tally::default(), Tally::default());
    traces.send(100);
    traces.lose(Cause::NoRoom, 7);
    sent.lose(Cause::TooLate, 2);
    let mut metrics = metrics(None, &[]);
    let found = collected(&mut metrics, 1, &[("traces", Some(&traces)), ("metrics", Some(&sent))]);
    assert_eq!(points(&found, "kernspan.otlp.sent"), of(&[("traces", 100.0), ("metrics", 0.0)]));
    let lost = points(&found, "kernspan.otlp.lost");
    let lost: Vec<_> = lost.into_iter().filter(|(_, count)| *count > 0.0).collect();
    assert_eq!(lost, of(&[("traces no_room", 7.0), ("metrics too_late", 2.0)]));
    // A signal that is off has nothing to tell.
    let found = collected(&mut metrics, 2, &[("traces", None), ("metrics", Some(&sent))]);
    assert_eq!(points(&found, "kernspan.otlp.sent"), of(&[("metrics", 0.0)]));
}

#[cfg(target_os = "linux")]
#[test]
fn the_process_is_there_from_the_beginning() {
    let mut metrics = metrics(None, &[]);
    let (bytes, _) = metrics.collect(true, &[]).unwrap();
    let found: Vec<_> = ScopeMetrics::decode(&bytes[..]).unwrap().metrics;
    found.iter().for_each(check);
    let names: BTreeSet<_> = found.iter().map(|metric| &*metric.name).collect();
    for name in ["process.cpu.time", "process.memory.usage", "process.thread.count"] {
        assert!(names.contains(name), "{names:?}");
    }
    let cpu = found.iter().find(|metric| metric.name == "process.cpu.time").unwrap();
    assert_eq!(numbers(cpu).iter().map(|point| texts(&point.attributes)).collect::<Vec<_>>(), ["user", "system"]);
}

#[test]
fn a_request_is_what_collectors_take() {
    let mut metrics = metrics(None, &[]);
    metrics.add_step(&step(1, Phase::Record, 300, &[("loss", 0.5)]));
    metrics.add_window(&gpu_trace());
    let (bytes, _) = metrics.collect(true, &[]).unwrap();
    let request = span_writer::envelope(&[], &bytes);
    let [of_resource] = &MetricsData::decode(&request[..]).unwrap().resource_metrics[..] else { panic!("{request:?}") };
    let [scope] = &of_resource.scope_metrics[..] else { panic!("{of_resource:?}") };
    assert_eq!(scope.scope.as_ref().unwrap().name, "kernspan");
    assert_eq!(scope.metrics, ScopeMetrics::decode(&bytes[..]).unwrap().metrics);
    // Nothing is there that a collector would not know.
    assert_eq!(MetricsData::decode(&request[..]).unwrap().encoded_len(), request.len());
}

#[test]
fn metrics_are_collected_in_time() {
    let mut slow = metrics(None, &[("OTEL_METRIC_EXPORT_INTERVAL", "86400000")]);
    assert_eq!(slow.collect(false, &[]), None);
    assert!(slow.collect(true, &[]).is_some());
    let mut off = metrics(None, &[("OTEL_METRICS_EXPORTER", "none")]);
    off.add_step(&step(1, Phase::Wait, 1, &[]));
    off.add_window(&gpu_trace());
    assert_eq!(off.collect(true, &[]), None);
    assert!(off.measured.is_none(), "nobody looks for GPUs");
}

#[test]
fn a_clock_that_is_set_back_does_no_harm() {
    for variables in [&[][..], &[DELTA]] {
        let mut metrics = metrics(None, variables);
        let wall = |seconds: u64| Timestamp::from_unix_nanos(seconds * 1_000_000_000);
        for now in [wall(2_000_000_000), wall(1_000_000_000)] {
            metrics.add_step(&step(1, Phase::Wait, 1, &[]));
            let (bytes, _) = measured(&mut metrics).collect(Instant::now(), now, &[]);
            ScopeMetrics::decode(&bytes[..]).unwrap().metrics.iter().for_each(check);
        }
    }
}

#[test]
fn gpus_say_what_they_can() {
    let mut metrics = metrics(None, &[DELTA]);
    let now = measured(&mut metrics).last.0;
    let first = Reading {
        utilization: Some(0.25),
        memory: Some((10, 40)),
        temperature: Some(50.0),
        power: Some(100.0),
        energy: Some(5000.0),
    };
    let second =
        Reading { utilization: Some(0.75), memory: Some((20, 40)), power: Some(300.0), energy: Some(5200.0), ..first };
    let mut able = Gpu::new("GPU-0".to_owned(), "NVIDIA H200".to_owned(), first, now);
    able.add(second, now);
    let unable = Gpu::new("GPU-1".to_owned(), "NVIDIA T1".to_owned(), Reading::default(), now);
    measured(&mut metrics).hardware = Hardware::of([able, unable]);
    let found = collected(&mut metrics, 1, &[]);
    let labels = "GPU-0 NVIDIA H200 gpu";
    let expected = [
        ("hw.gpu.utilization", 0.5),
        ("hw.gpu.memory.utilization", 0.5),
        ("hw.gpu.memory.usage", 20.0),
        ("hw.gpu.memory.limit", 40.0),
        ("hw.temperature", 50.0),
        ("hw.power", 200.0),
        ("hw.energy", 200.0),
    ];
    for (name, value) in expected {
        assert_eq!(points(&found, name), of(&[(labels, value)]), "{name}");
    }
    // Nothing was read since: it is as it was.
    let found = collected(&mut metrics, 2, &[]);
    assert_eq!(points(&found, "hw.gpu.utilization"), of(&[(labels, 0.75)]));
    assert_eq!(points(&found, "hw.energy"), of(&[(labels, 0.0)]));
    // For too long.
    let (bytes, _) = measured(&mut metrics).collect(now + Duration::from_secs(3600), at(3_000_000), &[]);
    let found = ScopeMetrics::decode(&bytes[..]).unwrap().metrics;
    assert!(!found.iter().any(|metric| metric.name.starts_with("hw.")));
}

/// Where there are GPUs, they are known by what CUDA calls them, too; elsewhere nothing is said.
#[cfg(target_os = "linux")]
#[test]
fn gpus_are_read_where_there_are_any() {
    let mut metrics = metrics(None, &[]);
    let (bytes, _) = metrics.collect(true, &[]).unwrap();
    let found = ScopeMetrics::decode(&bytes[..]).unwrap().metrics;
    found.iter().for_each(check);
    let hardware: Vec<_> = found.iter().filter(|metric| metric.name.starts_with("hw.")).collect();
    if !std::path::Path::new("/proc/driver/nvidia/version").exists() {
        println!("skipped: no NVIDIA driver");
        assert!(hardware.is_empty(), "{hardware:?}");
        return;
    }
    for metric in hardware {
        for point in numbers(metric) {
            let labels = texts(&point.attributes);
            println!("{} {labels}: {:?} {}", metric.name, point.value, metric.unit);
            assert!(labels.starts_with("GPU-") && labels.ends_with(" gpu"), "{labels}");
        }
    }
}
