//! XProf on traces that were never recorded: two ranks with collectives, counters, losses, steps that cross spans, a
//! host without a GPU.
//!
//! `xprof.rs` has those on recorded traces.

use crate::support::readers;
use kernspan::{
    Exporter, TensorBoard, Trace,
    analysis::Analysis,
    trace::{
        GpuProblem, Span,
        sample::{
            add_counter, at, gpu_trace, losses_mut, ranks, remove_gpu, rename, retain_work, set_boundary, set_fields,
            set_flops, set_start,
        },
    },
};
use serde_json::{Value as Json, json};

/// The pages that XProf shows for these traces in one folder, by capture and host; `None` without Python.
fn seen(traces: &[Trace], options: &[&str]) -> Option<Json> {
    let python = readers::environment("tensorboard.txt", "TensorBoard's pages")?;
    let folder = tempfile::tempdir().unwrap();
    for trace in traces {
        TensorBoard::to_dir(folder.path()).export(&Analysis::of(trace)).unwrap();
    }
    let arguments = [&[folder.path().to_str().unwrap()], options].concat();
    readers::run(&python, "xprof.py", &arguments).pop()
}

/// The pages of each host of the one capture.
fn hosts(seen: &Json) -> Vec<(&str, &Json)> {
    let captures: Vec<_> = seen.as_object().unwrap().values().collect();
    let [capture] = captures[..] else { panic!("{:?}", seen.as_object().unwrap().keys()) };
    capture.as_object().unwrap().iter().map(|(host, pages)| (host.as_str(), pages)).collect()
}

#[test]
fn ranks_are_hosts_of_one_capture_and_every_page_has_data() {
    let traces = ranks().map(|mut trace| {
        set_flops(&mut trace, 2, 1_000_000, "f32");
        rename(&mut trace, 2, "data");
        trace
    });
    let Some(seen) = seen(&traces, &["--gpu", "--input"]) else { return };
    let hosts = hosts(&seen);
    assert_eq!(hosts.iter().map(|(host, _)| *host).collect::<Vec<_>>(), ["host_rank_0", "host_rank_1"]);
    assert!(seen.get("window_0000_from_step_5").is_some());
    for (trace, (_, pages)) in traces.iter().zip(hosts) {
        assert_eq!(pages["device"], "Nvidia GPU (Hopper)");
        let peak = |name: &str| pages["peaks"][name].as_str().unwrap().parse::<f64>().unwrap();
        // In GFLOP/s, and GiB/s.
        let bandwidth = trace.devices()[0].memory_bytes_per_second().unwrap() as f64 / f64::from(1 << 30);
        assert_eq!(peak("peak_flop_rate"), 989_500.0);
        assert!((peak("peak_hbm_bw") - bandwidth).abs() < 0.1, "{}", pages["peaks"]);
        // XProf knows collectives by their names: on each rank two in each of two steps, of which the first is in the
        // way of others.
        let collectives: f64 = pages["steps"]
            .as_array()
            .unwrap()
            .iter()
            .map(|step| step["deviceCollectivesTimeMs"].as_f64().unwrap())
            .sum();
        assert!(collectives > 0.0, "{}", pages["steps"]);
    }
}

#[test]
fn counters_and_losses_are_shown() {
    let mut trace = gpu_trace();
    // XProf makes what is of no step part of the one before.
    retain_work(&mut trace, |work| work.step().is_some());
    losses_mut(&mut trace).lane_full = 7;
    let samples = [(at(10), 0.5), (at(20), f64::NAN), (at(150), 0.25)];
    // Names that XProf would write as they are, or keep to itself.
    let names = ["loss", "a\"b\\c\nd\0e", "flops"];
    names.iter().for_each(|name| add_counter(&mut trace, name, &samples));
    set_fields(&mut trace, 1, &[("op.dtype.input", "bf16")]);
    // In the middle of a span, so that steps and spans cross.
    set_boundary(&mut trace, 1, at(50));
    let Some(seen) = seen(std::slice::from_ref(&trace), &[]) else { return };
    let [(host, pages)] = hosts(&seen)[..] else { panic!() };
    assert_eq!(host, "host");
    let banner: Vec<_> = pages["banner"].as_array().unwrap().iter().map(|line| line.as_str().unwrap()).collect();
    assert!(banner.iter().any(|line| line.contains(&trace.losses().to_string())), "{banner:?}");
    // In microseconds.
    let drawn = json!([[10, 0.5], [150, 0.25]]);
    assert_eq!(pages["counters"], json!({"loss": drawn, "a_b_c_d_e": drawn, "flops": drawn}));
    // One of the kernels called `gemm`: 20 of 100 µs, since others run alongside.
    assert_eq!(pages["percent_16_bit"], "20.0%");
    let names: Vec<_> = pages["events"].as_array().unwrap().iter().map(|event| event[1].as_str().unwrap()).collect();
    assert!(names.contains(&"loss is NaN"), "{names:?}");
    // Each began at the end of the one before, and none had more to do than its time.
    let steps: Vec<_> =
        pages["steps"].as_array().unwrap().iter().map(|step| step["stepTimeMs"].as_f64().unwrap()).collect();
    assert_eq!(steps, [0.08, 0.12]);
}

#[test]
fn a_host_without_a_gpu_has_steps_and_operations_all_the_same() {
    let mut trace = gpu_trace();
    let starts: Vec<_> = trace.spans().map(Span::start).collect();
    for (index, start) in starts.into_iter().enumerate() {
        // XProf counts what is done on the host only in spans that are in the step.
        set_start(&mut trace, index, start.max(at(100 * (index as u64 / 3))));
    }
    remove_gpu(&mut trace, GpuProblem::NoDevice);
    let Some(seen) = seen(std::slice::from_ref(&trace), &[]) else { return };
    let [(_, pages)] = hosts(&seen)[..] else { panic!() };
    assert_eq!(pages["device"], "CPU");
    let banner = pages["banner"].to_string();
    assert!(banner.contains("the NVIDIA driver sees no device"), "{banner}");
    let steps: Vec<_> =
        pages["steps"].as_array().unwrap().iter().map(|step| step["stepTimeMs"].as_f64().unwrap()).collect();
    assert_eq!(steps, [0.1, 0.1]);
    let operations = pages["operations"].as_array().unwrap();
    let forward = operations.iter().find(|row| row["operation"] == "train_step/forward").unwrap();
    let truth: u128 =
        trace.spans().filter(|span| span.name() == "forward").map(|span| span.self_time().as_nanos()).sum();
    assert_eq!(
        (forward["occurrences"].as_f64(), forward["total_self_time"].as_f64()),
        (Some(2.0), Some(truth as f64 / 1e3))
    );
}
