//! Baselines, and checks against them.

use crate::{fixture, printed, run, window};
use std::{
    fs,
    path::{Path, PathBuf},
};

fn faulty(name: &str) -> PathBuf {
    fixture(&format!("faults/{name}-faulty.kernspan"))
}

fn repaired(name: &str) -> PathBuf {
    fixture(&format!("faults/{name}-repaired.kernspan"))
}

/// Writes the baseline of a file into a folder.
fn baseline(folder: &Path, file: &Path) -> PathBuf {
    let path = folder.join("baseline.json");
    fs::write(&path, printed("baseline", &[file])).unwrap();
    path
}

/// Runs `check` with more arguments.
fn check(arguments: &str, baseline: &Path, file: &Path) -> crate::Run {
    run(&format!("check {arguments} --baseline"), &[baseline, file])
}

#[test]
fn a_run_is_not_worse_than_itself() {
    let folder = tempfile::tempdir().unwrap();
    for file in [window("candle"), window("training"), faulty("done-twice")] {
        let baseline = baseline(folder.path(), &file);
        assert!(fs::metadata(&baseline).unwrap().len() < 40_000);
        for arguments in ["", "--json", "--format md", "--github"] {
            let run = check(arguments, &baseline, &file);
            assert_eq!((run.code, run.err.as_str()), (0, ""), "{arguments}: {}", run.out);
        }
        // A file that was written before can be checked, too.
        assert_eq!(check("", &baseline, &baseline).code, 0);
    }
}

#[test]
fn a_check_that_cannot_tell_is_inconclusive() {
    let folder = tempfile::tempdir().unwrap();
    let file = window("training");
    let path = baseline(folder.path(), &file);
    // A single run does not show how much runs differ.
    let run = check("", &path, &file);
    assert!(run.code == 0 && run.out.starts_with("inconclusive against the baseline: 1 run of "), "{}", run.out);
    assert!(run.out.contains("\ncannot tell: the step: "), "{}", run.out);
    assert!(run.out.ends_with("\nexit status 0: nothing is known to be worse (3 with --fail-if-inconclusive)\n"));
    let run = check("--fail-if-inconclusive", &path, &file);
    assert!(run.code == 3 && run.out.contains("\nexit status 3: "), "{}", run.out);
    let run = check("--fail-if-inconclusive --github", &path, &file);
    assert_eq!((run.code, run.err.as_str()), (3, ""), "{}", run.out);
    assert!(run.out.starts_with("## kernspan: inconclusive against the baseline\n"), "{}", run.out);
    assert!(run.out.contains("\n::error::the step: "), "{}", run.out);
    let json: serde_json::Value = serde_json::from_str(&check("--json", &path, &file).out).unwrap();
    assert_eq!(json["verdict"], "inconclusive");
    let off = "--fail-if-inconclusive -t step=off -t span=off -t gpu=off";
    let run = check(off, &path, &file);
    assert!(run.code == 0 && run.out.starts_with("not worse than the baseline: "), "{}", run.out);
}

#[test]
fn a_ninefold_step_is_worse_at_any_noise() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, runs: &[&str]| {
        let runs = runs.iter().map(|durations| {
            let machine = r#"{"host":"ci","kind":null,"gpus":[]}"#;
            format!(r#"{{"program":"train","machine":{machine},"steps":3,"stride":1,"durations":[{durations}]}}"#)
        });
        let path = folder.path().join(name);
        let runs = runs.collect::<Vec<_>>().join(",");
        fs::write(&path, format!(r#"{{"format":1,"kernspan":"0","runs":[{runs}],"findings":[],"left_out":0}}"#))
            .unwrap();
        path
    };
    let before = write("before.json", &["868000,600000,2000000", "700000,900000,1500000"]);
    for runs in [&["8015000,3000000,30000000", "20000000,7000000,900000"][..], &["8015000"]] {
        let run = check("", &before, &write("after.json", runs));
        assert_eq!((run.code, run.err.as_str()), (1, ""), "{}", run.out);
        assert!(run.out.contains("worse: the step: ") && !run.out.contains("(-1"), "{}", run.out);
    }
}

#[test]
fn the_check_and_the_difference_agree_about_a_step() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, runs: [f64; 3]| {
        let runs = runs.map(|factor| {
            let durations: Vec<_> = (0..20).map(|step| ((1e6 + 1e4 * f64::from(step % 7)) * factor) as u64).collect();
            let machine = serde_json::json!({"host": "ci", "kind": null, "gpus": []});
            let (program, steps) = ("train", 20);
            serde_json::json!({
                "program": program, "machine": machine, "steps": steps, "stride": 1, "durations": durations
            })
        });
        let json = serde_json::json!({"format": 1, "kernspan": "0", "runs": runs, "findings": [], "left_out": 0});
        let path = folder.path().join(name);
        fs::write(&path, json.to_string()).unwrap();
        path
    };
    let before = write("before.json", [1.0, 1.06, 0.93]);
    // Half as long again in each run; as before; half as long again, but one run as before.
    for (runs, code, verdict, outcome) in [
        ([1.43, 1.33, 1.52], 1, "worse than the baseline", "worse"),
        ([1.01, 1.05, 0.94], 0, "inconclusive against the baseline", "cannot tell: needs "),
        ([1.43, 1.0, 1.52], 0, "inconclusive against the baseline", "cannot tell: needs "),
    ] {
        let after = write("after.json", runs);
        let run = check("", &before, &after);
        assert!(run.code == code && run.out.starts_with(verdict), "{runs:?}: {}", run.out);
        let diff = printed("diff --width 200", &[&before, &after]);
        let step = diff.lines().find(|line| line.starts_with("step ")).unwrap();
        assert!(step.contains(&format!("  {outcome}")), "{runs:?}: {diff}{}", run.out);
    }
}

#[test]
fn what_is_worse_is_said() {
    let folder = tempfile::tempdir().unwrap();
    for (name, line) in [
        ("allocations", "worse: train_step > forward > layer: 10 more allocations a step (10 instead of 0)"),
        ("done-twice", "worse: train_step > forward > layer: 20 more kernel launches a step (40 instead of 20)"),
        ("large-readback", "worse: train_step > metrics: 1 more copy a step (1 instead of 0)"),
        ("scalar-read", "worse: train_step > backward > layer > norm: 10 more copies a step (10 instead of 0)"),
        ("tiny-copies", "worse: train_step > data: 199 more copies a step (201 instead of 2)"),
        ("f32-matmul", "worse: train_step > backward > layer > matmul on the GPU: 1.41 ms instead of 194 µs"),
        ("host-work", "worse: train_step > forward > layer > augment: 429 µs instead of 0 µs"),
        ("input", "worse: train_step > data: 828 µs instead of 2.57 µs"),
        ("module-load", "worse: train_step > custom > compile: 11.5 ms instead of 0 µs"),
        ("pageable-copy", "worse: train_step > data: 525 µs instead of 3.67 µs"),
        ("synchronize", "worse: train_step > forward > layer: 244 µs instead of 119 µs"),
    ] {
        let baseline = baseline(folder.path(), &repaired(name));
        let run = check("", &baseline, &faulty(name));
        assert_eq!((run.code, run.err.as_str()), (1, ""), "{name}: {}", run.out);
        assert!(run.out.contains(line), "{name}: {}", run.out);
    }
}

#[test]
fn the_text_and_the_comment_are_as_they_were() {
    let folder = tempfile::tempdir().unwrap();
    let baseline = baseline(folder.path(), &repaired("done-twice"));
    let file = faulty("done-twice");
    crate::assert_golden("done_twice_check.txt", &check("", &baseline, &file).out);
    let run = check("--github", &baseline, &file);
    crate::assert_golden("done_twice_check.md", &run.out);
    assert!(run.out.contains("::error file=benches/gpu/src/bin/faults/trainer.rs,line=127::train_step > forward"));
    // With a file for the comment, only annotations are printed.
    let comment = folder.path().join("comment.md");
    let summary = folder.path().join("summary.md");
    let mut command = crate::command(&["check", "--github", "-o"]);
    command.args([&comment, Path::new("--baseline"), &baseline, &file].map(AsRef::<std::ffi::OsStr>::as_ref));
    let run = crate::Run::of(command.env("GITHUB_STEP_SUMMARY", &summary).output().unwrap());
    assert!(run.code == 1 && run.out.lines().all(|line| line.starts_with("::error")), "{}", run.out);
    let comment = fs::read_to_string(&comment).unwrap();
    assert!(comment.starts_with("## kernspan: worse than the baseline\n"));
    assert_eq!(fs::read_to_string(&summary).unwrap(), comment);
}

#[test]
fn json_has_all_that_was_compared() {
    let folder = tempfile::tempdir().unwrap();
    let baseline = baseline(folder.path(), &repaired("tiny-copies"));
    let run = check("--json", &baseline, &faulty("tiny-copies"));
    let json: serde_json::Value = serde_json::from_str(&run.out).unwrap();
    assert_eq!(json["problems"][0]["path"], serde_json::json!(["train_step", "data"]));
    assert_eq!((&json["verdict"], &json["comparison"]["after"]["steps"]), (&"worse".into(), &6.into()));
    assert!(json["comparison"]["spans"].as_array().unwrap().len() > 3);
}

#[test]
fn thresholds_are_options_or_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let baseline = baseline(folder.path(), &repaired("done-twice"));
    let file = faulty("done-twice");
    let off = "-t kernels@layer=off -t span=off -t gpu=off -t step=off";
    assert_eq!(check(off, &baseline, &file).code, 0);
    let thresholds = folder.path().join("thresholds.json");
    fs::write(&thresholds, r#"{"kernels": 20, "span": "off", "gpu": "off", "step": "off"}"#).unwrap();
    let with_file = format!("--thresholds {}", thresholds.display());
    assert_eq!(check(&with_file, &baseline, &file).code, 0);
    assert_eq!(check(&format!("{with_file} -t kernels=19"), &baseline, &file).code, 1);
    let wrong = check("-t kernel=1", &baseline, &file);
    assert!(
        wrong.code == 2 && wrong.err.contains("invalid threshold \"kernel=1\": expected one of step"),
        "{}",
        wrong.err
    );
    fs::write(&thresholds, "[]").unwrap();
    assert_eq!(check(&with_file, &baseline, &file).code, 2);
}

#[test]
fn other_machines_are_said_unless_they_are_of_one_kind() {
    let folder = tempfile::tempdir().unwrap();
    let file = window("training");
    let path = folder.path().join("baseline.json");
    let write = |arguments: &str| {
        let json = printed(&format!("baseline {arguments}"), &[&file]);
        fs::write(&path, json.replace("\"host\":\"", "\"host\":\"other-")).unwrap();
    };
    write("");
    let note = "note: different machines, so times are not compared: other-";
    assert!(check("", &path, &file).out.contains(note));
    write("--machine ci");
    assert!(!check("--machine ci", &path, &file).out.contains(note));
    assert!(
        check("--machine gpu-ci", &path, &file).out.contains("ci (NVIDIA H200) before, gpu-ci (NVIDIA H200) after")
    );
}

#[test]
fn a_file_that_is_no_baseline_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("other.json");
    for (json, reason) in [("{}", "it has no format"), ("[1]", "not a baseline"), (r#"{"format":9}"#, "newer version")]
    {
        fs::write(&path, json).unwrap();
        let run = check("", &path, &window("training"));
        assert!(run.code == 1 && run.err.contains("other.json: ") && run.err.contains(reason), "{}", run.err);
    }
    let missing = check("", &folder.path().join("missing.json"), &window("training"));
    assert!(missing.code == 1 && missing.err.ends_with("missing.json: no such file or directory\n"), "{}", missing.err);
}

#[test]
fn baselines_are_written_and_merged() {
    let folder = tempfile::tempdir().unwrap();
    let [one, other, both] = ["one.json", "other.json", "both.json"].map(|name| folder.path().join(name));
    for (name, output) in [("candle", &one), ("training", &other)] {
        let run = run("baseline -o", &[output, &window(name)]);
        assert!(run.code == 0 && run.err.contains("json: 1 run, "), "{}", run.err);
    }
    let merged = run("baseline -o", &[&both, &one, &other]);
    assert!(merged.code == 0 && merged.err.contains("both.json: 2 runs, "), "{}", merged.err);
    // A trace without whole steps has nothing to compare.
    let none = run("baseline", &[&window("calls")]);
    assert!(none.code == 0 || none.err.contains("no whole step was recorded"), "{}", none.err);
}
