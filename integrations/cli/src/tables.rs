//! The command `tables`: makes Parquet tables of traces, and merges small files of tables.

use crate::{
    fault::{Fault, say},
    input::{self, FolderRun, Inputs, cannot_read, name},
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
/// All runs of a folder are written. A run is called like the folder of its files, and like its process as well if the
/// folder has others.
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
    /// The name of the run, if these are files of one run [default: that of its folder]
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
        /// The number of runs that are named.
        const NAMED: usize = 5;
        let inputs = Inputs::of(self.files.clone(), self.recursive).all_runs(true);
        let (files, mut is_complete) = inputs.find()?;
        let runs = self.runs(files)?;
        let mut written = 0;
        let progress = Progress::new();
        let size = |path: &Path| fs::metadata(path).map_or(0, |it| it.len());
        progress.expect(runs.iter().flat_map(|(_, files)| files).map(|path| size(path)).sum());
        for (run, files) in &runs {
            let mut tables = Tables::new(&**run).work(self.work);
            for path in files {
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
        }
        drop(progress);
        if written > 0 {
            let names: Vec<_> = runs.iter().map(|(run, _)| run.as_str()).collect();
            let of = match names.len() {
                1 => String::new(),
                2..=NAMED => format!(": the runs {}", names.join(", ")),
                count => format!(": {count} runs"),
            };
            say(&format!("wrote {written} files in {}{of}", folder.display()));
        }
        if is_complete { Ok(()) } else { Err(Fault::Incomplete) }
    }

    /// Returns the name and the files of each run.
    fn runs(&self, files: Vec<PathBuf>) -> Result<Vec<(String, Vec<PathBuf>)>, Fault> {
        let Some(first) = files.first().cloned() else { return Err(Fault::Incomplete) };
        let has_folder = self.files.iter().any(|path| path.is_dir());
        if let Some(run) = self.run.as_ref().filter(|_| !has_folder) {
            return Ok(vec![(run.clone(), files)]);
        }
        let (runs, unknown) = input::runs_of(files);
        if let ([_, _, ..], Some(run)) = (runs.as_slice(), &self.run) {
            let runs: Vec<_> = runs.iter().map(|run| format!("\n  {}", run.described())).collect();
            let (count, runs) = (runs.len(), runs.concat());
            return Err(Fault::Usage(format!("--run {run} names one run, but these are {count}:{runs}")));
        }
        let folders: Vec<_> = runs.iter().map(|run| folder_of(run.files())).collect();
        let has_own = |folder: &String| folders.iter().filter(|other| *other == folder).count() == 1;
        let name = |(run, folder): (&FolderRun, &String)| match &self.run {
            Some(name) => name.clone(),
            None if has_own(folder) => folder.clone(),
            None => format!("{folder}-{}", run.name),
        };
        let names: Vec<_> = runs.iter().zip(&folders).map(name).collect();
        let files = runs.iter().map(|run| run.files().cloned().collect());
        let mut named: Vec<(_, Vec<_>)> = names.into_iter().zip(files).collect();
        match named.first_mut() {
            // That they cannot be read is reported when they are.
            Some((_, files)) => files.extend(unknown),
            None => named.push((folder_of(std::iter::once(&first)), unknown)),
        }
        Ok(named)
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

/// Returns the name of the innermost folder that has all files.
fn folder_of<'a>(files: impl Iterator<Item = &'a PathBuf>) -> String {
    let folders = files.filter_map(|file| Some(fs::canonicalize(file).ok()?.parent()?.to_owned()));
    let common = folders.reduce(|common, folder| {
        common.ancestors().find(|outer| folder.starts_with(outer)).unwrap_or(&common).to_owned()
    });
    let name = common.as_deref().and_then(Path::file_name).and_then(|name| name.to_str());
    name.unwrap_or("unnamed").to_owned()
}

fn failed(error: TableError) -> Fault {
    Fault::Failed(error.to_string())
}
