use super::{Parquet, name};
use crate::{
    Cell, Rows,
    file::{self, TableFile},
    schema::{self, Table},
};
use kernspan::{
    Profiler, Schedule,
    trace::{Metadata, Timestamp},
};
use std::{collections::BTreeSet, fs, path::Path};
use tracing_subscriber::prelude::*;

/// Returns the rows of a table, whose files must be complete.
fn rows(folder: &Path, table: &'static Table) -> Rows {
    let mut rows = Rows::new(table);
    for file in fs::read_dir(folder.join(table.name).join("run=a_run")).unwrap() {
        TableFile::open(&file.unwrap().path(), table).unwrap().read_into(&mut rows).unwrap();
    }
    rows
}

#[test]
fn all_steps_are_in_the_table_and_spans_of_recorded_ones() {
    let folder = tempfile::tempdir().unwrap();
    let exporter = Parquet::to_dir(folder.path()).run("a run");
    let (layer, profiler) = Profiler::builder().schedule(Schedule::steps(3..5)).export(exporter).build().unwrap();
    tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
        for _ in 0..8 {
            tracing::info_span!("train").in_scope(|| tracing::info_span!("load;all").in_scope(|| ()));
            profiler.step();
        }
    });
    profiler.finish().unwrap();
    let steps = rows(folder.path(), &schema::STEPS);
    let cell = |row, column| steps.cell(row, schema::STEPS.column(column).unwrap()).unwrap();
    let numbers: Vec<_> = (0..steps.len()).map(|row| cell(row, "step")).collect();
    assert_eq!(numbers, (0..8).map(Cell::Int).collect::<Vec<_>>());
    let recorded: Vec<_> = (0..8).filter(|&row| cell(row, "recorded") == Cell::Bool(true)).collect();
    assert_eq!(recorded, [3, 4]);
    let spans = rows(folder.path(), &schema::SPANS);
    let path = |row| spans.cell(row, schema::SPANS.column("path").unwrap()).unwrap();
    let paths: Vec<_> = (0..spans.len()).map(path).collect();
    assert_eq!(paths, ["train", r"train;load\;all", "train", r"train;load\;all"].map(Cell::Text));
    // One file of each table that has rows, and nothing that is unfinished.
    let files = fs::read_dir(folder.path()).unwrap().flatten().map(|table| table.path().join("run=a_run"));
    assert!(files.into_iter().all(|folder| fs::read_dir(folder).unwrap().count() == 1));
}

#[test]
fn processes_that_no_launcher_names_have_runs_of_their_own() {
    let mut metadata = Metadata::default();
    (metadata.host, metadata.pid, metadata.process) = ("vm".to_owned(), 6486, "train".to_owned());
    let name = |metadata: &Metadata| name(metadata, Timestamp::from_unix_nanos(1_789_000_000_500_000_000));
    assert_eq!(name(&metadata), "train-vm_6486-1789000000");
    // Ranks cannot agree on one.
    metadata.world_size = 2;
    assert_eq!(name(&metadata), "unnamed");
}

#[test]
fn a_file_is_never_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let mut rows = Rows::new(&schema::STEPS);
    let files = [3, 5].map(|count| {
        (0..count)
            .for_each(|_| rows.push(&[0, 1, 2, 3].map(Cell::Int).iter().copied().chain(flags()).collect::<Vec<_>>()));
        file::write(folder.path(), "same", &rows, &BTreeSet::new()).unwrap()
    });
    assert_eq!(files.each_ref().map(|file| TableFile::open(file, &schema::STEPS).unwrap().rows()), [3, 8]);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
}

/// The columns of a step after its times.
fn flags() -> [Cell<'static>; 3] {
    [Cell::Bool(true), Cell::Bool(true), Cell::Int(0)]
}

#[test]
fn a_folder_that_cannot_be_written_is_found_before_the_training() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, "").unwrap();
    assert!(Profiler::builder().export(Parquet::to_dir(file.join("tables"))).build().is_err());
}
