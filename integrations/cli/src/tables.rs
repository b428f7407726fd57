//! The command `tables`: makes Parquet tables of traces, and merges small files of tables.

use crate::{
    fault::{Fault, say},
    input::{self, Inputs, cannot_read, name},
    progress::Progress,
};
use kernspan::analysis::Analysis;
use kernspan_parquet::{TableError, TableFolder, Tables};
use std::{
    fs,
    path::{Path, PathBuf},
};

/// Write Parquet tables of traces, for SQL engines and data frames
///
/// The tables are runs, ranks, steps, spans, collectives, kernels and findings, in folders partitioned by run:
/// DIR/steps/run=NAME. Files are added, never replaced. Traces are read one at a time, so that any number of them can
/// be given; with many nodes, each can write the tables of its own ranks into the same folder.
///
/// `kernspan ranks DIR` compares the ranks, and `kernspan sql QUERY DIR` runs a query.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  kernspan tables runs/ddp --out tables --run night-7
  kernspan tables --compact tables
  duckdb -c \"select rank, avg(duration_ns) from 'tables/steps/*/*.parquet' group by rank\"

Exit status: 0 success; 1 a file could not be read or written; 2 usage error")]
pub(crate) struct Args {
    /// Traces, or folders that contain traces; `-` for standard input
    #[arg(value_name = "FILE", required_unless_present = "compact")]
    files: Vec<PathBuf>,
    /// Search folders recursively
    #[arg(long, short)]
    recursive: bool,
    /// The folder of the tables
    #[arg(long, short, value_name = "DIR", required_unless_present = "compact")]
    out: Option<PathBuf>,
    /// The name of the run; by default that of the first file's folder
    #[arg(long, value_name = "NAME")]
    run: Option<String>,
    /// Also write the table `work`: each kernel, copy and fill
    #[arg(long)]
    work: bool,
    /// Merge the small files of the tables in a folder
    #[arg(long, value_name = "DIR", conflicts_with_all = ["files", "out", "run", "work", "recursive"])]
    compact: Option<PathBuf>,
}

impl Args {
    pub(crate) fn run(&self) -> Result<(), Fault> {
        match (&self.compact, &self.out) {
            (Some(folder), _) => compact(folder),
            (None, Some(folder)) => self.write(folder),
            (None, None) => Err(Fault::Usage("--out is missing".to_owned())),
        }
    }

    fn write(&self, folder: &Path) -> Result<(), Fault> {
        let (files, mut is_complete) = Inputs::of(self.files.clone(), self.recursive).find();
        let Some(first) = files.first() else { return Err(Fault::Incomplete) };
        let mut tables = Tables::new(self.run.clone().unwrap_or_else(|| run_of(first))).work(self.work);
        let mut written = 0;
        let progress = Progress::new();
        let size = |path: &PathBuf| fs::metadata(path).map_or(0, |it| it.len());
        progress.expect(files.iter().map(size).sum());
        for path in &files {
            progress.file(&name(path));
            match input::traces(path) {
                // One file at a time is in memory.
                Ok(traces) => traces.iter().for_each(|trace| tables.add(&Analysis::of(trace))),
                Err(error) => {
                    progress.say(&cannot_read(path, &error));
                    is_complete = false;
                }
            }
            if tables.len() >= Tables::ENOUGH_ROWS {
                written += tables.write(folder).map_err(failed)?.len();
            }
            progress.add(size(path));
        }
        written += tables.write(folder).map_err(failed)?.len();
        drop(progress);
        if written > 0 {
            say(&format!("wrote {written} files in {}", folder.display()));
        }
        if is_complete { Ok(()) } else { Err(Fault::Incomplete) }
    }
}

fn compact(folder: &Path) -> Result<(), Fault> {
    let (done, problems) = TableFolder::open(folder).and_then(|folder| folder.compact()).map_err(failed)?;
    problems.iter().for_each(|problem| say(problem));
    let before: usize = done.iter().map(|it| it.before).sum();
    let after: usize = done.iter().map(|it| it.after).sum();
    match before {
        0 => say(&format!("nothing to merge in {}", folder.display())),
        _ => say(&format!("merged {before} files in {} into {after}", folder.display())),
    }
    let is_unread = |problem: &String| problem.starts_with("cannot read ");
    if problems.iter().any(is_unread) { Err(Fault::Incomplete) } else { Ok(()) }
}

/// Returns the name of a file's folder.
fn run_of(file: &Path) -> String {
    let folder = fs::canonicalize(file).ok().and_then(|file| Some(file.parent()?.file_name()?.to_str()?.to_owned()));
    folder.unwrap_or_else(|| "unnamed".to_owned())
}

fn failed(error: TableError) -> Fault {
    Fault::Failed(error.to_string())
}
