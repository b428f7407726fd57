//! Sampled stacks: tables, flame graphs and conversions.

use crate::{printed, printed_json, run, window, written};
use kernspan::{
    Chrome, Exporter,
    analysis::Analysis,
    trace::sample::{gpu_trace, stacks_trace},
};
use std::{fs, path::PathBuf};

/// A folder with the file of the sample trace with stacks.
fn sampled() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let mut files = Chrome::to_dir(folder.path()).export(&Analysis::of(&stacks_trace())).unwrap();
    (folder, files.remove(0))
}

#[test]
fn lines_and_functions_are_printed() {
    let (_folder, file) = sampled();
    let lines = printed("report --lines --width 200", &[&file]);
    let row = |text: &str, line: &str| {
        let row = text.lines().find(|row| row.contains(line)).unwrap_or_else(|| panic!("{line} in {text}"));
        row.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    assert!(row(&lines, "src/model.rs:57").starts_with("forward src/model.rs:57 train::model::softmax * 60.0 % 12.9"));
    assert!(row(&lines, "kernel.rs:100").contains("src/model.rs:43 * 30.0 %"), "{lines}");
    let own = printed("report --lines --own --in-span forward", &[&file]);
    assert!(row(&own, "src/model.rs:43").contains("* 40.0 %") && !own.contains("backward"), "{own}");
    let functions = printed_json("report --functions --json", &[&file]);
    assert_eq!(functions["functions"][0]["function"], "train::grad::walk");
    assert_eq!(functions["functions"][0]["self_time"]["cpu"], 56_000);
    let overview = printed("report", &[&file]);
    assert!(
        overview.contains("src/model.rs:57") && overview.contains("incomplete: 3 stack samples lost"),
        "{overview}"
    );
    assert!(printed("report --lines --format csv", &[&file]).starts_with("span,"));
    assert!(printed("report --lines --format md", &[&file]).contains("| src/model.rs:57 |"));
    let none = window("training");
    assert_eq!(printed("report --lines", &[&none]), "no stacks were sampled\n");
    assert_eq!(printed("report --lines --in-span nothing", &[&file]), "no stacks were sampled in this span\n");
}

#[test]
fn stacks_are_converted_and_drawn() {
    let (folder, file) = sampled();
    let new = |name: &str| folder.path().join(name);
    for name in ["a.json", "b.json.gz"] {
        written("convert", &[&file, &new(name)]);
        assert_eq!(printed("report --lines", &[&new(name)]), printed("report --lines", &[&file]));
    }
    for name in ["c.pb.gz", "d.firefox.json", "e.cpu.folded", "f.waiting.folded", "g.pftrace"] {
        written("convert", &[&file, &new(name)]);
    }
    assert!(fs::read_to_string(new("e.cpu.folded")).unwrap().contains(";forward;_start;"));
    for (option, title) in [("--cpu", "CPU time by span"), ("--waiting", "Waiting by span")] {
        written(&format!("flame {option} -o {}", new("x.svg").display()), &[&file]);
        assert!(fs::read_to_string(new("x.svg")).unwrap().contains(title));
    }
    // In a folder, the file for the Firefox Profiler is not taken for a trace.
    [new("a.json"), new("b.json.gz")].iter().for_each(|copy| fs::remove_file(copy).unwrap());
    assert_eq!(printed("report --lines", &[folder.path()]), printed("report --lines", &[&file]));
}

#[test]
fn a_trace_without_samples_is_not_converted_to_a_file_of_them() {
    let folder = tempfile::tempdir().unwrap();
    let file = Chrome::to_dir(folder.path()).export(&Analysis::of(&gpu_trace())).unwrap().remove(0);
    for (name, reason) in [
        ("a.pb.gz", "no stacks were sampled"),
        ("a.cpu.folded", "no stacks were sampled on the CPU"),
        ("a.waiting.folded", "no waits were sampled"),
    ] {
        let failed = run("convert", &[&file, &folder.path().join(name)]);
        assert!(failed.code == 1 && failed.err.contains(reason), "{}", failed.err);
        assert!(!folder.path().join(name).exists());
    }
    let failed = run("flame --cpu -o -", &[&file]);
    assert!(failed.code == 1 && failed.err.contains("no stacks were sampled on the CPU"), "{}", failed.err);
}
