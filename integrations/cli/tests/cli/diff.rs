//! Differences between runs.

use crate::{assert_golden, command, fixture, printed, printed_json, run, torch, window};
use std::{fs, path::PathBuf};

/// The windows of a fault: repaired, and faulty.
fn sides(fault: &str) -> [PathBuf; 2] {
    ["repaired", "faulty"].map(|variant| fixture(&format!("faults/{fault}-{variant}.kernspan")))
}

/// Runs in the folder of the fixtures, so that no path of this machine is in the output.
fn printed_in_fixtures(arguments: &str) -> String {
    let arguments: Vec<_> = arguments.split_whitespace().collect();
    let output = command(&arguments).current_dir(fixture("faults")).output().unwrap();
    assert_eq!((output.status.code(), output.stderr.as_slice()), (Some(0), &b""[..]), "{arguments:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn differences_are_as_they_were() {
    let files = "launch-bound-repaired.kernspan launch-bound-faulty.kernspan";
    for width in [100, 200] {
        let text = printed_in_fixtures(&format!("diff --width {width} {files}"));
        assert_golden(&format!("launch_bound_diff_{width}.txt"), &text);
        let too_wide = text.lines().find(|line| line.chars().count() > width);
        assert_eq!(too_wide, None);
    }
    assert_golden("launch_bound_diff.md", &printed_in_fixtures(&format!("diff --format md {files}")));
}

#[test]
fn the_cause_is_the_first_explanation() {
    for (fault, path, state) in [
        ("scalar-read", "train_step > backward > layer > norm", "added"),
        ("done-twice", "train_step > forward > layer", "both"),
        ("host-work", "train_step > forward > layer > augment", "added"),
    ] {
        let [before, after] = sides(fault);
        let diff = printed_json("diff --json", &[&before, &after]);
        let text = |path: &serde_json::Value| {
            let names: Vec<_> = path.as_array().unwrap().iter().map(|name| name.as_str().unwrap()).collect();
            names.join(" > ")
        };
        assert_eq!(text(&diff["explanations"][0]["path"]), path, "{fault}");
        let span = diff["spans"].as_array().unwrap().iter().find(|span| text(&span["path"]) == path).unwrap();
        assert_eq!(span["presence"], state, "{fault}");
        assert!(diff["whole_step"]["change"]["low"].as_f64().unwrap() > 0.0, "{fault}");
        // The same the other way round.
        let back = printed_json("diff --json", &[&after, &before]);
        assert!(back["whole_step"]["change"]["high"].as_f64().unwrap() < 0.0, "{fault}");
        assert_eq!(back["gone_findings"], diff["new_findings"], "{fault}");
    }
}

#[test]
fn a_run_does_not_differ_from_itself() {
    for file in [window("candle"), torch("transformer"), sides("input")[0].clone()] {
        let diff = printed_json("diff --json", &[&file, &file]);
        assert_eq!(diff["step"]["change"]["value"], 0.0);
        for list in ["counts", "explanations", "kernels", "new_findings", "gone_findings"] {
            assert_eq!(diff[list].as_array().unwrap().len(), 0, "{list} of {}", file.display());
        }
        let text = printed("diff", &[&file, &file]);
        assert!(text.contains("no span has certainly changed") && !text.contains("Kernels and copies"), "{text}");
    }
}

#[test]
fn kernels_have_times_and_launches_of_a_step() {
    let [before, after] = sides("done-twice");
    let kernels = printed_json("diff --kernels --json", &[&before, &after]);
    let first = &kernels["kernels"][0];
    assert_eq!((&first["name"], &first["before"]["launches"]), (&"layer_forward".into(), &20.0.into()));
    assert_eq!(first["after"]["launches"], 40.0);
    let csv = printed("diff --kernels --format csv", &[&before, &after]);
    assert!(csv.starts_with("name,before.launches,before.time,before.average,after.launches,"), "{csv}");
    let spans = printed("diff --spans --format csv", &[&before, &after]);
    assert!(spans.lines().nth(1).unwrap().starts_with("train_step,"), "{spans}");
}

#[test]
fn there_may_be_several_runs_on_each_side() {
    let [before, after] = sides("done-twice");
    let [other_before, other_after] = sides("scalar-read");
    let between = PathBuf::from("--");
    let files = [&before, &other_before, &between, &after, &other_after].map(PathBuf::as_path);
    let diff = printed_json("diff --json", &files);
    assert_eq!((&diff["before"]["runs"], &diff["after"]["runs"]), (&2.into(), &2.into()));
    assert_eq!((&diff["before"]["steps"], &diff["after"]["steps"]), (&12.into(), &12.into()));
    // All runs of a folder are one side, too.
    let folder = tempfile::tempdir().unwrap();
    let inner = folder.path().join("inner");
    fs::create_dir(&inner).unwrap();
    fs::copy(&before, inner.join("a.kernspan")).unwrap();
    fs::copy(&other_before, inner.join("b.kernspan")).unwrap();
    let one = printed_json("diff --json --all", &[&inner, &after]);
    assert_eq!((&one["before"]["runs"], &one["after"]["runs"]), (&2.into(), &1.into()));
    assert_eq!(printed_json("diff --json --all --recursive", &[folder.path(), &after]), one);
}

#[test]
fn a_side_may_be_a_baseline() {
    let [before, after] = sides("done-twice");
    let folder = tempfile::tempdir().unwrap();
    let baseline = folder.path().join("baseline.json");
    fs::write(&baseline, printed("baseline", &[&before])).unwrap();
    let (of_file, of_trace) =
        (printed_json("diff --json", &[&baseline, &after]), printed_json("diff --json", &[&before, &after]));
    for member in ["step", "spans", "counts", "kernels", "new_findings", "explanations"] {
        assert_eq!(of_file[member], of_trace[member], "{member}");
    }
    assert_eq!(of_file["kernel_times"].as_array().unwrap().len(), 0, "a baseline has no times of kernels");
}

#[test]
fn counts_that_differ_look_different_and_are_not_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, kernels: [u64; 4], copies: [u64; 4]| {
        let range =
            |[min, max, sum, steps]: [u64; 4]| serde_json::json!({"min": min, "max": max, "sum": sum, "steps": steps});
        let counts = serde_json::json!([["kernels", range(kernels)], ["copies", range(copies)]]);
        let run = serde_json::json!({"steps": 2, "stride": 1, "durations": [1000, 1000], "counts": counts});
        let json = serde_json::json!({"format": 1, "kernspan": "0", "runs": [run], "findings": [], "left_out": 0});
        let path = folder.path().join(name);
        fs::write(&path, json.to_string()).unwrap();
        path
    };
    let before = write("before.json", [3, 4, 7, 2], [17, 18, 899, 50]);
    let after = write("after.json", [3, 3, 6, 2], [18, 18, 900, 50]);
    let text = printed("diff --width 120", &[&before, &after]);
    let row = |name: &str| {
        let line = text.lines().find(|line| line.starts_with(name)).unwrap_or_else(|| panic!("{text}"));
        line.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    assert_eq!(row("kernel launches"), "kernel launches 3.5 3.0 -0.5 -14.3 % – varies from step to step");
    assert_eq!(row("copies"), "copies 17.98 18.00 +0.02 +0.1 % – varies from step to step");
}

#[test]
fn files_that_cannot_be_compared_are_named() {
    let [before, after] = sides("input");
    let missing = run("diff", &["missing.json".as_ref(), after.as_path()]);
    assert!(missing.code == 1 && missing.out.is_empty() && missing.err.contains("missing.json: "), "{}", missing.err);
    let folder = tempfile::tempdir().unwrap();
    fs::copy(&before, folder.path().join("a.kernspan")).unwrap();
    fs::write(folder.path().join("broken.json"), "{").unwrap();
    let some = run("diff", &[folder.path(), &after]);
    assert!(some.code == 1 && !some.out.is_empty() && some.err.contains("broken.json: "), "{}", some.err);
    for files in [&[][..], &[before.as_path()], &[&before, &after, &after], &["--".as_ref(), after.as_path()]] {
        let wrong = run("diff", files);
        assert_eq!((wrong.code, wrong.out.as_str()), (2, ""), "{files:?}");
    }
    let three = run("diff", &[&before, &after, &after]);
    assert!(three.err.contains("expected BEFORE and AFTER, got 3 (use `BEFORE… -- AFTER…`)"), "{}", three.err);
    let two_tables = run("diff --format csv", &[&before, &after]);
    assert_eq!(two_tables.code, 2);
}

#[test]
fn what_the_gpu_is_busy_with_explains_a_step_that_waits_for_it() {
    // The products of `matmul` use tensor cores, and copies run while kernels do.
    for (fault, span) in [("f32-matmul", "matmul"), ("exposed-copy", "data")] {
        let [repaired, faulty] = sides(fault);
        let diff = printed_json("diff --json", &[&faulty, &repaired]);
        let first = &diff["explanations"][0];
        assert_eq!((&first["is_gpu"], &first["is_critical"]), (&true.into(), &true.into()), "{fault}: {first}");
        assert_eq!(first["path"].as_array().unwrap().last().unwrap(), span, "{fault}: {first}");
        assert!(first["change"]["value"].as_f64().unwrap() < -400_000.0, "{fault}: {first}");
        let note = diff["notes"].to_string();
        assert!(note.contains("the host runs ahead of the GPU"), "{fault}: {note}");
    }
}
