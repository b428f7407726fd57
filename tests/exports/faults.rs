//! Tests of findings on trainings with one planted fault each, which were recorded on an H200 (`benches/gpu`, program
//! `faults`), and on the same trainings without it.
//!
//! `measured.json` has the time of a step of each of them without a profiler.

use kernspan::{
    Report, Trace,
    analysis::{Analysis, Finding, FindingKind},
};
use std::time::Duration;

/// The faults, and the findings that they are.
const FAULTS: [(&str, FindingKind); 15] = [
    ("scalar-read", FindingKind::HostSync),
    ("synchronize", FindingKind::HostSync),
    ("input", FindingKind::InputBound),
    ("pageable-copy", FindingKind::PageableCopy),
    ("tiny-copies", FindingKind::TinyCopies),
    ("large-readback", FindingKind::LargeReadback),
    ("launch-bound", FindingKind::LaunchBound),
    ("small-batch", FindingKind::SmallGrid),
    ("f32-matmul", FindingKind::NoTensorCores),
    ("allocations", FindingKind::BlockingAllocation),
    // Its span is called `augment` in this recording, which says that it makes input.
    ("host-work", FindingKind::InputBound),
    ("module-load", FindingKind::KernelLoading),
    ("outliers", FindingKind::OutlierSteps),
    ("exposed-copy", FindingKind::ExposedCopy),
    ("done-twice", FindingKind::RepeatedWork),
];

fn trace(fault: &str, variant: &str) -> Trace {
    let path = format!("{}/tests/fixtures/faults/{fault}-{variant}.kernspan", env!("CARGO_MANIFEST_DIR"));
    kernspan::replay(std::fs::File::open(path).unwrap()).unwrap()
}

/// The time of a step that was measured without a profiler, and its samples.
fn measured(fault: &str, variant: &str) -> (f64, f64) {
    let rows: serde_json::Value = serde_json::from_str(include_str!("../fixtures/faults/measured.json")).unwrap();
    let is_it = |row: &&serde_json::Value| row["fault"] == fault && row["variant"] == variant;
    let row = rows.as_array().unwrap().iter().find(is_it).unwrap();
    (row["step_ns"].as_f64().unwrap() / 1e9, row["samples_per_step"].as_f64().unwrap())
}

fn first(fault: &str) -> Finding {
    Analysis::of(&trace(fault, "faulty"))
        .findings()
        .first()
        .cloned()
        .unwrap_or_else(|| panic!("nothing found in {fault}"))
}

#[test]
fn the_planted_fault_is_the_first_finding() {
    for (fault, kind) in FAULTS {
        assert_eq!(first(fault).kind, kind, "{fault}: {}", first(fault).title);
    }
}

#[test]
fn the_saving_is_that_of_the_repair() {
    for (fault, _) in FAULTS {
        let ((faulty, samples), (repaired, more)) = (measured(fault, "faulty"), measured(fault, "repaired"));
        let measured = faulty - repaired * samples / more;
        let saving = first(fault).saving;
        let error = saving.likely.as_secs_f64() / measured - 1.0;
        println!(
            "{fault}: {:?}, measured {:?}: {:+.1} %",
            saving.likely,
            Duration::from_secs_f64(measured),
            100.0 * error
        );
        // `scalar-read` is 20.4 % off.
        assert!(error.abs() < 0.21, "{fault}: {saving:?}, measured {measured}");
        assert!(saving.least <= saving.likely && saving.likely <= saving.most, "{fault}: {saving:?}");
    }
}

#[test]
fn the_step_is_that_without_a_profiler() {
    for (fault, _) in FAULTS {
        let finding = first(fault);
        // What slow steps cost is not a part of a step, but of the measured mean.
        let of_slow = (finding.kind == FindingKind::OutlierSteps).then_some(finding.saving.likely);
        let step = Report::of([&trace(fault, "faulty")]).step_without_recording().unwrap();
        let step = (step + of_slow.unwrap_or_default()).as_secs_f64();
        let (measured, _) = measured(fault, "faulty");
        assert!((step / measured - 1.0).abs() < 0.12, "{fault}: {step}, measured {measured}");
    }
}

#[test]
fn without_the_fault_nothing_is_left_to_save() {
    for (fault, _) in FAULTS {
        for finding in Analysis::of(&trace(fault, "repaired")).findings() {
            assert!(finding.percent() <= 5.0, "{fault}: {} {:.1} %", finding.title, finding.percent());
        }
    }
}

#[test]
fn findings_name_their_place() {
    for (fault, span) in [("scalar-read", "norm"), ("host-work", "augment"), ("module-load", "compile")] {
        let finding = first(fault);
        assert_eq!(finding.path.first().unwrap(), "train_step", "{fault}");
        assert_eq!(finding.path.last().unwrap(), span, "{fault}");
        assert!(finding.location.as_ref().is_some_and(|location| location.contains(".rs:")), "{fault}");
        assert!(finding.title.contains(span), "{}", finding.title);
        assert!(!finding.evidence.is_empty() && !finding.ranges.is_empty(), "{finding:?}");
    }
}
