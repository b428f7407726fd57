//! The comparison of ranks on tables, with bounded memory.

use crate::{
    file::{TableError, TableFile},
    folder::{Files, TableFolder},
    schema::{COLLECTIVES, RANKS, SPANS, STEPS, split_path},
};
use kernspan::analysis::{RankComparison, RankWaits};
use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

/// The ranks of a run, compared by its tables.
#[derive(Debug)]
#[non_exhaustive]
pub struct ComparedRanks {
    /// The run.
    pub run: String,
    /// Who waits for whom, and why.
    pub waits: RankWaits,
    /// What could not be read, or was passed over, in a sentence each.
    pub problems: Vec<String>,
}

/// Compares the ranks of a run, or without a name of the one that began last. The result is that of
/// [`RankWaits::of`] with the traces that the tables were made of.
///
/// Memory is bounded: collectives are read for as many steps at a time as fit into some 400 MB, and spans for as many
/// paths.
///
/// # Errors
///
/// There are no tables, or no such run. What else is wrong is among the problems.
///
/// ```no_run
/// let ranks = kernspan_parquet::compare_ranks("tables".as_ref(), None)?;
/// ranks.waits.late().iter().for_each(|late| println!("{late}"));
/// # Ok::<(), kernspan_parquet::TableError>(())
/// ```
pub fn compare_ranks(folder: &std::path::Path, run: Option<&str>) -> Result<ComparedRanks, TableError> {
    compare_with(folder, run, ROWS)
}

/// The rows that are held at a time: collectives of 20 bytes each, in lists that may be half empty, and as many again
/// while one of them grows.
const ROWS: usize = 1 << 24;

fn compare_with(folder: &std::path::Path, run: Option<&str>, budget: usize) -> Result<ComparedRanks, TableError> {
    let folder = TableFolder::open(folder)?;
    let chosen = folder.run(run)?;
    let mut reader = Reader { comparison: RankComparison::default(), problems: BTreeSet::new(), budget };
    if run.is_none() && folder.runs().len() > 1 {
        let (count, names) = (folder.runs().len(), folder.runs().join(", "));
        let message = format!("the folder has {count} runs, {names}: compared the ranks of {chosen}, which began last");
        reader.problems.insert(message);
    }
    let [ranks, steps, collectives, spans] =
        [&RANKS, &STEPS, &COLLECTIVES, &SPANS].map(|table| Files::of(&folder, table, chosen));
    reader.read_ranks(&ranks);
    reader.read_steps(&steps);
    reader.read_collectives(&collectives);
    reader.read_spans(&spans);
    for files in [ranks, steps, collectives, spans] {
        reader.problems.extend(files.problems);
    }
    Ok(ComparedRanks {
        run: chosen.to_owned(),
        waits: reader.comparison.finish(),
        problems: reader.problems.into_iter().collect(),
    })
}

struct Reader {
    comparison: RankComparison,
    problems: BTreeSet<String>,
    budget: usize,
}

/// A collective, as one rank has it. The duration is in two parts, so that a row takes 20 bytes instead of 24.
#[derive(Clone, Copy)]
struct Arrival {
    group: u32,
    number: u32,
    rank: u32,
    duration: [u32; 2],
}

/// The group of pairwise exchanges, after all others.
const PAIRWISE: u32 = u32::MAX;

impl Arrival {
    fn duration(&self) -> Duration {
        Duration::from_nanos(u64::from(self.duration[0]) << 32 | u64::from(self.duration[1]))
    }
}

/// The collectives of some steps.
#[derive(Default)]
struct Arrivals {
    steps: BTreeMap<u64, Vec<Arrival>>,
    rows: usize,
    groups: BTreeMap<Box<str>, u32>,
}

impl Reader {
    fn read_ranks(&mut self, files: &Files) {
        for file in files.open() {
            let read = file.groups(|group| {
                let [ranks, sizes] = [group.ints("rank")?, group.ints("world_size")?];
                for ((rank, size), host) in ranks.iter().zip(sizes).zip(group.texts("host")?) {
                    let size = u32::try_from(size).unwrap_or(0);
                    self.comparison.add_rank(number(*rank), size, host.as_utf8()?);
                }
                Ok(())
            });
            self.problems.extend(read.err().map(|error| error.to_string()));
        }
    }

    fn read_steps(&mut self, files: &Files) {
        for file in files.open() {
            let read = file.groups(|group| {
                let (ranks, steps, times) = (group.ints("rank")?, group.ints("step")?, group.ints("duration_ns")?);
                for (row, whole) in group.flags("whole")?.into_iter().enumerate() {
                    if whole {
                        self.comparison.add_step(number(ranks[row]), steps[row] as u64, nanos(times[row]));
                    }
                }
                Ok(())
            });
            self.problems.extend(read.err().map(|error| error.to_string()));
        }
    }

    /// Reads collectives, as many steps at a time as fit. They are added step by step.
    fn read_collectives(&mut self, files: &Files) {
        let mut first = 0;
        loop {
            let (arrivals, next) = self.read_arrivals(files, first);
            // Numbers of groups depend on which thread came first; their names do not.
            let names: Vec<_> = arrivals.groups.keys().collect();
            let mut order = vec![0; names.len()];
            arrivals.groups.values().zip(0..).for_each(|(&group, place)| order[group as usize] = place);
            for (step, mut rows) in arrivals.steps {
                rows.iter_mut()
                    .filter(|row| row.group != PAIRWISE)
                    .for_each(|row| row.group = order[row.group as usize]);
                rows.sort_unstable_by_key(|row| (row.group, row.number, row.rank));
                let mut ranks = Vec::new();
                for rows in rows.chunk_by(|a, b| (a.group, a.number) == (b.group, b.number)) {
                    if rows[0].group == PAIRWISE {
                        rows.iter().for_each(|row| self.comparison.add_exchange(step, row.rank, row.duration()));
                        continue;
                    }
                    ranks.clear();
                    ranks.extend(rows.iter().map(|row| (row.rank, row.duration())));
                    // A rank with two traces of a step has been noted with its steps.
                    ranks.dedup_by_key(|(rank, _)| *rank);
                    self.comparison.add_collective(step, names[rows[0].group as usize], &ranks);
                }
            }
            match next {
                Some(next) => first = next,
                None => return,
            }
        }
    }

    /// Reads the collectives of as many steps as fit into memory, from a first one on, and returns the next one.
    fn read_arrivals(&mut self, files: &Files, first: u64) -> (Arrivals, Option<u64>) {
        let arrivals = Mutex::new(Arrivals::default());
        // The first step that does not fit.
        let end = AtomicU64::new(u64::MAX);
        let problems = Mutex::new(BTreeSet::new());
        let next_file = AtomicUsize::new(0);
        let work = || {
            while let Some(path) = files.paths.get(next_file.fetch_add(1, Ordering::Relaxed)) {
                let read = TableFile::open(path, &COLLECTIVES)
                    .and_then(|file| read_file(&file, &self.comparison, first, &end, &arrivals, self.budget));
                if let Err(error) = read {
                    locked(&problems).insert(error.to_string());
                }
            }
        };
        let threads = thread::available_parallelism().map_or(1, usize::from).min(files.paths.len()).max(1);
        thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(work))));
        self.problems.extend(problems.into_inner().unwrap_or_else(PoisonError::into_inner));
        let end = end.into_inner();
        (arrivals.into_inner().unwrap_or_else(PoisonError::into_inner), (end != u64::MAX).then_some(end))
    }

    /// Reads the spans that may explain why ranks are late.
    fn read_spans(&mut self, files: &Files) {
        let late: BTreeSet<u32> = self.comparison.late().iter().copied().collect();
        if late.is_empty() {
            return;
        }
        let mut paths: BTreeSet<Box<str>> = BTreeSet::new();
        self.each_span(files, Some(&late), |path, _, rank, _| {
            if late.contains(&rank) && !paths.contains(path) {
                paths.insert(path.into());
            }
        });
        // A path may be on all ranks.
        let mut ranks = BTreeSet::new();
        self.each_span(files, None, |_, _, rank, _| ranks.extend([rank]));
        let paths: Vec<_> = paths.into_iter().collect();
        for paths in paths.chunks((self.budget / ranks.len().max(1)).max(1)) {
            let numbers: HashMap<&str, usize> = paths.iter().map(|path| &**path).zip(0..).collect();
            let mut times = vec![BTreeMap::<u32, [Duration; 2]>::new(); paths.len()];
            let mut locations = vec![None::<Box<str>>; paths.len()];
            self.each_span(files, None, |path, location, rank, [host, gpu]| {
                let Some(&path) = numbers.get(path) else { return };
                let sums = times[path].entry(rank).or_default();
                *sums = [sums[0] + host, sums[1] + gpu];
                let known = &mut locations[path];
                if !location.is_empty() && known.as_ref().is_none_or(|known| location < &**known) {
                    *known = Some(location.into());
                }
            });
            for (path, (times, location)) in paths.iter().zip(times.into_iter().zip(locations)) {
                let times: Vec<_> = times.into_iter().collect();
                self.comparison.add_place(&split_path(path), location.as_deref(), &times);
            }
        }
    }

    /// Calls a function with the path, location, rank and times of each row of whole steps; if ranks are given, only
    /// those of row groups that may have one of them.
    fn each_span(
        &mut self,
        files: &Files,
        ranks: Option<&BTreeSet<u32>>,
        mut each: impl FnMut(&str, &str, u32, [Duration; 2]),
    ) {
        for file in files.open() {
            let read = file.groups(|group| {
                if let (Some(ranks), Some((from, to))) = (ranks, group.range("rank"))
                    && ranks.range(number(from)..=number(to)).next().is_none()
                {
                    return Ok(());
                }
                let (ranks, steps) = (group.ints("rank")?, group.ints("step")?);
                let (host, gpu) = (group.ints("busy_ns")?, group.ints("gpu_ns")?);
                let (paths, locations) = (group.texts("path")?, group.texts("location")?);
                for row in 0..group.rows() {
                    let rank = number(ranks[row]);
                    if self.comparison.has_step(rank, steps[row] as u64) {
                        let times = [host[row], gpu[row]].map(nanos);
                        each(paths[row].as_utf8()?, locations[row].as_utf8()?, rank, times);
                    }
                }
                Ok(())
            });
            self.problems.extend(read.err().map(|error| error.to_string()));
        }
    }
}

/// Adds the collectives of a file whose steps are whole and fit.
fn read_file(
    file: &TableFile,
    comparison: &RankComparison,
    first: u64,
    end: &AtomicU64,
    all: &Mutex<Arrivals>,
    budget: usize,
) -> Result<(), TableError> {
    let mut found: BTreeMap<u64, Vec<Arrival>> = BTreeMap::new();
    let mut groups: HashMap<Box<str>, u32> = HashMap::new();
    file.groups(|group| {
        let is_within = |(from, to): (i64, i64)| to >= first as i64 && (from as u64) < end.load(Ordering::Relaxed);
        if !group.range("step").is_none_or(is_within) {
            return Ok(());
        }
        let (ranks, steps, numbers) = (group.ints("rank")?, group.ints("step")?, group.ints("number")?);
        let (times, names, pairwise) =
            (group.ints("duration_ns")?, group.texts("group_name")?, group.flags("pairwise")?);
        // Rows of a rank and a step follow each other.
        let mut known = (i64::MIN, i64::MIN, false);
        for row in 0..group.rows() {
            let (rank, step) = (number(ranks[row]), steps[row] as u64);
            if (known.0, known.1) != (ranks[row], steps[row]) {
                let is_wanted = step >= first && step < end.load(Ordering::Relaxed);
                known = (ranks[row], steps[row], is_wanted && comparison.has_step(rank, step));
            }
            if !known.2 {
                continue;
            }
            let name = names[row].as_utf8()?;
            let group = match pairwise[row] {
                true => PAIRWISE,
                false => match groups.get(name) {
                    Some(&group) => group,
                    None => {
                        let mut all = locked(all);
                        let new = all.groups.len() as u32;
                        let number = *all.groups.entry(name.into()).or_insert(new);
                        groups.insert(name.into(), number);
                        number
                    }
                },
            };
            let nanos = times[row].max(0) as u64;
            let duration = [(nanos >> 32) as u32, nanos as u32];
            let arrival = Arrival { group, number: number(numbers[row]), rank, duration };
            found.entry(step).or_default().push(arrival);
        }
        Ok(())
    })?;
    let mut all = locked(all);
    for (step, rows) in found {
        if step < end.load(Ordering::Relaxed) {
            all.rows += rows.len();
            all.steps.entry(step).or_default().extend(rows);
        }
    }
    // The last steps have to wait for another turn. One step must fit.
    while all.rows > budget && all.steps.len() > 1 {
        if let Some((step, rows)) = all.steps.pop_last() {
            all.rows -= rows.len();
            end.store(step, Ordering::Relaxed);
        }
    }
    Ok(())
}

fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn number(value: i64) -> u32 {
    u32::try_from(value).unwrap_or(u32::MAX)
}

fn nanos(value: i64) -> Duration {
    Duration::from_nanos(value.max(0) as u64)
}

#[cfg(test)]
mod tests;
