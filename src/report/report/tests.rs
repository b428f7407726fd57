//! Tests of the report.

use super::Report;
use crate::{
    analysis::Analysis,
    trace::{
        DeviceId, Gpu, GpuProblem, Step, Trace,
        sample::{gpu_trace, set_fields, spans_trace},
    },
};
use std::{collections::HashSet, path::Path};
use unicode_width::UnicodeWidthStr;

fn report(traces: &[Trace]) -> Report {
    let mut report = Report::default();
    traces.iter().for_each(|trace| report.add(&Analysis::of(trace)));
    report
}

fn without(problem: GpuProblem) -> Trace {
    Trace { gpu: Gpu::Unavailable(problem), ..Trace::default() }
}

#[test]
fn the_report_shows_what_gpus_did() {
    let report = report(&[gpu_trace(), gpu_trace()]);
    assert_eq!((report.gpu_work(), report.attributions().handed_off), (22, 8));
    assert_eq!((report.devices().len(), report.gpu_steps().devices()[0].steps), (1, 4));
    assert_eq!(report.peak_memory(DeviceId::new(0)), Some(5096));
    assert_eq!(report.peak_memory(DeviceId::new(1)), None);
    assert!(report.gpu().is_available());
    let text = report.to_string();
    for line in [
        "\n22 kernels and copies: 12 direct, 8 handed off, 2 unattributed\n",
        "\nGPU 0 memory at its peak: 4.98 KiB, 1000 B of it from before the window; most: forward 4.00 KiB\n",
        "\nGPU 0 busy 56.5 % of the steps ",
        "\nMemcpy HtoD",
        "\n[unattributed] ",
    ] {
        assert!(text.contains(line), "no {line:?} in\n{text}");
    }
    assert!(!text.contains("GPU recorded") && !text.contains("GPU not recorded"), "{text}");
}

#[test]
fn the_report_says_what_recording_cost_and_which_steps_were_slow() {
    let mut trace = gpu_trace();
    let last = trace.steps[1];
    for (index, micros) in [100, 100, 100, 900].into_iter().enumerate() {
        let start = trace.steps[trace.steps.len() - 1].end;
        let end = start + std::time::Duration::from_micros(micros);
        trace.steps.push(Step { number: 7 + index as u64, start, end, ..last });
    }
    let mut report = report(&[trace]);
    assert_eq!(report.recording_cost(), None, "nothing to compare with");
    assert!(!report.to_string().contains("profiling overhead"), "{report}");
    report.add_unrecorded_steps(vec![std::time::Duration::from_micros(80); 28]);
    let text = report.width(300).to_string();
    let cost = "\nprofiling overhead: 1.25 × (80.0 µs → 100 µs a step, quartiles 80.0 µs to 80.0 µs and \
                100 µs to 100 µs, 28 and 6 steps)\nstep 10 took 900 µs, 9.0 times the median\n";
    assert!(text.contains(cost), "{text}");
    #[cfg(feature = "serde")]
    assert_eq!(serde_json::to_value(&report).unwrap()["recording_cost"]["unrecorded"]["steps"], 28);
}

#[test]
fn the_width_of_tables_can_be_set() {
    let report = report(&[gpu_trace()]);
    assert_eq!(report.to_string(), report.width(Report::WIDTH).to_string());
    let widest = |text: &str| text.lines().filter(|line| line.starts_with("---")).map(str::len).max();
    let [narrow, wide] = [100, 400].map(|width| report.width(width).to_string());
    assert!(widest(&narrow) <= Some(100) && widest(&narrow) < widest(&wide), "{narrow}{wide}");
    assert!(narrow.contains("\nhidden to fit") && !wide.contains("\nhidden to fit"), "{narrow}{wide}");
}

/// Returns a window of a transformer with twelve layers, whose modules have long paths.
fn transformer() -> Trace {
    let modules: Vec<_> = (0..12)
        .flat_map(|layer| {
            ["attn.query_projection", "attn.key_projection", "attn.value_projection", "mlp.up_projection"]
                .map(|module| format!("model.transformer.h.{layer}.{module}"))
        })
        .collect();
    let spans: Vec<_> = (0..).zip(&modules).map(|(at, _)| ("linear", None, at * 10, at * 10 + 1 + at % 7)).collect();
    let mut trace = spans_trace(&spans);
    for (span, module) in modules.iter().enumerate() {
        set_fields(&mut trace, span, &[("op.module", module.as_str())]);
    }
    trace
}

/// Compares `text` with a golden file, or writes it there if `KERNSPAN_BLESS` is set.
fn check_golden(name: &str, text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
    if std::env::var_os("KERNSPAN_BLESS").is_some() {
        std::fs::write(&path, text).unwrap();
    }
    let golden = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(text, golden, "{name} has changed: if that is right, run with KERNSPAN_BLESS=1");
}

#[test]
fn the_report_fits_its_width_and_names_stay_different() {
    let [gpu, modules] = [report(&[gpu_trace(), gpu_trace()]), report(&[transformer()])];
    for width in [80, 120, 200] {
        let by_module = modules.averages().group_by_module(true).width(width).to_string();
        let text = format!("{}\n{by_module}", gpu.width(width));
        assert!(text.lines().all(|line| line.width() <= width), "{text}");
        let rows: Vec<_> = by_module.lines().skip(3).take(48).collect();
        let names: HashSet<_> = rows.iter().filter_map(|row| row.split_whitespace().next()).collect();
        assert_eq!(names.len(), 48, "{by_module}");
        check_golden(&format!("report_{width}.txt"), &text);
    }
    for width in 52..80 {
        let text = gpu.width(width).to_string();
        assert!(text.lines().all(|line| line.width() <= width), "{text}");
    }
}

#[test]
fn the_report_says_why_there_is_nothing_of_gpus() {
    let text = report(&[without(GpuProblem::NoDevice)]).to_string();
    assert!(text.contains("\nGPU not recorded: the NVIDIA driver sees no device\n"), "{text}");
    let text = report(&[Trace::default()]).to_string();
    assert!(!text.contains("GPU"), "{text}");
}

#[test]
fn the_last_window_says_whether_gpus_are_recorded() {
    let state = |traces: &[Trace]| report(traces).gpu().is_available();
    assert!(state(&[without(GpuProblem::NoDevice), gpu_trace(), Trace::default()]));
    assert!(!state(&[gpu_trace(), without(GpuProblem::AnotherProfiler)]));
}

#[cfg(feature = "serde")]
#[test]
fn all_of_it_can_be_serialized() {
    let json = serde_json::to_value(report(&[gpu_trace()])).unwrap();
    assert_eq!(json["gpu"], "GPU recorded by CUPTI 130001 from libcupti.so.13");
    assert_eq!(json["devices"][0]["name"], "NVIDIA H200");
    assert_eq!(json["kernels"][0]["name"], "gemm");
    assert_eq!(json["attributions"]["handed_off"], 4);
    let memory = &json["memory"][0];
    assert_eq!((&memory["device"], &memory["in_use"], &memory["before"]), (&0.into(), &5096.into(), &1000.into()));
    let owner = serde_json::json!({"name": "forward", "stack": ["train_step"], "bytes": 4096, "allocations": 1});
    assert_eq!(memory["owners"], serde_json::json!([owner]));
    assert_eq!(json["gpu_steps"]["steps"][0]["step"], 5);
    assert_eq!(json["gpu_steps"]["devices"][0]["usage"]["verdict"], "HostBound");
    assert_eq!(json["gpu_steps"]["devices"][0]["usage"]["flops"], 0);
    let gpu_time = |row: &serde_json::Value| row["self_gpu"]["nanos"].as_u64().unwrap();
    assert_eq!(json["averages"].as_array().unwrap().iter().map(gpu_time).sum::<u64>(), 158_000);
}

#[test]
fn the_parts_of_a_report_can_be_had_one_by_one() {
    let report = report(&[gpu_trace()]);
    let view = report.width(80);
    let (spans, kernels) = (report.averages().width(80), report.kernels().limit(10).width(80));
    assert_eq!((spans.table().to_string(), kernels.table().to_string()), (spans.to_string(), kernels.to_string()));
    assert_eq!(view.to_string(), format!("{spans}\n{kernels}\n{}", view.summary()));
    let peaks: Vec<_> = report.memory().peaks().map(|peak| peak.table(10).to_string()).collect();
    assert_eq!(report.memory().to_string(), peaks.concat());
    assert!(peaks[0].starts_with("GPU 0 memory at its peak: 4.98 KiB, "), "{}", peaks[0]);

    let table = report.kernels().limit(2).table();
    let titles: Vec<_> = table.columns().map(|column| (column.title(), column.is_text())).collect();
    assert_eq!(titles[..2], [("Kernel", true), ("CUDA %", false)]);
    assert!(table.columns().all(|column| column.cells().len() == 2));
    assert_eq!(table.lines_below().collect::<Vec<_>>(), [format!("{} more rows", report.kernels().rows().len() - 2)]);
}
