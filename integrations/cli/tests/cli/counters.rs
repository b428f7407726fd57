//! Tables of hardware counters.

use crate::{printed, printed_json, run, window, written};
use kernspan::{Report, report::CountersBy};
use serde_json::Value;

/// The bytes that a copy of the window reads and writes.
const BYTES: f64 = 2.0 * (1_u64 << 30) as f64;

fn row<'a>(rows: &'a Value, name: &str) -> &'a Value {
    rows["counters"].as_array().unwrap().iter().find(|row| row["name"] == name).unwrap()
}

#[test]
fn counters_are_printed_by_span_module_kernel_and_step() {
    let file = window("counters");
    let report = Report::of(&kernspan::read(&file).unwrap());
    for (kind, by) in [("", CountersBy::Span), ("kernel", CountersBy::Kernel), ("step", CountersBy::Step)] {
        let option = if kind.is_empty() { String::new() } else { format!("--counters-by {kind}") };
        let expected = report.counters().by(by);
        assert_eq!(printed(&format!("report --counters {option} --width 120"), &[&file]), expected.to_string());
        let rows = printed_json(&format!("report --counters {option} --json"), &[&file]);
        assert_eq!(rows["counters"].as_array().unwrap().len(), expected.limit(usize::MAX).rows().len(), "{kind}");
    }
    let spans = printed_json("report --counters --json", &[&file]);
    assert_eq!(
        (&row(&spans, "compute")["bound"], &row(&spans, "memory")["bound"]),
        (&"Tensor".into(), &"Memory".into())
    );
    let kernels = printed_json("report --counters --counters-by kernel --json", &[&file]);
    let memory = report.kernels().rows().into_iter().find(|row| row.name == "copy_all").unwrap();
    let copied = row(&kernels, &memory.name)["dram_bytes_per_second"].as_f64().unwrap();
    let by_time = BYTES / memory.average.as_secs_f64();
    assert!((copied / by_time - 1.0).abs() < 0.05, "{copied:.3e} and {by_time:.3e} bytes/s");
    let modules = printed("report --counters --counters-by module", &[&file]);
    assert_eq!(modules, "no modules were recorded: no span has the field op.module\n");
}

#[test]
fn counters_are_read_from_json_traces() {
    let folder = tempfile::tempdir().unwrap();
    let json = folder.path().join("counters.pt.trace.json");
    written(&format!("convert {}", window("counters").display()), &[&json]);
    let table = |file| printed("report --counters --width 120", &[file]);
    let of_json = table(&json);
    assert!(of_json.lines().any(|line| line.starts_with("compute ") && line.contains(" tensor ")), "{of_json}");
    assert_eq!(of_json, table(&window("counters")));
}

#[test]
fn a_trace_without_counters_says_so() {
    assert_eq!(printed("report --counters", &[&window("candle")]), "no hardware counters were sampled\n");
    let alone = run("report --counters-by kernel", &[&window("counters")]);
    assert_eq!(alone.code, 2, "{}", alone.err);
    assert!(alone.err.contains("--counters"), "{}", alone.err);
}
