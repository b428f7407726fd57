//! The real TensorBoard, and what it shows.

use super::readers;
use kernspan::export::StepSummary;
use serde_json::Value as Json;
use std::{collections::BTreeMap, path::Path};

/// A series as TensorBoard has it: wall time, step, value.
pub type Series = Vec<(f64, u64, f64)>;

/// Steps and values, with 32 bits.
pub type Points = Vec<(u64, f32)>;

/// What TensorBoard shows of a folder.
pub struct Shown {
    pub scalars: BTreeMap<String, BTreeMap<String, Series>>,
    pub texts: Json,
    pub hparams: Json,
}

/// Both of TensorBoard's ways to read files: the quick one, and the one that everything can be done with.
const LOADERS: [&str; 2] = ["--load_fast=true", "--load_fast=false"];

/// What TensorBoard shows once it has read so many scalars, in both ways; none without Python.
pub fn shown(folder: &Path, points: usize) -> Option<[Shown; 2]> {
    let python = readers::environment("tensorboard.txt", "TensorBoard and XProf")?;
    Some(LOADERS.map(|loader| {
        let arguments = [folder.to_str().unwrap(), &points.to_string(), loader];
        let mut answer = readers::run(&python, "tb_scalars.py", &arguments).pop().unwrap();
        let mut scalars = BTreeMap::new();
        for (run, tags) in answer["scalars"].as_object().unwrap() {
            let series = |points: &Json| points.as_array().unwrap().iter().map(point).collect::<Series>();
            let tags = tags.as_object().unwrap().iter().map(|(tag, points)| (tag.clone(), series(points)));
            scalars.insert(run.clone(), tags.collect());
        }
        Shown { scalars, texts: answer["texts"].take(), hparams: answer["hparams"].take() }
    }))
}

fn point(point: &Json) -> (f64, u64, f64) {
    // What is not finite is in quotes.
    let value = point[2].as_f64().unwrap_or_else(|| match point[2].as_str() {
        Some("NaN") => f64::NAN,
        Some("Infinity") => f64::INFINITY,
        Some("-Infinity") => f64::NEG_INFINITY,
        _ => panic!("{point}"),
    });
    (point[0].as_f64().unwrap(), point[1].as_u64().unwrap(), value)
}

/// A series, as it has to be shown: with 32 bits.
pub fn expected(steps: &[StepSummary], first_step: u64, value: impl Fn(&StepSummary) -> Option<f64>) -> Points {
    steps.iter().filter_map(|step| Some((first_step + step.number, value(step)? as f32))).collect()
}

/// What a series has of each step.
pub fn values(series: &Series) -> Points {
    series.iter().map(|&(_, step, value)| (step, value as f32)).collect()
}

/// As equal as numbers can be that are not all numbers.
#[track_caller]
pub fn assert_same(shown: &[(u64, f32)], expected: &[(u64, f32)]) {
    let bits = |series: &[(u64, f32)]| series.iter().map(|&(step, value)| (step, value.to_bits())).collect::<Vec<_>>();
    assert_eq!(bits(shown), bits(expected), "{shown:?} instead of {expected:?}");
}

/// The time of a step in seconds, if it has to be shown: the first step has everything before the loop in it.
pub fn seconds(step: &StepSummary) -> Option<f64> {
    (step.ended && step.number > 0).then_some(step.duration.as_secs_f64())
}

/// Step times as they have to be shown.
pub fn millis(step: &StepSummary) -> Option<f64> {
    Some(seconds(step)? * 1e3)
}
