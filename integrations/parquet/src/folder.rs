//! A folder of tables: its runs, and the files of each.

use crate::{
    file::{self, TableError, TableFile},
    rows::Rows,
    schema::{RANKS, TABLES, Table},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    path::{Path, PathBuf},
};

/// A folder of tables.
///
/// ```no_run
/// let folder = kernspan_parquet::TableFolder::open("tables".as_ref())?;
/// println!("{:?}", folder.runs());
/// # Ok::<(), kernspan_parquet::TableError>(())
/// ```
#[derive(Debug)]
pub struct TableFolder {
    path: PathBuf,
    runs: Vec<String>,
}

impl TableFolder {
    /// Returns whether a folder has tables.
    pub fn is_one(path: &Path) -> bool {
        Self::open(path).is_ok()
    }

    /// Opens a folder.
    ///
    /// # Errors
    ///
    /// The folder cannot be read, or has no tables.
    pub fn open(path: &Path) -> Result<Self, TableError> {
        let mut runs = BTreeSet::new();
        for table in TABLES {
            let folder = path.join(table.name);
            match fs::read_dir(&folder) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                entries => {
                    let names = entries.map_err(TableError::reading(&folder))?.flatten().map(|entry| entry.file_name());
                    let run = |name: std::ffi::OsString| Some(name.to_str()?.strip_prefix("run=")?.to_owned());
                    runs.extend(names.filter_map(run));
                }
            }
        }
        if runs.is_empty() {
            return Err(TableError::no_tables(path));
        }
        Ok(Self { path: path.to_owned(), runs: runs.into_iter().collect() })
    }

    /// Returns the path of the folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the names of the runs, in alphabetical order.
    pub fn runs(&self) -> &[String] {
        &self.runs
    }

    /// Returns the run with this name, or without a name the one that began last.
    pub(crate) fn run(&self, name: Option<&str>) -> Result<&str, TableError> {
        if let Some(name) = name {
            let found = self.runs.iter().find(|run| *run == name);
            return found.map(|run| &**run).ok_or_else(|| TableError::no_run(&self.path, name, self.runs.clone()));
        }
        let start = |run: &str| {
            let files = Files::of(self, &RANKS, run);
            let mut last = None;
            for file in files.open() {
                let _ = file.groups(|group| {
                    last = last.max(group.range("start_ns").map(|(_, greatest)| greatest));
                    Ok(())
                });
            }
            last
        };
        match self.runs.as_slice() {
            [run] => Ok(run),
            runs => runs
                .iter()
                .max_by_key(|run| start(run))
                .map_or_else(|| Err(TableError::no_tables(&self.path)), |run| Ok(&**run)),
        }
    }

    /// Merges the small files of each table and run, and returns what was done with each that had several: its folder,
    /// and the number of files before and after. Files that cannot be read stay, with a sentence for each.
    ///
    /// A merged file names the windows of those it was merged from. So if the program ends before these are removed,
    /// readers pass over them.
    ///
    /// # Errors
    ///
    /// The first file that cannot be written. Nothing is removed before its rows have been written elsewhere.
    pub fn compact(&self) -> Result<(Vec<Compacted>, Vec<String>), TableError> {
        let (mut done, mut problems) = (Vec::new(), Vec::new());
        for run in &self.runs {
            for table in TABLES {
                let files = Files::of(self, table, run);
                problems.extend(files.problems.iter().cloned());
                let before = files.paths.len() + files.copies.len();
                if before < 2 {
                    continue;
                }
                let folder = self.path.join(table.name).join(format!("run={run}"));
                let after = merge(&folder, table, &files, &mut problems)?;
                // Copies have no rows that are not elsewhere.
                files.copies.iter().for_each(|path| drop(fs::remove_file(path)));
                done.push(Compacted { folder, before, after });
            }
        }
        Ok((done, problems))
    }
}

/// What [`TableFolder::compact`] has done with the files of a table and a run.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Compacted {
    /// The folder of the files.
    pub folder: PathBuf,
    /// The number of files before.
    pub before: usize,
    /// The number of files after.
    pub after: usize,
}

/// Merges files, so many at a time that their rows fit into memory, and returns the number of files there are then.
fn merge(folder: &Path, table: &'static Table, files: &Files, problems: &mut Vec<String>) -> Result<usize, TableError> {
    /// The rows of a merged file: in memory, some 250 MB.
    const ROWS: usize = 1 << 22;
    let mut after = 0;
    let (mut rows, mut windows, mut merged) = (Rows::new(table), BTreeSet::new(), Vec::new());
    let mut flush = |rows: &mut Rows, windows: &mut BTreeSet<String>, merged: &mut Vec<PathBuf>| {
        if merged.len() > 1 {
            file::write(folder, "merged", rows, windows)?;
            merged.iter().for_each(|path| drop(fs::remove_file(path)));
        }
        after += usize::from(!merged.is_empty());
        (*rows, *windows) = (Rows::new(table), BTreeSet::new());
        merged.clear();
        Ok(())
    };
    for file in files.open() {
        if rows.len() + file.rows() > ROWS {
            flush(&mut rows, &mut windows, &mut merged)?;
        }
        // A file that breaks off must not leave half of its rows.
        match file.read_into(&mut Rows::new(table)).and_then(|()| file.read_into(&mut rows)) {
            Ok(()) => {
                windows.extend(file.windows.iter().cloned());
                merged.push(file.path().to_owned());
            }
            Err(error) => problems.push(error.to_string()),
        }
    }
    flush(&mut rows, &mut windows, &mut merged)?;
    Ok(after)
}

/// The files of a table and a run that can be read, each of whose rows is in no other.
pub(crate) struct Files {
    table: &'static Table,
    pub(crate) paths: Vec<PathBuf>,
    /// Files that have nothing but rows of others.
    pub(crate) copies: Vec<PathBuf>,
    /// Why others are not among them.
    pub(crate) problems: Vec<String>,
}

impl Files {
    pub(crate) fn of(folder: &TableFolder, table: &'static Table, run: &str) -> Self {
        let folder = folder.path.join(table.name).join(format!("run={run}"));
        let mut files = Self { table, paths: Vec::new(), copies: Vec::new(), problems: Vec::new() };
        let entries = fs::read_dir(&folder).into_iter().flatten().flatten().map(|entry| entry.path());
        let is_table = |path: &PathBuf| {
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or(".");
            name.ends_with(".parquet") && !name.starts_with('.')
        };
        let found: BTreeSet<_> = entries.filter(is_table).collect();
        let mut opened = Vec::new();
        for path in found {
            match TableFile::open(&path, table) {
                Ok(file) => opened.push((file.windows, path)),
                Err(error) => files.problems.push(error.to_string()),
            }
        }
        // Merged files come first: they have all windows of those that they were merged from.
        opened.sort_by_key(|(windows, _)| std::cmp::Reverse(windows.len()));
        let mut known: BTreeMap<String, PathBuf> = BTreeMap::new();
        for (windows, path) in opened {
            match windows.iter().map(|window| known.get(window)).collect::<Option<Vec<_>>>().as_deref() {
                Some([other, ..]) => {
                    let (path, other) = (path.display(), other.display());
                    files.problems.push(format!("skipped {path}: same windows as {other}"));
                }
                _ => files.paths.push(path.clone()),
            }
            if files.paths.last() != Some(&path) {
                files.copies.push(path);
                continue;
            }
            windows.into_iter().for_each(|window| drop(known.insert(window, path.clone())));
        }
        files.paths.sort();
        files
    }

    /// Opens the files, one after the other.
    pub(crate) fn open(&self) -> impl Iterator<Item = TableFile> {
        self.paths.iter().filter_map(|path| TableFile::open(path, self.table).ok())
    }
}
