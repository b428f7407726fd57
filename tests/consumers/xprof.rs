//! Tests of the pages that XProf, TensorBoard's profile plugin, shows for windows that were recorded on an H200.

use crate::support::{readers, recorded};
use kernspan::{
    Collected, Exporter, Profiler, Report, TensorBoard, Trace,
    analysis::Analysis,
    framework::PoolUse,
    trace::{Allocation, ApiCall, Detail, Direction, InputStage, Timestamp, Work},
};
use serde_json::Value as Json;
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};
use tracing_subscriber::prelude::*;

/// Returns recorded windows, each with the capture that XProf shows for it; `None` without Python.
fn seen(names: &[&str]) -> Option<Vec<(Trace, Json)>> {
    seen_with(names, &[])
}

/// Returns the same as [`seen`], with options of the script that queries XProf.
fn seen_with(names: &[&str], options: &[&str]) -> Option<Vec<(Trace, Json)>> {
    let traces: Vec<_> = names.iter().map(|name| recorded(name)).collect();
    let captures = captures(names.iter().copied().zip(&traces), options)?;
    Some(traces.into_iter().zip(captures).collect())
}

/// Returns the captures that XProf shows for traces, by their names; `None` without Python.
fn captures<'a>(traces: impl Iterator<Item = (&'a str, &'a Trace)> + Clone, options: &[&str]) -> Option<Vec<Json>> {
    let python = readers::environment("tensorboard.txt", "TensorBoard's pages")?;
    let folder = tempfile::tempdir().unwrap();
    for (name, trace) in traces.clone() {
        TensorBoard::to_dir(folder.path().join(name)).export(&Analysis::of(trace)).unwrap();
    }
    let arguments = [&[folder.path().to_str().unwrap()], options].concat();
    let captures = readers::run(&python, "xprof.py", &arguments).pop().unwrap();
    let capture = |name: &str| {
        let mut captures = captures.as_object().unwrap().iter().filter(|(run, _)| run.starts_with(&format!("{name}/")));
        let hosts = captures.next().unwrap().1.as_object().unwrap();
        assert!(captures.next().is_none() && hosts.len() == 1);
        hosts.values().next().unwrap().clone()
    };
    Some(traces.map(|(name, _)| capture(name)).collect())
}

fn rows<'a>(table: &'a Json, key: &str) -> Vec<&'a Json> {
    table[key].as_array().unwrap_or_else(|| panic!("no {key}")).iter().collect()
}

fn number(row: &Json, key: &str) -> f64 {
    row[key].as_f64().unwrap_or_else(|| panic!("no number {key} in {row}"))
}

fn micros(time: Duration) -> f64 {
    time.as_nanos() as f64 / 1e3
}

/// Counts and microseconds, added up by name.
type Sums = BTreeMap<String, (u64, f64)>;

fn sum(named: impl Iterator<Item = (String, u64, f64)>) -> Sums {
    let mut sums = Sums::new();
    for (name, count, micros) in named {
        let sum = sums.entry(name).or_default();
        *sum = (sum.0 + count, sum.1 + micros);
    }
    sums
}

#[track_caller]
fn assert_same(seen: &Sums, truth: &Sums) {
    assert_eq!(seen.keys().collect::<Vec<_>>(), truth.keys().collect::<Vec<_>>());
    for (name, (count, time)) in truth {
        let (seen_count, seen_time) = seen[name];
        assert_eq!(seen_count, *count, "{name}");
        assert!((seen_time - time).abs() < 1e-3 + 1e-9 * time, "{name}: {seen_time} µs, not {time}");
    }
}

const ALL: [&str; 5] = ["training", "calls", "candle", "burn", "burn-first"];

#[test]
fn every_page_has_data() {
    // In the other windows, no span has FLOPs, or nothing was allocated.
    for (trace, seen) in seen_with(&["candle", "burn-first"], &["--gpu", "--input"]).into_iter().flatten() {
        assert!(trace.losses().is_empty() && rows(&seen, "banner").is_empty(), "{}", seen["banner"]);
    }
}

#[test]
#[cfg(feature = "read")]
fn a_converted_trace_of_pytorch_is_found() {
    let Some(python) = readers::environment("tensorboard.txt", "TensorBoard's pages") else { return };
    let folder = tempfile::tempdir().unwrap();
    let file = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/torch/graph.pt.trace.json.gz");
    let trace = kernspan::read(file).unwrap().remove(0);
    TensorBoard::to_dir(folder.path().join("torch")).export(&Analysis::of(&trace)).unwrap();
    let captures = readers::run(&python, "xprof.py", &[folder.path().to_str().unwrap()]).pop().unwrap();
    let hosts: Vec<_> = captures.as_object().unwrap().values().flat_map(|hosts| hosts.as_object().unwrap()).collect();
    assert_eq!(hosts.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), ["localhost"]);
    assert!(hosts[0].1["device"].as_str().unwrap().starts_with("Nvidia GPU"), "{hosts:?}");
}

#[test]
fn the_roofs_are_those_of_the_device() {
    for (trace, seen) in seen(&ALL).into_iter().flatten() {
        let peak = |name: &str| seen["peaks"][name].as_str().unwrap().parse::<f64>().unwrap();
        let [device] = trace.devices() else { panic!("{:?}", trace.devices()) };
        // The peaks are in GFLOP/s and GiB/s, with six digits. An H200 does 989.5 · 10¹² operations a second with 16
        // bits, and moves 4.8 · 10¹² bytes a second.
        assert_eq!(peak("peak_flop_rate"), device.peak_flops("bf16").unwrap() / 1e9);
        let bandwidth = device.memory_bytes_per_second().unwrap() as f64;
        assert!((4.8e12..4.9e12).contains(&bandwidth), "{bandwidth}");
        assert!((peak("peak_hbm_bw") * f64::from(1 << 30) / bandwidth - 1.0).abs() < 1e-5, "{}", seen["peaks"]);
    }
}

#[test]
fn copies_are_as_large_as_they_were() {
    for (trace, seen) in seen_with(&["training", "burn"], &["--copies"]).into_iter().flatten() {
        let mut truth: Vec<_> = trace
            .work()
            .filter_map(|work| {
                let Detail::Copy(copy) = work.detail() else { return None };
                let name = match copy.direction {
                    Direction::HostToDevice => "MemcpyHToD",
                    Direction::DeviceToHost => "MemcpyDToH",
                    _ => "MemcpyDToD",
                };
                Some((name.to_owned(), copy.bytes))
            })
            .collect();
        let copy = |row: &Json| (row[0].as_str().unwrap().to_owned(), row[1].as_u64().unwrap());
        let mut shown: Vec<_> = rows(&seen, "copies").into_iter().map(copy).collect();
        truth.sort();
        shown.sort();
        assert!(!truth.is_empty());
        assert_eq!(shown, truth);
    }
}

#[test]
fn steps_take_as_long_as_they_took() {
    for (trace, seen) in seen(&ALL).into_iter().flatten() {
        let window = Analysis::of(&trace);
        let expected: Vec<_> = window.step_intervals().iter().map(|step| micros(step.time()) / 1e3).collect();
        let shown: Vec<_> = rows(&seen, "steps").into_iter().map(|step| number(step, "stepTimeMs")).collect();
        assert_eq!(shown.len(), expected.len());
        assert!(shown.iter().zip(&expected).all(|(shown, time)| (shown - time).abs() < 1e-6), "{shown:?} {expected:?}");
        // The steps together are no longer than the window and its work.
        let end = trace.work().map(Work::end).max().unwrap_or_default().max(trace.end());
        assert!(shown.iter().sum::<f64>() * 1e3 <= micros(end.since(trace.start())) + 1e-3);
    }
}

#[test]
fn kernels_are_as_many_and_take_as_long() {
    for (trace, seen) in seen(&ALL).into_iter().flatten() {
        let [device] = trace.devices() else { panic!("{:?}", trace.devices()) };
        let kernels = || trace.work().filter_map(|work| Some((work, work.kernel()?)));
        let truth = sum(kernels().map(|(work, kernel)| (kernel.name.to_string(), 1, micros(work.duration()))));
        let shown = rows(&seen, "kernels").into_iter().map(|row| {
            let name = row["kernel_name"].as_str().unwrap().to_owned();
            (name, number(row, "occurrences") as u64, number(row, "total_duration_us"))
        });
        assert_same(&sum(shown), &truth);
        let launches = |x: [u32; 3]| x.map(|size| size.to_string()).join(",");
        let truth: BTreeSet<_> = kernels()
            .map(|(_, kernel)| {
                let shared = kernel.static_shared_memory + kernel.dynamic_shared_memory;
                // XProf shows the theoretical occupancy in percent. It is compared to hundredths of a percent.
                let occupancy = (100.0 * device.occupancy(kernel).unwrap().theoretical_percent).round() as u32;
                (launches(kernel.grid), launches(kernel.block), u32::from(kernel.registers), shared, occupancy)
            })
            .collect();
        let shown = rows(&seen, "kernels").into_iter().map(|row| {
            let text = |key: &str| row[key].as_str().unwrap().to_owned();
            let [registers, shared] = ["registers_per_thread", "shmem_bytes"].map(|key| number(row, key) as u32);
            let occupancy = (100.0 * number(row, "occupancy_pct")).round() as u32;
            (text("grid_dim"), text("block_dim"), registers, shared, occupancy)
        });
        assert_eq!(shown.collect::<BTreeSet<_>>(), truth);
    }
}

/// Returns the path of a span as XProf shows it.
fn path(stack: impl Iterator<Item = String>) -> String {
    let mut names: Vec<_> = stack.collect();
    names.reverse();
    names.join("/")
}

#[test]
fn operations_are_spans_with_what_the_gpu_did_in_them() {
    // Without the windows of Burn, whose kernels belong to operations and not only to spans.
    for (trace, seen) in seen(&ALL[..3]).into_iter().flatten() {
        let of_side = |side: &str| {
            let rows = rows(&seen, "operations").into_iter();
            let rows = rows.filter(|row| row["host_or_device"] == *side && row["type"] != "IDLE").map(|row| {
                let name = row["operation"].as_str().unwrap().to_owned();
                (name, number(row, "occurrences") as u64, number(row, "total_self_time"))
            });
            sum(rows)
        };
        let of_program = sum(rows(&seen, "hlo").into_iter().filter(|row| row["category"] != "IDLE").map(|row| {
            let (name, _) = row["tf_op_name"].as_str().unwrap().split_once(':').unwrap();
            (name.to_owned(), number(row, "occurrences") as u64, number(row, "total_self_time"))
        }));
        let device = sum(trace.work().map(|work| {
            let names = work.span().map(|span| path(span.stack().map(|span| span.name().to_owned())));
            (names.unwrap_or_else(|| "unattributed".to_owned()), 1, micros(work.duration()))
        }));
        assert_same(&of_program, &device);
        // This page counts only the most frequent of an operation's kernels, copies and fills, so counts are not
        // compared.
        let times = |sums: &Sums| sums.iter().map(|(name, (_, time))| (name.clone(), (0, *time))).collect();
        assert_same(&times(&of_side("Device")), &times(&device));
        let host = sum(trace.spans().map(|span| {
            let names = path(span.stack().map(|span| span.name().to_owned()));
            // Stages of the input pipeline have no path.
            let name = span.input_stage().map_or(names, |_| span.name().to_owned());
            (name, 1, micros(span.self_time()))
        }));
        assert_same(&of_side("Host"), &host);
        let shown = rows(&seen, "input").into_iter().map(|row| {
            let name = row["opName"].as_str().unwrap().to_owned();
            (name, number(row, "count") as u64, 1e3 * number(row, "selfTimeInMs"))
        });
        let data = trace.spans().filter(|span| span.input_stage() == Some(InputStage::Load));
        assert_same(&sum(shown), &sum(data.map(|span| (span.name().to_owned(), 1, micros(span.self_time())))));
    }
}

#[test]
fn floating_point_operations_are_those_of_spans_and_operations() {
    for (trace, seen) in seen(&["candle", "burn"]).into_iter().flatten() {
        let report = Report::of([&trace]);
        let truth: u64 = report.gpu_steps().steps().iter().filter_map(|step| step.usage.flops).sum();
        assert!(truth > 0);
        // Rates are in billions a second, times in microseconds.
        let flops = |row: &&Json, rate: &str| number(row, rate) * 1e3 * number(row, "total_self_time");
        let shown: f64 = rows(&seen, "hlo").iter().map(|row| flops(row, "model_flop_rate")).sum();
        assert!((shown / truth as f64 - 1.0).abs() < 1e-3, "{shown} FLOPs, not {truth}");
        let of_program = |row: &&&Json| row["category"] != "Program" && row["include_infeed_outfeed"] == true;
        let roofline: f64 =
            rows(&seen, "roofline").iter().filter(of_program).map(|row| flops(row, "measured_flop_rate")).sum();
        assert!((roofline / truth as f64 - 1.0).abs() < 1e-3, "{roofline} FLOPs, not {truth}");
        assert!(rows(&seen, "hlo").iter().any(|row| row["source_info"].as_str().unwrap().contains(".rs:")));
    }
}

#[test]
fn memory_reaches_its_peak() {
    for (trace, seen) in seen(&["training", "candle", "burn-first"]).into_iter().flatten() {
        let peak = trace.allocations().map(Allocation::in_use).max().unwrap();
        let memory = &seen["memory"]["GPU 0"];
        assert_eq!(memory["peak"].as_u64(), Some(peak));
        assert_eq!(memory["timeline"].as_u64(), Some(trace.allocations().len() as u64));
        assert!(!memory["names"].as_array().unwrap().is_empty());
    }
}

/// As Burn's are: the framework's own thread reports them, and there need be no GPU.
#[test]
fn tensors_that_a_framework_reports_are_on_the_memory_page() {
    let collected = Collected::new();
    let (layer, profiler) = Profiler::builder().export(collected.clone()).build().unwrap();
    let hand_over = profiler.hand_over();
    tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
        for step in 0..4 {
            let origin = tracing::info_span!("forward").in_scope(|| hand_over.origin());
            let hand_over = hand_over.clone();
            let of_framework = move || {
                hand_over.adopt(origin);
                if step == 0 {
                    hand_over.pool(0, PoolUse { used: 1 << 20, reserved: 1 << 24, limit: None });
                }
                hand_over.allocated(0, step + 1, 1 << 16);
                if step % 2 == 1 {
                    hand_over.freed(0, step + 1, 1 << 16);
                }
            };
            std::thread::spawn(of_framework).join().unwrap();
            profiler.step();
        }
    });
    profiler.finish().unwrap();
    let trace = collected.only();
    let Some(seen) = captures([("framework", &*trace)].into_iter(), &[]) else { return };
    let memory = &seen[0]["memory"]["GPU 0"];
    assert_eq!(memory["peak"].as_u64(), Some((1 << 20) + (3 << 16)));
    assert_eq!(memory["timeline"].as_u64(), Some(6));
    let names = memory["names"].as_array().unwrap();
    assert!(names.iter().any(|name| name.as_str().unwrap().contains("forward")), "{names:?}");
}

#[test]
fn the_viewer_draws_everything_where_and_when_it_was() {
    for (trace, seen) in seen(&ALL).into_iter().flatten() {
        let since = |at: Timestamp| micros(at.since(trace.start()));
        let mut truth: Vec<(String, f64, f64)> = Vec::new();
        for span in trace.spans() {
            truth.push((span.name().to_owned(), since(span.start()), micros(span.duration())));
        }
        for call in trace.api_calls() {
            truth.push((call.name().to_owned(), since(call.start()), micros(call.duration())));
        }
        for kernel in trace.work().filter(|work| work.kernel().is_some()) {
            truth.push((kernel.name().to_string(), since(kernel.start()), micros(kernel.duration())));
        }
        let names: BTreeSet<_> = truth.iter().map(|(name, ..)| name.clone()).collect();
        let mut shown: Vec<(String, f64, f64)> = Vec::new();
        for event in rows(&seen, "events") {
            let line = event[0].as_str().unwrap();
            let is_ours = line.starts_with("Stream #") || !line.contains(" - from #");
            let name = event[1].as_str().unwrap();
            if is_ours && names.contains(name) {
                shown.push((name.to_owned(), event[2].as_f64().unwrap(), event[3].as_f64().unwrap()));
            }
        }
        let order = |a: &(String, f64, f64), b: &(String, f64, f64)| {
            a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)).then(a.2.total_cmp(&b.2))
        };
        truth.sort_by(order);
        shown.sort_by(order);
        assert_eq!(shown.len(), truth.len());
        for (shown, truth) in shown.iter().zip(&truth) {
            let same = shown.0 == truth.0 && (shown.1 - truth.1).abs() < 0.01 && (shown.2 - truth.2).abs() < 0.01;
            assert!(same, "{shown:?}, not {truth:?}");
        }
        // There is an arrow for each call that caused work.
        let calls: BTreeSet<_> = trace.work().filter_map(Work::call).map(ApiCall::correlation).collect();
        assert_eq!(seen["arrows"].as_u64(), Some(calls.len() as u64));
    }
}
