//! Tests of the report.

use super::Report;
use crate::trace::{DeviceId, Gpu, GpuProblem, Trace, sample::gpu_trace};

fn report(traces: &[Trace]) -> Report {
    let mut report = Report::default();
    traces.iter().for_each(|trace| report.add_trace(trace));
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
        "\nGPU 0 memory at its peak: 4.98 KB, 1000 B of it from before the window; most: forward 4.00 KB\n",
        "\nGPU 0 busy 56.5 % of the steps ",
        "\nMemcpy HtoD",
        "\n[unattributed] ",
    ] {
        assert!(text.contains(line), "no {line:?} in\n{text}");
    }
    assert!(!text.contains("GPU recorded") && !text.contains("GPU not recorded"), "{text}");
}

#[test]
fn the_width_of_tables_can_be_set() {
    let report = report(&[gpu_trace()]);
    assert_eq!(report.to_string(), report.width(Report::WIDTH).to_string());
    let widest = |text: &str| text.lines().filter(|line| line.starts_with("---")).map(str::len).max();
    let [narrow, wide] = [100, 400].map(|width| report.width(width).to_string());
    assert!(widest(&narrow) <= Some(100) && widest(&narrow) < widest(&wide), "{narrow}{wide}");
    assert!(narrow.contains("\nno room for ") && !wide.contains("\nno room for "), "{narrow}{wide}");
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
