//! Third-party readers, on traces that were never recorded: two ranks with collectives, and a GPU that lags behind.
//!
//! `torch.rs` has those on recorded traces.

use crate::support::readers::{readers, run};
use kernspan::{
    Chrome, Exporter, Trace,
    analysis::Analysis,
    export::Flavor,
    trace::{
        Timestamp,
        sample::{at, gpu_trace, ranks, retain_work, set_work_end},
    },
};
use serde_json::{Value, json};
use tempfile::TempDir;

/// The files of both ranks, for HTA, and the folder with those for TensorBoard's plugin in it.
fn exported() -> ([Trace; 2], TempDir) {
    let (traces, folder) = (ranks(), tempfile::tempdir().unwrap());
    for trace in &traces {
        Chrome::to_dir(folder.path()).runtime_names(true).export(&Analysis::of(trace)).unwrap();
        Chrome::to_dir(folder.path()).flavor(Flavor::TorchTensorBoard).export(&Analysis::of(trace)).unwrap();
    }
    (traces, folder)
}

/// The time during which at least one of these ranges is open, in microseconds.
fn together(mut ranges: Vec<(Timestamp, Timestamp)>) -> f64 {
    ranges.sort_unstable();
    let mut until = Timestamp::default();
    let mut nanos = 0;
    for (start, end) in ranges {
        nanos += end.since(start.max(until)).as_nanos();
        until = until.max(end);
    }
    nanos as f64 / 1e3
}

#[test]
fn tensorboard_compares_the_ranks() {
    let Some((python, _)) = readers() else { return };
    let (traces, folder) = exported();
    let views = ["Overview", "Operator", "Kernel", "Trace", "Memory", "Module", "Distributed"];
    let shown = folder.path().join("torch_tb_profiler");
    let arguments: Vec<_> = [shown.to_str().unwrap()].into_iter().chain(views).collect();
    let seen = run(python, "torch_tb.py", &arguments).pop().unwrap();
    let pages = &seen["distributed"];
    for (trace, worker) in traces.iter().zip(["host_1000", "host_1001"]) {
        let process = format!("Process {}", trace.metadata().pid);
        assert_eq!(pages["gpuinfo"]["host"][process]["GPU0"]["Name"], "NVIDIA H200");
        let is_collective = |name: &str| name.starts_with("nccl");
        let kernels = || trace.work().filter_map(|work| Some((work, work.kernel()?)));
        let rows = pages["commops"][worker]["rows"].as_array().unwrap();
        let called: Vec<_> = rows.iter().map(|row| (row[0].as_str().unwrap(), row[1].as_u64().unwrap())).collect();
        assert_eq!(called, [("nccl:all_reduce", 2), ("nccl:all_gather", 2)]);
        // The plugin counts the kernels, and the calls that launch them, as communication.
        for step in trace.steps() {
            let of_step = || kernels().filter(|(work, _)| work.step() == Some(step));
            let collectives = || of_step().filter(|(_, kernel)| is_collective(&kernel.name));
            let calls = collectives().map(|(work, _)| work.call().unwrap()).map(|call| (call.start(), call.end()));
            let communication: Vec<_> =
                collectives().map(|(work, _)| (work.start(), work.end())).chain(calls).collect();
            let others = of_step().filter(|(_, kernel)| !is_collective(&kernel.name));
            let computation: Vec<_> = others.map(|(work, _)| (work.start(), work.end())).collect();
            let all = [communication.clone(), computation.clone()].concat();
            let both = together(communication.clone()) + together(computation.clone()) - together(all);
            assert!(both > 0.0);
            let expected = [together(computation) - both, both, together(communication) - both];
            let shown = &pages["overlap"][step.number().to_string()][worker];
            for (shown, expected) in shown.as_array().unwrap().iter().zip(expected) {
                assert!((shown.as_f64().unwrap() - expected).abs() < 0.01, "{shown} µs, not {expected}");
            }
        }
        let page = &seen["workers"][worker][0];
        let calls = |name: &str| {
            let rows = page["operators"]["Operation"].as_array().unwrap();
            rows.iter().find(|row| row["name"] == name).map(|row| row["calls"].clone())
        };
        assert_eq!((calls("backward"), calls("nccl:all_reduce")), (Some(json!(2)), Some(json!(2))));
        assert_eq!(page["module"].as_array().unwrap().len(), 1);
    }
    // On the second rank the kernel takes longer, which is time that the first waits in: the rest is the transfer.
    let transfer = |worker: &str| pages["commops"][worker]["rows"][0][6].as_f64().unwrap();
    assert_eq!(transfer("host_1000"), transfer("host_1001"));
}

#[test]
fn a_step_that_the_gpu_is_behind_does_not_lose_the_run() {
    let Some((python, _)) = readers() else { return };
    let mut trace = gpu_trace();
    // The first step's second kernel is still running when the second step is over, which launches nothing.
    retain_work(&mut trace, |work| work.step().is_some_and(|step| step.number() == 5));
    let second = trace.work().position(|work| work.start() == at(50)).unwrap();
    set_work_end(&mut trace, second, at(300));
    let folder = tempfile::tempdir().unwrap();
    Chrome::to_dir(folder.path()).flavor(Flavor::TorchTensorBoard).export(&Analysis::of(&trace)).unwrap();
    let arguments = [folder.path().to_str().unwrap(), "Overview", "Operator", "Kernel", "Trace", "Memory"];
    let seen = run(python, "torch_tb.py", &arguments).pop().unwrap();
    let steps = seen["workers"]["host_1000"][0]["overview"]["steps"].as_object().unwrap();
    assert_eq!(steps.keys().collect::<Vec<_>>(), ["5"]);
    let parts: f64 = steps["5"].as_object().unwrap().values().map(|part| part.as_f64().unwrap()).sum();
    assert_eq!(parts, 300.0);
}

#[test]
fn hta_does_every_analysis_of_the_ranks() {
    let Some((python, _)) = readers() else { return };
    let (traces, folder) = exported();
    let seen = run(python, "hta_analyses.py", &[folder.path().to_str().unwrap(), "2", "aten::"]).pop().unwrap();
    assert_eq!((&seen["ranks"], &seen["steps"]), (&json!([0, 1]), &json!([5, 6])));
    let overlap = seen["overlap"].as_object().unwrap().values().map(Value::as_f64);
    assert!(overlap.clone().count() == 2 && overlap.into_iter().all(|share| share > Some(0.0)));
    for trace in &traces {
        let busy = seen["busy"][trace.metadata().rank.to_string()].as_f64().unwrap();
        let expected = together(trace.work().map(|work| (work.start(), work.end())).collect());
        assert!((busy - expected).abs() < 0.01, "{busy} µs, not {expected}");
    }
    // Waits are not launches, and all nodes of a graph have one launch.
    let launched = traces[0].work().filter(|work| work.graph().is_none() && work.call().is_some()).count();
    assert_eq!(seen["launches"]["0"], launched);
}

#[test]
fn the_lint_finds_nothing() {
    let Some((python, _)) = readers() else { return };
    let (_, folder) = exported();
    let torch = folder.path().join("torch_tb_profiler");
    for (flavor, folder) in [("kineto", folder.path()), ("torch", &torch)] {
        let files = std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().path()).filter(|path| path.is_file());
        let files: Vec<_> = files.map(|path| path.to_str().unwrap().to_owned()).collect();
        let arguments: Vec<_> = [flavor].into_iter().chain(files.iter().map(String::as_str)).collect();
        assert_eq!(arguments.len(), 3);
        run(python, "lint_kineto.py", &arguments);
    }
}
