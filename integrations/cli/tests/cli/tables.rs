//! The commands `tables` and `sql`, and `ranks` on tables.

use crate::{Run, command, fixture, printed_json, run};
use serde_json::Value;
use std::{ffi::OsStr, fs, path::Path};

fn tables_of(traces: &Path, folder: &Path) {
    let written =
        Run::of(command(&[OsStr::new("tables"), traces.as_ref(), "--out".as_ref(), folder.as_ref()]).output().unwrap());
    let expected = format!("kernspan: wrote 7 files in {}\n", folder.display());
    assert_eq!((written.code, written.out.as_str(), written.err.as_str()), (0, "", expected.as_str()));
}

/// Returns what `ranks` says of tables and of traces. Of traces, it says more, such as what fixing a late rank saves.
fn ranks_of(path: &Path) -> [Value; 3] {
    let mut json = printed_json("ranks --json", &[path]);
    json["late"].as_array_mut().unwrap().iter_mut().for_each(|late| late["saves_up_to"] = Value::Null);
    ["ranks", "late", "warnings"].map(|key| json[key].clone())
}

#[test]
fn ranks_are_the_same_by_tables_and_by_traces() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["late", "even"] {
        let (traces, tables) = (fixture(&format!("ranks/{name}")), folder.path().join(name));
        tables_of(&traces, &tables);
        // The run is called like the folder of the traces.
        assert!(tables.join(format!("steps/run={name}")).is_dir());
        assert_eq!(ranks_of(&tables), ranks_of(&traces));
    }
}

#[test]
fn files_are_added_and_merged() {
    let folder = tempfile::tempdir().unwrap();
    for rank in 0..4 {
        tables_of(&fixture(&format!("ranks/late/rank{rank}.json.gz")), folder.path());
    }
    let steps = folder.path().join("steps/run=late");
    assert_eq!(fs::read_dir(&steps).unwrap().count(), 4);
    let merged = run("tables --compact", &[folder.path()]);
    let expected = format!("kernspan: merged 28 files in {} into 7\n", folder.path().display());
    assert_eq!((merged.code, merged.err.as_str()), (0, expected.as_str()));
    assert_eq!(fs::read_dir(&steps).unwrap().count(), 1);
    assert_eq!(ranks_of(folder.path()), ranks_of(&fixture("ranks/late")));
    let again = run("tables --compact", &[folder.path()]);
    assert!(again.err.starts_with("kernspan: nothing to merge in "), "{}", again.err);
}

#[test]
fn what_cannot_be_read_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let (bad, out) = (folder.path().join("bad.json"), folder.path().join("tables"));
    fs::write(&bad, "{").unwrap();
    let files = [&*bad, &fixture("ranks/late/rank0.json.gz"), &fixture("ranks/late/rank2.json.gz")];
    let written = run(&format!("tables --run night --out {}", out.display()), &files);
    assert_eq!(written.code, 1);
    assert!(written.err.contains("cannot read ") && written.err.contains("wrote 7 files"), "{}", written.err);
    let ranks = run("ranks", &[&out]);
    assert_eq!((ranks.code, ranks.err.as_str()), (0, ""));
    assert!(ranks.out.contains("rank 2 is late") && ranks.out.contains("2 of 4 ranks have no trace: 1, 3"));
    let other = run("ranks --run day", &[&out]);
    assert!(other.err.contains("no run is called day; there are: night"), "{}", other.err);
    // The rest of a folder with a truncated file is compared.
    let file = fs::read_dir(out.join("spans/run=night")).unwrap().next().unwrap().unwrap().path();
    fs::write(&file, "PAR1").unwrap();
    let rest = run("ranks", &[&out]);
    assert!(rest.out.contains("rank 2 is late") && rest.err.contains("not a complete Parquet file"), "{}", rest.err);
    assert_eq!(rest.code, 1);
}

#[test]
fn sql_needs_an_engine_and_says_so() {
    let folder = tempfile::tempdir().unwrap();
    tables_of(&fixture("ranks/even"), folder.path());
    let arguments = [OsStr::new("sql"), "late_ranks".as_ref(), folder.path().as_ref()];
    let none = Run::of(command(&arguments).env("PATH", "").output().unwrap());
    assert_eq!(none.code, 1);
    let expected = "kernspan: no SQL engine: duckdb, DuckDB's package for Python, datafusion-cli, clickhouse or \
                    spark-sql was not found; install one, such as DuckDB (`pip install duckdb`, or the program from";
    assert!(none.err.starts_with(expected), "{}", none.err);
    let printed = run("sql --print --engine duckdb late_spans", &[folder.path()]);
    assert!(printed.out.starts_with("create view runs as select * from read_parquet("), "{}", printed.out);
    assert!(printed.out.trim_end().ends_with("order by run, rank, place;"), "{}", printed.out);
    let unknown = run("sql lateranks", &[folder.path()]);
    assert_eq!(unknown.code, 2);
    assert!(unknown.err.contains("known by name are exposed_communication, late_ranks"), "{}", unknown.err);
}

#[cfg(unix)]
#[test]
fn sql_runs_with_the_package_for_python_if_there_is_no_program() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let (tables, path) = (folder.path().join("tables"), folder.path().join("path"));
    tables_of(&fixture("ranks/even"), &tables);
    fs::create_dir(&path).unwrap();
    let python = path.join("python3");
    let arguments = [OsStr::new("sql"), "select 7 as seven".as_ref(), tables.as_ref()];
    let sql = |script: &str| {
        fs::write(&python, script).unwrap();
        fs::set_permissions(&python, fs::Permissions::from_mode(0o755)).unwrap();
        Run::of(command(&arguments).env("PATH", &path).output().unwrap())
    };
    // A stand-in prints the last of its arguments, which the script takes for the query.
    let with = sql("#!/bin/sh\n[ \"$1\" = -c ] || exit 1\nfor last; do :; done\necho \"$last\"\n");
    assert_eq!((with.code, with.out.as_str()), (0, "select 7 as seven\n"), "{}", with.err);
    assert_eq!(with.err, "kernspan: ran with DuckDB's package for Python\n");
    let without = sql("#!/bin/sh\nexit 127\n");
    assert!(without.code == 1 && without.err.contains("`pip install duckdb`"), "{}", without.err);
    let failed = sql("#!/bin/sh\nexit 1\n");
    let expected = "kernspan: DuckDB's package for Python failed (exit status: 1)\n";
    assert_eq!((failed.code, failed.err.as_str()), (1, expected));
}
