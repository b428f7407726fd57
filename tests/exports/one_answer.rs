//! All outputs say the same of a window, and nothing that cannot be: the text, JSON and the page of every fixture.
//!
//! ```text
//! cargo test --all-features --test exports one_answer -- --nocapture
//! ```
//!
//! prints how wide the bounds of the first findings are.

use kernspan::{
    Report, Trace,
    analysis::{Analysis, StepPart},
    export::HtmlReport,
    read,
    report::units,
};
use serde_json::Value;
use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

/// Folders of windows and of traces that kernspan and PyTorch have written.
const FOLDERS: [&str; 8] = ["faults", "gpu", "machine", "queues", "ranks/even", "ranks/late", "torch", "trainings"];

fn files() -> Vec<PathBuf> {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    let of_folder = |folder: &str| {
        let entries = fs::read_dir(fixtures.join(folder)).unwrap();
        entries.map(|entry| entry.unwrap().path()).collect::<Vec<_>>()
    };
    let is_trace = |path: &PathBuf| {
        let name = path.to_string_lossy();
        name.ends_with(".kernspan") || name.ends_with(".json.gz") && !name.ends_with("snapshot.json.gz")
    };
    let mut files: Vec<_> = FOLDERS.into_iter().flat_map(of_folder).filter(is_trace).collect();
    files.sort();
    files
}

fn traces(path: &Path) -> Vec<Trace> {
    match path.extension().is_some_and(|it| it == "kernspan") {
        true => vec![kernspan::replay(File::open(path).unwrap()).unwrap()],
        false => read::read(path).unwrap(),
    }
}

/// Returns the data of a page.
fn page(traces: &[Trace]) -> Value {
    let page = HtmlReport::of(traces).to_string();
    let start = "<script type=\"application/json\" id=\"data\">";
    let data = page.split_once(start).unwrap().1.split_once("</script>").unwrap().0;
    serde_json::from_str(data).unwrap()
}

fn nanos(value: &Value) -> Duration {
    Duration::from_nanos(value.as_u64().unwrap())
}

/// Reads a time as `serde` writes it.
fn time(value: &Value) -> Duration {
    Duration::new(value["secs"].as_u64().unwrap(), value["nanos"].as_u64().unwrap() as u32)
}

/// The bounds of the first finding of a file, as a part of a step.
type Bounds = Option<[f64; 2]>;

/// Checks the figures of one file in every output, and that they are possible.
fn check(path: &Path) -> Bounds {
    let (traces, name) = (traces(path), path.display());
    let report = Report::of(&traces);
    let (text, page) = (report.width(usize::MAX).to_string(), page(&traces));
    let json = serde_json::to_value(&report).unwrap();
    let answer = page["sections"].as_array().unwrap().iter().find(|it| it["kind"] == "answer").unwrap();
    let Some(step) = report.step_time() else {
        assert!(answer["step"].is_null() && json["step_time"].is_null(), "{name}");
        return None;
    };
    // The step.
    assert_eq!(nanos(&answer["step"]), step.mean, "{name}: page");
    assert_eq!(time(&json["step_time"]["mean"]), step.mean, "{name}: JSON");
    assert!(
        text.contains(&format!("\n{step}\n")) && step.to_string().contains(&units::time(step.mean)),
        "{name}: text"
    );
    assert!(step.lower <= step.median && step.median <= step.upper, "{name}: {step:?}");
    // Its parts.
    let parts = report.step_parts().unwrap();
    let shown: Vec<_> = answer["values"].as_array().unwrap().iter().map(nanos).collect();
    assert_eq!(shown, StepPart::ALL.map(|part| parts.of(part)), "{name}: page");
    assert!(parts.total().abs_diff(step.mean) < Duration::from_nanos(20), "{name}: {parts:?} of {step:?}");
    // What GPUs did.
    let gpus = report.gpu_steps();
    for (gpu, seen) in gpus.devices().iter().zip(json["gpu_steps"]["devices"].as_array().unwrap()) {
        assert_eq!(time(&seen["usage"]["busy"]), gpu.usage.busy, "{name}: JSON");
        let figures = answer["figures"].to_string();
        let busy = units::percent(gpu.usage.busy_percent());
        assert!(figures.contains(&format!("GPU {} busy {busy}", gpu.device)), "{name}: {figures}");
        let kernels = gpu.usage.kernels as f64 / gpu.steps as f64;
        assert!(figures.contains(&format!("\"{} kernels a step\"", units::rate(kernels))), "{name}: {figures}");
        assert_eq!(seen["usage"]["kernels"], gpu.usage.kernels, "{name}: JSON");
        if let Some(peak) = report.peak_memory(gpu.device) {
            let shown = format!("\"{} of GPU {} in use at most\"", units::bytes(peak), gpu.device);
            assert!(figures.contains(&shown), "{name}: {figures}");
        }
        assert!((0.0..=100.0).contains(&gpu.usage.busy_percent()), "{name}: {gpu:?}");
        assert!(gpu.usage.mfu().is_none_or(|mfu| mfu <= 100.0), "{name}: {gpu:?}");
        assert!(gpu.usage.busy_mfu().is_none_or(|mfu| mfu <= 100.0), "{name}: {gpu:?}");
    }
    if let [gpu] = gpus.devices()
        && report.steps().steps().iter().all(|step| step.rank == 0)
    {
        let busy = gpu.usage.busy / gpu.steps as u32;
        assert!(busy.abs_diff(parts.busy()) < Duration::from_nanos(20), "{name}: {busy:?} of {parts:?}");
    }
    // Findings.
    let findings = report.findings();
    let listed = page["sections"].as_array().unwrap().iter().find(|it| it["kind"] == "findings");
    let listed = listed.map(|section| section["items"].as_array().unwrap().clone()).unwrap_or_default();
    assert_eq!(listed.len(), findings.len(), "{name}");
    for (finding, item) in findings.iter().zip(listed) {
        let saving = finding.saving;
        assert_eq!(nanos(&item["step"]), finding.step, "{name}: {}", finding.title);
        // Findings about slow steps spread their cost over all steps.
        assert!([step.mean, step.with_outliers].contains(&finding.step), "{name}: {finding:?} of {step:?}");
        let shown: Vec<_> = item["saving"].as_array().unwrap().iter().map(nanos).collect();
        assert_eq!(shown, [saving.least, saving.likely, saving.most], "{name}: {}", finding.title);
        for saving in finding.remedies.iter().map(|remedy| remedy.saving).chain([saving]) {
            assert!(saving.least <= saving.likely && saving.likely <= saving.most, "{name}: {saving:?}");
            assert!(saving.most <= finding.step, "{name}: {} saves {saving:?} of {step:?}", finding.title);
        }
    }
    let first = findings.first()?;
    Some([first.saving.least, first.saving.most].map(|bound| bound.as_secs_f64() / first.step.as_secs_f64()))
}

#[test]
fn every_output_has_the_same_figures_and_they_are_possible() {
    let files = files();
    assert!(files.len() > 230, "{}", files.len());
    let half = files.len() / 2;
    let bounds: Vec<[f64; 2]> = thread::scope(|scope| {
        let check = |files: &[PathBuf]| files.iter().filter_map(|path| check(path)).collect::<Vec<_>>();
        let (first, second) = files.split_at(half);
        let other = scope.spawn(move || check(second));
        [check(first), other.join().unwrap()].concat()
    });
    let count = bounds.len() as f64;
    let width = bounds.iter().map(|[least, most]| most - least).sum::<f64>() / count;
    let whole = bounds.iter().filter(|[_, most]| *most >= 0.99).count();
    println!(
        "{count} first findings: bounds are {:.1} % of a step wide on average, and {whole} end at the whole step",
        100.0 * width
    );
}

#[test]
fn steps_of_a_window_follow_each_other() {
    for path in files().iter().step_by(7) {
        for trace in traces(path) {
            let window = Analysis::of(&trace);
            for row in window.step_breakdown() {
                assert_eq!(row.parts.total(), row.duration, "{}", path.display());
                assert!(row.hidden <= row.on_host, "{}: {row:?}", path.display());
            }
        }
    }
}
