//! Tests of the pages that TensorBoard's plugin for PyTorch shows for windows that were recorded on a GPU.

#[path = "../support/pages.rs"]
#[allow(unreachable_pub, reason = "shared modules of tests have public items")]
mod pages;

use crate::support::{
    awkward::awkward_program,
    profiled,
    readers::{readers, run},
    recorded,
};
use kernspan::{Chrome, Exporter, Schedule, Trace, analysis::Analysis, export::Flavor};
use pages::{check_all, check_memory, check_modules};
use serde_json::{Value as Json, json};
use std::collections::BTreeSet;
use tracing::info_span;

/// Returns the plugin's pages for a trace, whose views must be exactly these; `None` without Python.
fn shown(trace: &Trace, views: &[&str]) -> Option<Json> {
    let folder = tempfile::tempdir().unwrap();
    let files = Chrome::to_dir(folder.path()).flavor(Flavor::TorchTensorBoard).export(&Analysis::of(trace)).unwrap();
    assert_eq!(files[0].parent().unwrap(), folder.path().join("torch_tb_profiler"));
    let (python, _) = readers()?;
    run(python, "lint_kineto.py", &["torch", files[0].to_str().unwrap()]);
    let arguments: Vec<_> = [folder.path().to_str().unwrap()].iter().chain(views).copied().collect();
    let mut seen = run(python, "torch_tb.py", &arguments).pop().unwrap();
    let all: BTreeSet<_> = seen["views"].as_array().unwrap().iter().map(|view| view.as_str().unwrap()).collect();
    assert_eq!(all, views.iter().copied().collect());
    let (_, worker) = seen["workers"].as_object_mut().unwrap().iter_mut().next().unwrap();
    Some(worker[0].take())
}

#[test]
fn threads_that_launch_for_others_and_graphs() {
    let trace = recorded("training");
    let Some(pages) = shown(&trace, &["Overview", "Operator", "Kernel", "Trace", "Memory"]) else { return };
    check_all(&trace, &pages);
    check_memory(&trace, &pages["memory"]);
}

#[test]
fn all_calls() {
    let trace = recorded("calls");
    let Some(pages) = shown(&trace, &["Overview", "Operator", "Kernel", "Trace"]) else { return };
    check_all(&trace, &pages);
}

#[test]
fn a_training_with_candle() {
    let trace = recorded("candle");
    let views = ["Overview", "Operator", "Kernel", "Trace", "Memory", "Module"];
    let Some(pages) = shown(&trace, &views) else { return };
    check_all(&trace, &pages);
    check_memory(&trace, &pages["memory"]);
    check_modules(&trace, &pages["module"]);
}

#[test]
fn a_training_with_burn() {
    let trace = recorded("burn");
    let Some(pages) = shown(&trace, &["Overview", "Operator", "Kernel", "Trace"]) else { return };
    check_all(&trace, &pages);
}

#[test]
fn the_first_step_with_burn_which_tunes_itself() {
    let trace = recorded("burn-first");
    let Some(pages) = shown(&trace, &["Overview", "Operator", "Kernel", "Trace", "Memory"]) else { return };
    check_all(&trace, &pages);
    check_memory(&trace, &pages["memory"]);
}

#[test]
fn steps_that_cross_spans() {
    let (traces, _) = profiled(|builder| builder.schedule(Schedule::steps(1..=4)), awkward_program);
    let Some(pages) = shown(&traces[0], &["Overview", "Operator", "Trace"]) else { return };
    assert_eq!(traces[0].steps().len(), 4);
    check_all(&traces[0], &pages);
}

#[test]
fn modules_in_modules() {
    let (traces, _) = profiled(
        |builder| builder.schedule(Schedule::steps(1..=3)),
        |profiler| {
            for _ in 0..5 {
                info_span!("forward").in_scope(|| {
                    let _block = info_span!("block", op.module = "blocks.0").entered();
                    for _ in 0..2 {
                        info_span!("linear", op.module = "blocks.0.linear").in_scope(|| ());
                    }
                    info_span!("relu").in_scope(|| info_span!("max", op.module = "blocks.0.relu").in_scope(|| ()));
                });
                info_span!("linear", op.module = "head").in_scope(|| ());
                profiler.step();
            }
        },
    );
    let Some(pages) = shown(&traces[0], &["Overview", "Operator", "Trace", "Module"]) else { return };
    check_all(&traces[0], &pages);
    check_modules(&traces[0], &pages["module"]);
    let [block, head] = &pages["module"].as_array().unwrap()[..] else { panic!("{}", pages["module"]) };
    assert_eq!((&block["name"], &head["name"]), (&json!("blocks.0"), &json!("head")));
    let inner: BTreeSet<_> = block["children"].as_array().unwrap().iter().map(|child| child["name"].as_str()).collect();
    assert_eq!(inner, [Some("blocks.0.linear"), Some("blocks.0.relu")].into());
}
