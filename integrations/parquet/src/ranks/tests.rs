//! What tables tell about ranks is what their traces tell.

use super::{ComparedRanks, ROWS, compare_with};
use crate::{Compacted, TableFolder, Tables, compare_ranks, schema};
use kernspan::{
    Trace,
    analysis::{Analysis, RankProfile, RankWaits},
    trace::sample::late_ranks,
};
use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};
use tempfile::TempDir;

fn fixture(name: &str) -> Vec<Trace> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/ranks").join(name);
    (0..4).flat_map(|rank| kernspan::read(folder.join(format!("rank{rank}.json.gz"))).unwrap()).collect()
}

/// Returns what the traces tell.
fn of_traces(traces: &[Trace]) -> RankWaits {
    let mut profiles: BTreeMap<u32, RankProfile> = BTreeMap::new();
    for trace in traces {
        profiles.entry(trace.metadata().rank).or_default().add(&Analysis::of(trace));
    }
    RankWaits::of(&profiles.into_values().collect::<Vec<_>>())
}

/// Writes the tables of a run, with files of their own for each trace.
fn write(folder: &Path, run: &str, traces: &[Trace]) -> Vec<PathBuf> {
    let files = traces.iter().flat_map(|trace| {
        let mut tables = Tables::new(run);
        tables.add(&Analysis::of(trace));
        tables.write(folder).unwrap()
    });
    files.collect()
}

fn tables(traces: &[Trace]) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), "run", traces);
    folder
}

#[track_caller]
fn assert_equal(tables: &ComparedRanks, traces: &RankWaits) {
    assert_eq!(tables.waits.ranks(), traces.ranks());
    // Tables do not have what the simulation of a rank needs.
    let mut late = traces.late().to_vec();
    late.iter_mut().for_each(|late| late.saves_up_to = None);
    assert_eq!(tables.waits.late(), late);
    assert_eq!(tables.waits.warnings(), traces.warnings());
}

/// Returns the file of a table that has a rank, by the order in which files were written.
fn file_of(files: &[PathBuf], table: &str, rank: usize) -> PathBuf {
    let part = format!("/{table}/");
    files.iter().filter(|file| file.to_str().unwrap().contains(&part)).nth(rank).unwrap().clone()
}

#[test]
fn tables_tell_what_traces_tell() {
    let generated = [
        late_ranks(&[(100, 1000), (100, 1000), (100, 1400), (100, 1000)]),
        late_ranks(&[(100, 1000), (600, 1000), (100, 1010)]),
        late_ranks(&[(100, 1000), (100, 1040), (100, 1000)]),
    ];
    for traces in generated.into_iter().chain([fixture("late"), fixture("even")]) {
        let folder = tables(&traces);
        let expected = of_traces(&traces);
        let compared = compare_ranks(folder.path(), None).unwrap();
        assert_equal(&compared, &expected);
        assert!(compared.problems.is_empty(), "{:?}", compared.problems);
        // One step, and one path, at a time.
        assert_equal(&compare_with(folder.path(), None, 1).unwrap(), &expected);
        assert_equal(&compare_with(folder.path(), None, ROWS / 1000).unwrap(), &expected);
    }
}

#[test]
fn merged_files_tell_the_same() {
    let traces = fixture("late");
    let folder = tables(&traces);
    let kept = tempfile::tempdir().unwrap();
    let steps = folder.path().join("steps/run=run");
    for file in fs::read_dir(&steps).unwrap().flatten() {
        fs::copy(file.path(), kept.path().join(file.file_name())).unwrap();
    }
    let (done, problems) = TableFolder::open(folder.path()).unwrap().compact().unwrap();
    assert!(problems.is_empty(), "{problems:?}");
    assert!(done.iter().all(|Compacted { before, after, .. }| (*before, *after) == (4, 1)), "{done:?}");
    assert_equal(&compare_ranks(folder.path(), None).unwrap(), &of_traces(&traces));
    // If the program had ended before it removed the small files, they would be passed over.
    for file in fs::read_dir(kept.path()).unwrap().flatten() {
        fs::copy(file.path(), steps.join(file.file_name())).unwrap();
    }
    let compared = compare_ranks(folder.path(), None).unwrap();
    assert_equal(&compared, &of_traces(&traces));
    assert_eq!(compared.problems.len(), 4);
    // The second time, there is nothing to merge but these.
    TableFolder::open(folder.path()).unwrap().compact().unwrap();
    assert_eq!(fs::read_dir(&steps).unwrap().count(), 1);
}

#[test]
fn bad_files_are_named_and_the_rest_is_compared() {
    let traces = fixture("late");
    let folder = tempfile::tempdir().unwrap();
    let files = write(folder.path(), "run", &traces);
    // A truncated file, one of another version, one of another program, and a copy.
    let cut = file_of(&files, "collectives", 0);
    let bytes = fs::read(&cut).unwrap();
    fs::write(&cut, &bytes[..bytes.len() / 2]).unwrap();
    let other = file_of(&files, "spans", 3);
    let mut bytes = fs::read(&other).unwrap();
    let key = schema::VERSION_KEY.as_bytes();
    let at = bytes.windows(key.len()).rposition(|part| part == key).unwrap() + key.len();
    let digit = (at..at + 8).find(|&at| bytes[at] == b'1').unwrap();
    bytes[digit] = b'9';
    fs::write(&other, bytes).unwrap();
    fs::write(folder.path().join("steps/run=run/foreign.parquet"), "PAR1").unwrap();
    let copied = file_of(&files, "steps", 1);
    fs::copy(&copied, copied.with_file_name("copy.parquet")).unwrap();
    let compared = compare_ranks(folder.path(), None).unwrap();
    assert_eq!(compared.waits.late()[0].rank, 2);
    let [a, b, c, d] = compared.problems.as_slice() else { panic!("{:?}", compared.problems) };
    let all = [a, b, c, d].map(|problem| problem.replace(folder.path().to_str().unwrap(), ""));
    assert!(all[0].starts_with("cannot read /collectives/") && all[0].contains("not a complete Parquet file"), "{a}");
    assert!(all[1].starts_with("cannot read /spans/") && all[1].contains("version 1 of the schema, found 9;"), "{b}");
    assert!(all[2].starts_with("cannot read /steps/run=run/foreign.parquet: not a complete"), "{c}");
    assert!(all[3].starts_with("skipped /steps/") && all[3].contains(": same windows as /steps/run=run/copy"), "{d}");
    // Rank 0 has no collectives now.
    let waits: Vec<_> = compared.waits.ranks().iter().map(|rank| rank.collectives).collect();
    assert_eq!((waits[0], waits.len()), (0, 4));
}

#[test]
fn missing_ranks_and_several_runs_are_named() {
    let traces = fixture("late");
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), "first", &traces[1..]);
    let compared = compare_ranks(folder.path(), None).unwrap();
    assert_eq!(compared.waits.warnings(), ["1 of 4 ranks have no trace: 0"]);
    // A run that began later.
    let even = fixture("even");
    write(folder.path(), "second", &even);
    let later = if even[0].start() > traces[0].start() { "second" } else { "first" };
    let compared = compare_ranks(folder.path(), None).unwrap();
    assert_eq!(compared.run, later);
    assert!(compared.problems[0].starts_with("the folder has 2 runs, first, second: compared the ranks of "));
    assert_eq!(compare_ranks(folder.path(), Some("first")).unwrap().waits.late()[0].rank, 2);
    let error = compare_ranks(folder.path(), Some("third")).unwrap_err().to_string();
    assert!(error.ends_with("no run is called third; there are: first, second"), "{error}");
    // Two runs under one name.
    let folder = tables(&traces);
    write(folder.path(), "run", &even);
    let compared = compare_ranks(folder.path(), None).unwrap();
    assert_eq!(compared.waits.warnings(), ["rank 0 has step 11 in several traces: these may be of several runs"]);
    let empty = tempfile::tempdir().unwrap();
    let error = compare_ranks(empty.path(), None).unwrap_err().to_string();
    assert!(error.ends_with("no tables; `kernspan tables FILES… --out DIR` writes them"), "{error}");
}
