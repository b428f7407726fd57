//! Bounds of the savings of all findings in all recorded fixtures: what must hold by construction, and how wide they
//! are.
//!
//! ```text
//! cargo test --all-features --test exports bounds -- --nocapture
//! ```
//!
//! prints the mean width.

use kernspan::{
    Trace,
    analysis::{Analysis, FindingKind},
};
use std::{fs, path::Path, time::Duration};

/// Adds the traces of all files in a folder, and in those inside it.
fn traces(folder: &Path, each: &mut impl FnMut(&Path, &Trace)) {
    let mut paths: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    for path in paths {
        let name = path.to_string_lossy().into_owned();
        if path.is_dir() {
            traces(&path, each);
        } else if name.ends_with(".kernspan") {
            each(&path, &kernspan::replay(fs::File::open(&path).unwrap()).unwrap());
        } else if name.ends_with(".json.gz") {
            // Those of a hang are damaged.
            kernspan::read(&path).unwrap_or_default().iter().for_each(|trace| each(&path, trace));
        }
    }
}

#[test]
fn no_change_saves_less_than_nothing_or_more_than_the_step() {
    let (mut first, mut whole, mut all, mut width) = (0, 0, 0, 0.0);
    let check = |path: &Path, trace: &Trace| {
        for (place, finding) in Analysis::of(trace).findings().iter().enumerate() {
            let step = finding.step;
            assert!(step > Duration::ZERO, "{}: {finding:?}", path.display());
            for saving in finding.remedies.iter().map(|remedy| remedy.saving).chain([finding.saving]) {
                let is_ordered = saving.least <= saving.likely && saving.likely <= saving.most;
                // What slow steps cost is not a part of a typical step.
                let fits = saving.most <= step || finding.kind == FindingKind::OutlierSteps;
                assert!(is_ordered && fits, "{}: {saving:?} of {step:?}: {finding:?}", path.display());
            }
            all += 1;
            if place == 0 && finding.kind != FindingKind::OutlierSteps {
                first += 1;
                whole += usize::from(finding.saving.most.as_secs_f64() >= 0.99 * step.as_secs_f64());
                width += (finding.saving.most - finding.saving.least).as_secs_f64() / step.as_secs_f64();
            }
        }
    };
    traces(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures"), &mut { check });
    println!(
        "{all} findings, {first} of them the first ones of their windows: bounds are {:.1} % of a step wide on average, \
         and {whole} end at the whole step",
        100.0 * width / first as f64
    );
}
