//! Runs of a program with several values of a setting.

use crate::{Run, command, fixture, printed, printed_json, run};
use std::{fs, path::Path};

/// A program that trains, as far as its traces say: with a batch of 8 or 128.
const PROGRAM: &str = "mkdir -p runs/trained; \
    case $BATCH_SIZE in 8) name=faulty;; 128) name=repaired;; 512) exit 3;; *) echo nothing; exit 0;; esac; \
    cp $FIXTURES/small-batch-$name.kernspan runs/trained/$BATCH_SIZE.kernspan";

/// Sweeps with the program in a folder.
fn sweep(folder: &Path, arguments: &str) -> Run {
    let arguments = format!("sweep {arguments} -- sh -c");
    let arguments: Vec<_> = arguments.split_whitespace().chain([PROGRAM]).collect();
    let mut command = command(&arguments);
    command.current_dir(folder).env("FIXTURES", fixture("faults").canonicalize().unwrap());
    Run::of(command.output().unwrap())
}

#[test]
fn a_program_runs_with_each_value() {
    let folder = tempfile::tempdir().unwrap();
    let run = sweep(folder.path(), "--var BATCH_SIZE=128,8 --json -o kept");
    assert_eq!(run.code, 0, "{}", run.err);
    let json: serde_json::Value = serde_json::from_str(&run.out).unwrap();
    let rows = json["sweep"].as_array().unwrap();
    assert_eq!(rows.iter().map(|row| row["value"].as_str().unwrap()).collect::<Vec<_>>(), ["8", "128"]);
    assert_eq!((&json["variable"], &json["best"]), (&"BATCH_SIZE".into(), &"128".into()));
    let small = kernspan::read(fixture("faults/small-batch-faulty.kernspan")).unwrap();
    let median = kernspan::Report::of(&small).steps().percentile(50.0).unwrap();
    assert_eq!(rows[0]["measured"]["median"], median.as_nanos() as u64);
    let throughput = rows[0]["throughput"].as_f64().unwrap();
    assert!((throughput - 8.0 / median.as_secs_f64()).abs() < 1e-6, "{throughput}");
    assert!(folder.path().join("kept/BATCH_SIZE=8/trained/8.kernspan").is_file());

    let text = sweep(folder.path(), "--var BATCH_SIZE=8,128 --width 200").out;
    let again = printed(
        "sweep --width 200 --of BATCH_SIZE",
        &[&folder.path().join("kept/BATCH_SIZE=8"), &folder.path().join("kept/BATCH_SIZE=128")],
    );
    assert_eq!(again, text, "recorded runs give the same table");
    crate::assert_golden("sweep_200.txt", &text);
}

#[test]
fn the_other_values_are_tried_all_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let run = sweep(folder.path(), "--var BATCH_SIZE=8,64,512,128 --width 160");
    assert_eq!(run.code, 1);
    assert!(run.err.contains("kernspan: BATCH_SIZE=64: the program left no trace in runs\n"), "{}", run.err);
    assert!(run.err.contains("kernspan: BATCH_SIZE=512: the program failed: exit status: 3\n"), "{}", run.err);
    assert!(run.err.contains("nothing\n") && !run.out.contains("nothing"), "its output is no part of the table");
    assert!(run.out.contains("128 → ") || run.out.contains("512 has no result: the program failed"), "{}", run.out);
    let missing = crate::run("sweep --var BATCH_SIZE=8 -- ./missing/program", &[]);
    assert!(
        missing.code == 1 && missing.err.contains("cannot run ./missing/program: no such file or directory"),
        "{}",
        missing.err
    );
}

#[test]
fn runs_have_names_or_are_given_one() {
    let [small, large] = ["faulty", "repaired"].map(|name| fixture(&format!("faults/small-batch-{name}.kernspan")));
    let named = [(8, &small), (128, &large)].map(|(value, path)| format!("{value}={}", path.display()));
    let named: Vec<&Path> = named.iter().map(Path::new).collect();
    let csv = printed("sweep --items 2 --format csv --of ANYTHING", &named);
    assert!(csv.lines().next().unwrap().starts_with("value,items,throughput,gain,is_best,problem,"), "{csv}");
    assert!(csv.lines().nth(1).unwrap().starts_with("8,2.0,"), "{csv}");
    let unnamed = printed_json("sweep --json --of ANYTHING", &[&small, &large]);
    assert_eq!(unnamed["sweep"][0]["value"], "small-batch-faulty.kernspan");
    let markdown = printed("sweep --format md --of BATCH", &named);
    assert!(markdown.starts_with("## Sweep of BATCH\n") && markdown.contains("\nbest: BATCH=128 with "), "{markdown}");
    let folder = tempfile::tempdir().unwrap();
    let empty = run("sweep --of BATCH", &[folder.path(), &small]);
    assert!(empty.code == 1 && empty.err.contains(": no readable traces in "), "{}", empty.err);
}

#[test]
fn the_value_is_in_arguments_and_folders_too() {
    let folder = tempfile::tempdir().unwrap();
    let copy = "mkdir -p $0; cp $FIXTURES/small-batch-faulty.kernspan $0/window.kernspan";
    let arguments = ["sweep", "--var", "x=a,b", "--traces", "logs/{}", "--json", "--", "sh", "-c", copy, "logs/{}"];
    let mut command = command(&arguments);
    command.current_dir(folder.path()).env("FIXTURES", fixture("faults").canonicalize().unwrap());
    let run = Run::of(command.output().unwrap());
    assert_eq!(run.code, 0, "{}", run.err);
    assert!(fs::exists(folder.path().join("logs/b/window.kernspan")).unwrap());
}

#[test]
fn sweeps_are_used_wrongly() {
    for arguments in [
        "",
        "--var B=1",
        "--var B -- ls",
        "--of B",
        "--var B=1 --of B x",
        "--var B=1 x",
        "--of B x -- ls",
        "--var B=1 --items x -- ls",
    ] {
        let run = run(&format!("sweep {arguments}"), &[]);
        assert_eq!((run.code, run.out.as_str()), (2, ""), "{arguments}");
    }
}
