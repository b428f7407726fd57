//! Queries of the real TensorBoard.

use super::readers;
use kernspan::export::StepSummary;
use serde_json::Value as Json;
use std::{collections::BTreeMap, path::Path};

/// A series of TensorBoard: wall time, step and value of each point.
pub type Series = Vec<(f64, u64, f64)>;

/// The steps and values of a series, as 32-bit numbers.
pub type Points = Vec<(u64, f32)>;

/// The data that TensorBoard shows for a folder.
pub struct Shown {
    pub scalars: BTreeMap<String, BTreeMap<String, Series>>,
    pub text: Json,
    pub hparams: Json,
}

/// The options for both of TensorBoard's loaders: the fast one, and the one that supports all plugins.
const LOADERS: [&str; 2] = ["--load_fast=true", "--load_fast=false"];

/// Returns the data that TensorBoard shows with each loader, after it has read `points` scalars; `None` without Python.
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
        Shown { scalars, text: answer["text"].take(), hparams: answer["hparams"].take() }
    }))
}

fn point(point: &Json) -> (f64, u64, f64) {
    // Values that are not finite are strings.
    let value = point[2].as_f64().unwrap_or_else(|| match point[2].as_str() {
        Some("NaN") => f64::NAN,
        Some("Infinity") => f64::INFINITY,
        Some("-Infinity") => f64::NEG_INFINITY,
        _ => panic!("{point}"),
    });
    (point[0].as_f64().unwrap(), point[1].as_u64().unwrap(), value)
}

/// Returns the points that TensorBoard must show for these steps.
pub fn expected(steps: &[StepSummary], first_step: u64, value: impl Fn(&StepSummary) -> Option<f64>) -> Points {
    steps.iter().filter_map(|step| Some((first_step + step.number, value(step)? as f32))).collect()
}

/// Returns the step and value of each point of a series.
pub fn values(series: &Series) -> Points {
    series.iter().map(|&(_, step, value)| (step, value as f32)).collect()
}

/// Asserts that two series are equal bit by bit, since NaN is not equal to itself.
#[track_caller]
pub fn assert_same(shown: &[(u64, f32)], expected: &[(u64, f32)]) {
    let bits = |series: &[(u64, f32)]| series.iter().map(|&(step, value)| (step, value.to_bits())).collect::<Vec<_>>();
    assert_eq!(bits(shown), bits(expected), "{shown:?} instead of {expected:?}");
}

/// Returns the time of a step in seconds; `None` for the first step, whose time includes everything before the loop.
pub fn seconds(step: &StepSummary) -> Option<f64> {
    (step.ended && step.number > 0).then_some(step.duration.as_secs_f64())
}

/// Returns the time of a step in milliseconds, as TensorBoard must show it.
pub fn millis(step: &StepSummary) -> Option<f64> {
    Some(seconds(step)? * 1e3)
}
