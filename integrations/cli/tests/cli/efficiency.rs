//! What a model and a setting achieve for what they cost.

use crate::{fixture, printed, printed_json, run, window};
use kernspan::{
    Chrome, Exporter, Profiler,
    analysis::Analysis,
    trace::sample::{HostTrace, add_counter, at},
};
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

/// Writes a run whose ten steps took so many milliseconds each, at this power, and returns its folder. The counter has
/// these values, the first after the first step.
fn write_run(folder: &Path, name: &str, millis: u64, watts: f64, (counter, values): (&str, &[f64])) -> PathBuf {
    let mut steps = HostTrace::default();
    for _ in 0..10 {
        steps.step(1000 * millis).span(0, "train_step", 0, 1000 * millis);
    }
    let mut trace = steps.trace();
    let values: Vec<_> = (1..).zip(values).map(|(step, &value)| (at(1000 * millis * step), value)).collect();
    add_counter(&mut trace, counter, &values);
    add_counter(&mut trace, "vitals.gpu0.power", &[(at(0), watts)]);
    let folder = folder.join(name);
    Chrome::to_dir(&folder).export(&Analysis::of(&trace)).unwrap();
    folder
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
    assert!(text.contains("\nlayers.0 ") && text.ends_with("\nthe model has 8.32 k parameters\n"), "{text}");
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

#[test]
fn settings_are_judged_by_what_they_achieve_for_time_energy_and_price() {
    let folder = tempfile::tempdir().unwrap();
    let write = |batch, millis, watts, loss: &[f64]| write_run(folder.path(), batch, millis, watts, ("loss", loss));
    let runs = [
        write("16", 10, 100.0, &[2.0, 1.6, 1.0]),
        write("32", 15, 300.0, &[2.0, 1.2, 1.25]),
        // Slower, of more power, and no better.
        write("64", 90, 500.0, &[2.0, 1.9]),
    ];
    let files = runs.each_ref().map(PathBuf::as_path);
    let json = printed_json("sweep --json --price 3.6/h --of BATCH", &files);
    let rows = json["sweep"].as_array().unwrap();
    let number = |row: usize, path: &str| rows[row].pointer(path).and_then(serde_json::Value::as_f64).unwrap();
    let is = |actual: f64, expected: f64| assert!((actual / expected - 1.0).abs() < 1e-9, "{actual} not {expected}");
    assert_eq!((number(0, "/goal/first"), number(0, "/goal/last"), number(1, "/goal/best")), (2.0, 1.0, 1.2));
    is(number(0, "/goal/per_second"), 1.0 / 0.02);
    is(number(0, "/goal/per_joule"), 1.0 / (0.02 * 100.0));
    is(number(0, "/goal/per_price"), 1.0 / (0.02 * 0.001));
    is(number(1, "/goal/per_second"), 0.75 / 0.03);
    is(number(0, "/joules"), 100.0 * 0.01 / 16.0);
    is(number(0, "/per_price"), 1600.0 / 0.001);
    // 16 has the least energy and loss, 32 the most items; 64 has neither.
    assert_eq!(json["objectives"], serde_json::json!(["items/s", "J/item", "loss"]));
    let in_front: Vec<_> = rows.iter().map(|row| row["is_pareto"].as_bool().unwrap()).collect();
    assert_eq!(in_front, [true, true, false]);
    let text = printed("sweep --width 200 --of BATCH", &files);
    assert!(text.contains("\n* no other value is as good in items/s, J/item and loss and better in one of"), "{text}");
    assert!(text.contains("\ngoal: loss (lower is better), 1.00 at BATCH=16; "), "{text}");
    let of = |value: &str| text.lines().find(|line| line.trim_start().starts_with(value)).unwrap().contains('*');
    assert_eq!(["16 ", "32 ", "64 "].map(of), [true, true, false], "{text}");

    // With another direction, the front is another one.
    let other = printed_json("sweep --json --goal loss=higher --of BATCH", &files);
    assert!(other["sweep"][2]["is_pareto"] == true && other["sweep"][0]["goal"]["best"] == 2.0, "{other}");
    let page = printed("sweep --html - --of BATCH", &files);
    assert!(page.contains(r#""kind":"scatter""#) && page.contains(r#"["J/item","rate"]"#), "{page}");
}

#[test]
fn what_no_run_has_recorded_is_named() {
    let files = ["faulty", "repaired"].map(|name| fixture(&format!("faults/small-batch-{name}.kernspan")));
    let files = files.each_ref().map(PathBuf::as_path);
    let text = printed("sweep --goal f1=higher --price 0.31/kWh --of BATCH", &files);
    assert!(text.contains("\nno run has recorded the counter f1\n"), "{text}");
    assert!(text.contains("\nthe price is not known: no run has recorded its power"), "{text}");
    let plain = printed("sweep --of BATCH", &files);
    assert!(!plain.contains("no run has recorded") && !plain.contains("goal"), "{plain}");
    for wrong in ["--goal perplexity", "--goal f1=up", "--price 3"] {
        assert_eq!(run(&format!("sweep {wrong} --of BATCH"), &files).code, 2, "{wrong}");
    }
}

#[test]
fn differences_have_what_both_sides_achieved() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name, millis, watts, loss: &[f64]| write_run(folder.path(), name, millis, watts, ("loss", loss));
    let (before, after) = (write("before", 10, 100.0, &[2.0, 1.5, 1.0]), write("after", 20, 75.0, &[2.0, 1.5, 1.5]));
    let json = printed_json("diff --json", &[&before, &after]);
    let figures: Vec<_> = json["efficiency"].as_array().unwrap().iter().collect();
    let expected = [
        ("last loss", 1.0, 1.5),
        ("loss, improvement per second", 50.0, 12.5),
        ("loss, improvement per joule", 0.5, 12.5 / 75.0),
        ("joules per step", 1.0, 1.5),
    ];
    assert_eq!(figures.len(), expected.len(), "{figures:?}");
    for (figure, (name, before, after)) in figures.iter().zip(expected) {
        assert_eq!(figure["name"], name);
        for (side, value) in [("before", before), ("after", after)] {
            let actual = figure[side].as_f64().unwrap();
            assert!((actual / value - 1.0).abs() < 1e-9, "{name} {side}: {actual}");
        }
    }
    let text = printed("diff --width 160", &[&before, &after]);
    let row = text.lines().find(|line| line.starts_with("last loss")).unwrap_or_else(|| panic!("{text}"));
    assert_eq!(row.split_whitespace().collect::<Vec<_>>().join(" "), "last loss 1.00 1.50 +0.500 +50.0 % –");
    let other = printed_json("diff --json --goal accuracy", &[&before, &after]);
    assert_eq!(other["efficiency"].as_array().unwrap().len(), 1, "no accuracy, but energy: {other}");
    // What one side lacks is not compared.
    let plain = record(folder.path(), 3, |_| info_span!("train_step").in_scope(|| info!(counter.loss = 2.0)));
    let mixed = printed_json("diff --json", &[&plain, &after]);
    let names: Vec<_> = mixed["efficiency"].as_array().unwrap().iter().map(|row| row["name"].clone()).collect();
    assert_eq!(names, ["last loss", "loss, improvement per second"]);
    assert!(printed("diff --html -", &[&before, &after]).contains("loss, improvement per joule"));
}
