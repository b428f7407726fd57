//! What a model and a setting achieve for what they cost.

use crate::{printed, printed_json, window};
use kernspan::{Chrome, Profiler};
use std::path::{Path, PathBuf};
use tracing::{info, info_span};
use tracing_subscriber::prelude::*;

/// Records a run into a folder, and returns its trace. `step` does a step with this number.
fn record(folder: &Path, steps: u32, step: impl Fn(u32)) -> PathBuf {
    let (layer, profiler) = Profiler::builder().export(Chrome::to_dir(folder)).build().unwrap();
    tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
        for number in 0..steps {
            step(number);
            profiler.step();
        }
    });
    profiler.finish().unwrap().files()[0].clone()
}

#[test]
fn modules_of_a_real_model_have_parameters_flops_and_memory() {
    let json = printed_json("report --model --json", &[&window("candle")]);
    let traces = kernspan::read(window("candle")).unwrap();
    let spans = || traces.iter().flat_map(kernspan::Trace::spans);
    let of_module = |path: &str| spans().filter(move |span| span.fields().op().module() == Some(path)).count();
    let modules = json["modules"].as_array().unwrap();
    assert_eq!(modules.len(), 2);
    for (module, path) in modules.iter().zip(["layers.0", "layers.1"]) {
        assert_eq!((&module["module"], &module["passes"]), (&path.into(), &of_module(path).into()));
        // A linear layer of 64 inputs and outputs, with a bias.
        assert_eq!((&module["parameters"], &module["parameter_bytes"]), (&4160.into(), &(4 * 4160).into()));
        let flops = module["flops"].as_f64().unwrap() / module["passes"].as_f64().unwrap() / 4160.0;
        assert_eq!(module["flops_per_parameter"], flops);
        assert!(module["gpu"].as_u64() > Some(0) && module["gpu_memory"].as_i64() > Some(0), "{module}");
    }
    assert_eq!(json["parameters"], 2 * 4160);
    let text = printed("report --model --width 120", &[&window("candle")]);
    assert!(text.contains("\nlayers.0 ") && text.ends_with("\nthe model has 8.320k parameters\n"), "{text}");
    let none = printed("report --model", &[&window("training")]);
    assert_eq!(none, "no modules were recorded: no span has the field op.module\n");
}

#[test]
fn training_is_compared_with_validation_and_inference() {
    let folder = tempfile::tempdir().unwrap();
    let file = record(folder.path(), 4, |_| {
        info_span!("train_step").in_scope(|| info!(counter.samples = 32, counter.tokens = 4096));
        let _epoch = info_span!("validation").entered();
        (0..3).for_each(|_| info_span!("inference_step").in_scope(|| info!(counter.samples = 8)));
    });
    let json = printed_json("report --json", &[&file]);
    let modes = json["modes"].as_array().unwrap();
    let of = |row: usize, member: &str| &modes[row][member];
    assert_eq!((of(0, "mode"), of(1, "mode"), modes.len()), (&"training".into(), &"validation".into(), 2));
    assert_eq!([of(0, "calls"), of(1, "calls")], [4, 12]);
    assert_eq!([of(0, "samples"), of(1, "samples")], [4.0 * 32.0, 12.0 * 8.0]);
    assert_eq!([of(0, "tokens"), of(1, "tokens")], [4.0 * 4096.0, 0.0]);
    // The time is that of the spans.
    let spans = json["averages"].as_array().unwrap();
    let total = |name: &str| spans.iter().find(|row| row["name"] == name).map(|row| &row["total_cpu"]);
    assert_eq!([Some(of(0, "total")), Some(of(1, "total"))], [total("train_step"), total("validation")]);
    let text = printed("report --width 200", &[&file]);
    assert!(text.contains("Samples/s") && text.lines().any(|line| line.starts_with("training ")), "{text}");
    assert!(printed("report --html -", &[&file]).contains(r#""id":"modes""#));
    // One alone is not compared.
    let alone = record(folder.path(), 2, |_| info_span!("train_step").in_scope(|| ()));
    assert!(printed_json("report --json", &[&alone]).get("modes").is_none());
}
