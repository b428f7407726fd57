//! The exporter.

use crate::tables::Tables;
use kernspan::{
    Exporter,
    analysis::Analysis,
    export::{ExportResult, Run, RunId, StepExporter, StepSummary},
    trace::{Metadata, Timestamp},
};
use std::{
    error::Error,
    fs,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// Writes the tables of each recorded window, and of all steps, into a folder: see [`schema`](crate::schema).
///
/// Each process writes the rows of its own rank at the end of the run, or earlier if they are many
/// ([`Tables::ENOUGH_ROWS`]): a file for each table. All ranks may write into the same folder.
///
/// The run is named after the job, by [`RunId`]. If no launcher names it, it is called like its process and the second
/// in which it began. If it has several ranks then, they cannot agree on a name, so it is called `unnamed`: give it a
/// name, or a folder of its own.
///
/// ```
/// use kernspan::Profiler;
/// use kernspan_parquet::Parquet;
///
/// # let folder = tempfile::tempdir().unwrap();
/// # let folder = folder.path().join("tables");
/// let (layer, profiler) = Profiler::builder().export(Parquet::to_dir(&folder).run("night-7")).build()?;
/// # drop(layer);
/// # profiler.finish()?;
/// # Ok::<(), kernspan::Error>(())
/// ```
#[derive(Debug)]
pub struct Parquet {
    folder: PathBuf,
    run: Option<String>,
    with_work: bool,
    tables: Option<Arc<Mutex<Tables>>>,
}

impl Parquet {
    /// Creates an exporter that writes into a folder, which is created if it does not exist.
    pub fn to_dir(folder: impl Into<PathBuf>) -> Self {
        let run = RunId::from_env().map(|id| id.parts().join("-"));
        Self { folder: folder.into(), run, with_work: false, tables: None }
    }

    /// Sets the name of the run, which must be the same on all ranks. By default, it is the job's, or that of the
    /// process.
    #[must_use]
    pub fn run(mut self, name: impl Into<String>) -> Self {
        self.run = Some(name.into());
        self
    }

    /// Sets whether the table `work` has each kernel, copy and fill. By default, it is not written.
    #[must_use]
    pub fn work(mut self, with_work: bool) -> Self {
        self.with_work = with_work;
        self
    }

    fn tables(&mut self, metadata: &Metadata) -> Arc<Mutex<Tables>> {
        let tables = self.tables.get_or_insert_with(|| {
            let run = self.run.clone().unwrap_or_else(|| name(metadata, Timestamp::now()));
            Arc::new(Mutex::new(Tables::new(run).work(self.with_work)))
        });
        Arc::clone(tables)
    }
}

/// Returns the name of a run that no launcher has named: no other process that writes into the folder has it.
fn name(metadata: &Metadata, now: Timestamp) -> String {
    let Metadata { host, pid, process, world_size, .. } = metadata;
    match world_size {
        0 | 1 => format!("{process}-{host}_{pid}-{}", now.as_unix_nanos() / 1_000_000_000),
        _ => "unnamed".to_owned(),
    }
}

impl Exporter for Parquet {
    fn export(&mut self, window: &Analysis<'_>) -> ExportResult {
        let tables = self.tables(window.metadata());
        let mut tables = locked(&tables);
        tables.add(window);
        write_if(tables.len() >= Tables::ENOUGH_ROWS, &mut tables, &self.folder)
    }

    fn check(&mut self) -> Result<(), Box<dyn Error + Send + Sync>> {
        fs::create_dir_all(&self.folder)?;
        let file = self.folder.join(format!(".check-{}.tmp", std::process::id()));
        fs::write(&file, "kernspan")?;
        Ok(fs::remove_file(&file)?)
    }

    fn steps(&mut self, run: &Run) -> Option<Box<dyn StepExporter>> {
        let tables = self.tables(&run.metadata);
        let Metadata { rank, .. } = *run.metadata;
        Some(Box::new(StepTable { folder: self.folder.clone(), rank, tables }))
    }
}

/// Adds all steps to the tables, and writes them at the end.
struct StepTable {
    folder: PathBuf,
    rank: u32,
    tables: Arc<Mutex<Tables>>,
}

impl StepExporter for StepTable {
    fn steps(&mut self, steps: &[StepSummary]) -> Result<(), Box<dyn Error + Send + Sync>> {
        let mut tables = locked(&self.tables);
        tables.add_steps(self.rank, steps);
        write_if(tables.len() >= Tables::ENOUGH_ROWS, &mut tables, &self.folder)?;
        Ok(())
    }

    fn finish(&mut self) -> ExportResult {
        let mut tables = locked(&self.tables);
        tables.add_lost_steps();
        write_if(true, &mut tables, &self.folder)
    }
}

fn write_if(is_due: bool, tables: &mut Tables, folder: &Path) -> ExportResult {
    if is_due { Ok(tables.write(folder)?) } else { Ok(Vec::new()) }
}

fn locked(tables: &Mutex<Tables>) -> MutexGuard<'_, Tables> {
    tables.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
