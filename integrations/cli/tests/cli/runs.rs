//! Folders that hold several runs.

use crate::{fixture, printed, printed_json, run};
use std::{
    fs,
    path::{Path, PathBuf},
};
use tempfile::TempDir;

/// A folder to which a faulty program wrote first, and then the repaired one. Its files have the names of exporters.
fn two_runs() -> (TempDir, [PathBuf; 2]) {
    let folder = tempfile::tempdir().unwrap();
    let files = [("faulty", "vm_526.1.kernspan"), ("repaired", "vm_539.2.kernspan")].map(|(variant, name)| {
        let file = folder.path().join(name);
        fs::copy(fixture(&format!("faults/input-{variant}.kernspan")), &file).unwrap();
        file
    });
    (folder, files)
}

/// Copies the traces of a fixture's ranks to a folder, with something before their names.
fn copy_ranks(name: &str, folder: &Path) {
    for rank in 0..4 {
        let from = fixture(&format!("ranks/{name}/rank{rank}.json.gz"));
        fs::copy(from, folder.join(format!("{name}-rank{rank}.json.gz"))).unwrap();
    }
}

#[test]
fn of_two_runs_the_newest_is_read() {
    let (folder, [faulty, repaired]) = two_runs();
    let name = folder.path().display();
    let said = format!(
        "kernspan: {name} holds 2 runs; reading the newest (vm_539, started 2026-11-16 23:06:15 UTC). --run vm_526 \
         reads the other, --all both; to compare them: kernspan diff {name}\n"
    );
    for command in ["report", "advise", "steps", "top", "baseline", "flame -o -"] {
        let newest = run(command, &[folder.path()]);
        assert_eq!((newest.code, newest.err.as_str()), (0, said.as_str()), "{command}");
        assert_eq!(newest.out, printed(command, &[&repaired]), "{command}");
        let command = |option: &str| match command.split_once(' ') {
            Some((command, options)) => format!("{command} {option} {options}"),
            None => format!("{command} {option}"),
        };
        for other in ["vm_526", "526", "vm_526.1.kernspan"] {
            let named = printed(&command(&format!("--run {other}")), &[folder.path()]);
            assert_eq!(named, printed(&command(""), &[&faulty]), "{}", command(other));
        }
        let all = printed(&command("--all"), &[folder.path()]);
        assert_eq!(all, printed(&command(""), &[&faulty, &repaired]), "{}", command("--all"));
    }
    let [page, expected] = ["folder.html", "file.html"].map(|name| folder.path().join(name));
    for (page, file) in [(&page, folder.path()), (&expected, &*repaired)] {
        assert_eq!(run(&format!("report --html {}", page.display()), &[file]).code, 0);
    }
    assert!(fs::read(page).unwrap() == fs::read(expected).unwrap(), "the page is of the newest run only");
}

#[test]
fn a_run_that_is_not_there_is_an_error() {
    let (folder, [faulty, _]) = two_runs();
    let unknown = run("report --run vm_1", &[folder.path()]);
    let expected = format!(
        "kernspan: no run in {} is called vm_1; there are:\n  vm_526, started 2026-11-16 23:06:14 UTC\n  vm_539, \
         started 2026-11-16 23:06:15 UTC\n",
        folder.path().display()
    );
    assert_eq!((unknown.code, unknown.err), (1, expected));
    let file = run("report --run vm_526", &[&faulty]);
    assert!(file.code == 2 && file.err.contains("--run vm_526 needs a folder"), "{}", file.err);
    assert_eq!(run("report --all --run vm_526", &[folder.path()]).code, 2);
}

#[test]
fn runs_of_a_folder_are_compared() {
    let (folder, [faulty, repaired]) = two_runs();
    let mut of_files = printed_json("diff --json", &[&faulty, &repaired]);
    assert_eq!(printed_json("diff --json", &[folder.path()]), of_files);
    let third = folder.path().join("vm_475.0.kernspan");
    fs::copy(fixture("gpu/candle.kernspan"), &third).unwrap();
    let last_two = run("diff --json", &[folder.path()]);
    assert!(last_two.err.ends_with(" holds 3 runs; comparing the last two\n"), "{}", last_two.err);
    assert_eq!(serde_json::from_str::<serde_json::Value>(&last_two.out).unwrap(), of_files);
    // A side that is a folder is its newest run.
    let one = tempfile::tempdir().unwrap();
    fs::copy(&faulty, one.path().join("vm_526.1.kernspan")).unwrap();
    let sides = run("diff --json", &[one.path(), folder.path()]);
    assert!(sides.err.contains(" holds 3 runs; reading the newest (vm_539, "), "{}", sides.err);
    of_files = serde_json::from_str(&sides.out).unwrap();
    assert_eq!((&of_files["before"]["runs"], &of_files["after"]["runs"]), (&1.into(), &1.into()));
    let alone = run("diff", &[one.path()]);
    assert!(alone.code == 2 && alone.err.contains("or a folder of several runs"), "{}", alone.err);
}

#[test]
fn ranks_of_a_run_stay_together() {
    let folder = tempfile::tempdir().unwrap();
    copy_ranks("late", folder.path());
    let late = printed_json("ranks --json", &[folder.path()]);
    copy_ranks("even", folder.path());
    let both = run("ranks --json", &[folder.path()]);
    assert!(both.err.contains(" holds 2 runs; reading the newest ("), "{}", both.err);
    assert!(both.err.contains("-rank0, 4 ranks, started "), "{}", both.err);
    // That was recorded later.
    let newest: serde_json::Value = serde_json::from_str(&both.out).unwrap();
    assert_eq!(newest, printed_json("ranks --json", &[&fixture("ranks/even")]));
    assert_eq!(newest["ranks"].as_array().unwrap().len(), 4);
    assert!(newest["warnings"].as_array().unwrap().is_empty(), "{newest}");
    assert_eq!(printed_json("ranks --json --run late-rank0", &[folder.path()]), late);
    assert_eq!(printed_json("ranks --json --run even-rank2", &[folder.path()])["late"], serde_json::json!([]));
}

#[test]
fn tables_have_a_run_for_each() {
    let (folder, _) = two_runs();
    let alone = folder.path().join("alone");
    fs::create_dir(&alone).unwrap();
    fs::copy(fixture("gpu/candle.kernspan"), alone.join("a.kernspan")).unwrap();
    let ranks = folder.path().join("ddp");
    for rank in 0..4 {
        let of_rank = ranks.join(format!("rank_{rank}"));
        fs::create_dir_all(&of_rank).unwrap();
        let from = fixture(&format!("ranks/late/rank{rank}.json.gz"));
        fs::copy(from, of_rank.join(format!("rank{rank}.json.gz"))).unwrap();
    }
    let tables = folder.path().join("tables");
    let written = run(&format!("tables --recursive --out {}", tables.display()), &[folder.path()]);
    assert_eq!(written.code, 0, "{}", written.err);
    let folder_name = folder.path().file_name().unwrap().to_str().unwrap();
    let names = fs::read_dir(tables.join("steps")).unwrap().map(|entry| entry.unwrap().file_name());
    let mut names: Vec<_> = names.map(|name| name.into_string().unwrap()).collect();
    names.sort();
    let mut expected = vec!["run=alone".to_owned(), "run=ddp".to_owned()];
    // Names of partitions do not begin with a dot.
    let folder_name = folder_name.trim_start_matches('.');
    expected.extend(["vm_526", "vm_539"].map(|process| format!("run={folder_name}-{process}")));
    expected.sort();
    assert_eq!(names, expected);
    let named = run(&format!("tables --run night --out {}", tables.display()), &[folder.path()]);
    assert!(named.code == 2 && named.err.contains("--run night names one run, but these are 2:"), "{}", named.err);
}

#[test]
fn a_folder_is_converted_and_merged() {
    let (folder, [_, repaired]) = two_runs();
    let [new, expected] = ["new.pftrace", "expected.pftrace"].map(|name| folder.path().join(name));
    let converted = run("convert", &[folder.path(), &new]);
    assert!(converted.code == 0 && converted.err.contains("reading the newest (vm_539, "), "{}", converted.err);
    assert_eq!(run("convert", &[&repaired, &expected]).code, 0);
    assert!(fs::read(&new).unwrap() == fs::read(&expected).unwrap());
    assert_eq!(run("convert --run vm_526", &[folder.path(), &new]).code, 0);
    assert!(fs::read(&new).unwrap() != fs::read(expected).unwrap());

    let ranks = tempfile::tempdir().unwrap();
    copy_ranks("even", ranks.path());
    let converted = run("convert", &[ranks.path(), &new]);
    assert_eq!(converted.code, 0, "{}", converted.err);
    let said = format!("has 4 windows; converting {}", ranks.path().join("even-rank0.json.gz").display());
    assert!(converted.err.contains(&said), "{}", converted.err);

    // Both runs of ranks are in the folder, and a file that was merged earlier.
    copy_ranks("late", ranks.path());
    let merged = ranks.path().join("merged.json");
    let read = run(&format!("merge --run even-rank0 {}", merged.display()), &[ranks.path()]);
    assert_eq!(read.code, 0, "{}", read.err);
    let merged: serde_json::Value = serde_json::from_str(&fs::read_to_string(merged).unwrap()).unwrap();
    assert_eq!(merged["kernspan_merged"].as_array().unwrap().len(), 4);
    let again = run("report --run even-rank0", &[ranks.path()]);
    assert!(again.code == 0 && again.err.contains("merged.json: merged from other files"), "{}", again.err);
}
