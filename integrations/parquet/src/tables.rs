//! The rows of all tables, from recorded windows and the summaries of steps.

use crate::{
    file::{self, TableError},
    rows::Rows,
    schema::{self, Table, join_path},
};
use kernspan::{
    analysis::{Analysis, collective_calls, gpu_waits, is_collective},
    export::StepSummary,
    trace::{Detail, Metadata, Span, SpanId, Timestamp, Trace},
};
use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    path::{Path, PathBuf},
    time::Duration,
};

/// The tables of one run, or of some of its ranks: rows in memory, until they are written.
///
/// ```no_run
/// use kernspan::analysis::Analysis;
/// use kernspan_parquet::Tables;
///
/// # fn convert(traces: &[kernspan::Trace]) -> Result<(), kernspan_parquet::TableError> {
/// let mut tables = Tables::new("night-7");
/// for trace in traces {
///     tables.add(&Analysis::of(trace));
/// }
/// tables.write("tables".as_ref())?; // `tables/steps/run=night-7/….parquet`, and so on.
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Tables {
    run: String,
    with_work: bool,
    rows: BTreeMap<&'static str, Rows>,
    /// The windows that were added since the last write.
    windows: BTreeSet<String>,
    /// Steps that the schedule records, whose window has yet to be added.
    pending: BTreeMap<(u32, u64), (Timestamp, Duration)>,
    /// Steps of windows, whose summary has yet to come.
    recorded: BTreeSet<(u32, u64)>,
}

/// What is added up of the spans with one path, in one step.
#[derive(Default)]
struct SpanSums {
    name: String,
    location: String,
    calls: u64,
    own: Duration,
    busy: Duration,
    total: Duration,
    gpu: Duration,
    collectives: Duration,
    start: Option<Timestamp>,
}

impl Tables {
    /// The rows after which tables should be written, so that memory stays bounded: some 60 MB.
    pub const ENOUGH_ROWS: usize = 1 << 20;

    /// Creates empty tables of a run. All ranks must give it the same name.
    pub fn new(run: impl Into<String>) -> Self {
        let rows = schema::TABLES.iter().map(|table| (table.name, Rows::new(table))).collect();
        Self {
            run: run.into(),
            with_work: false,
            rows,
            windows: BTreeSet::new(),
            pending: BTreeMap::new(),
            recorded: BTreeSet::new(),
        }
    }

    /// Sets whether the table `work` has each kernel, copy and fill. By default, it has no rows.
    #[must_use]
    pub fn work(mut self, with_work: bool) -> Self {
        self.with_work = with_work;
        self
    }

    /// Returns the number of rows that have not been written.
    pub fn len(&self) -> usize {
        self.rows.values().map(Rows::len).sum()
    }

    /// Returns whether there are no rows to write.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the rows of a table, to add others than those of a window.
    pub fn rows(&mut self, table: &'static Table) -> &mut Rows {
        self.rows.entry(table.name).or_insert_with(|| Rows::new(table))
    }

    /// Adds a recorded window.
    pub fn add(&mut self, window: &Analysis<'_>) {
        let trace = window.trace();
        let Metadata { rank, world_size, host, pid, process, .. } = trace.metadata();
        let number = trace.window();
        self.windows.insert(window_id(trace));
        let whole = trace.steps().iter().filter(|step| !step.cut().any()).count();
        let device = trace.devices().first().map_or("", |device| &*device.name);
        let writer = concat!("kernspan ", env!("CARGO_PKG_VERSION"));
        let framework = format!("{:?}", trace.framework());
        let cells = [(*rank).into(), trace.start().into(), (*world_size).into(), (**process).into()];
        self.rows(&schema::RUNS).push(&[&cells[..], &[(*framework).into(), writer.into()]].concat());
        self.rows(&schema::RANKS).push(&[
            (*rank).into(),
            trace.start().into(),
            trace.duration().into(),
            number.into(),
            (*world_size).into(),
            (**host).into(),
            (*pid).into(),
            device.into(),
            (whole as u64).into(),
            trace.losses().total().into(),
        ]);
        for step in trace.steps() {
            if self.pending.remove(&(*rank, step.number())).is_none() {
                self.recorded.insert((*rank, step.number()));
            }
            self.rows(&schema::STEPS).push(&[
                (*rank).into(),
                step.number().into(),
                step.start().into(),
                step.duration().into(),
                true.into(),
                (!step.cut().any()).into(),
                number.into(),
            ]);
        }
        self.add_spans(trace);
        self.add_collectives(trace);
        self.add_work(trace);
        for finding in window.findings() {
            self.rows(&schema::FINDINGS).push(&[
                (*rank).into(),
                trace.start().into(),
                number.into(),
                finding.kind.as_str().into(),
                (*finding.title).into(),
                (*join_path(finding.path.iter().map(String::as_str))).into(),
                finding.location.as_deref().unwrap_or("").into(),
                finding.saving.least.into(),
                finding.saving.likely.into(),
                finding.saving.most.into(),
                finding.step.into(),
                finding.steps.into(),
            ]);
        }
    }

    /// Adds steps, but for those that are in a window. Those that the schedule records wait for their window.
    pub fn add_steps(&mut self, rank: u32, steps: &[StepSummary]) {
        for step in steps.iter().filter(|step| step.ended) {
            if self.recorded.remove(&(rank, step.number)) {
                continue;
            }
            if step.phase.is_recording() {
                self.pending.insert((rank, step.number), (step.start, step.duration));
            } else {
                self.add_unrecorded(rank, step.number, step.start, step.duration);
            }
        }
    }

    /// Adds the steps whose window has not come, as it was lost.
    pub fn add_lost_steps(&mut self) {
        for ((rank, step), (start, duration)) in std::mem::take(&mut self.pending) {
            self.add_unrecorded(rank, step, start, duration);
        }
    }

    fn add_unrecorded(&mut self, rank: u32, step: u64, start: Timestamp, duration: Duration) {
        let cells = [rank.into(), step.into(), start.into(), duration.into(), false.into(), false.into(), (-1).into()];
        self.rows(&schema::STEPS).push(&cells);
    }

    fn add_spans(&mut self, trace: &Trace) {
        let mut gpu: HashMap<SpanId, [Duration; 2]> = HashMap::new();
        for work in trace.work() {
            let Some(span) = work.span() else { continue };
            // As in a comparison of ranks, which only has what belongs to whole steps.
            if work.step_id() == span.step_id() || work.step().is_some_and(|step| !step.cut().any()) {
                gpu.entry(span.id()).or_default()[usize::from(is_collective(work))] += work.duration();
            }
        }
        let waits = gpu_waits(trace);
        let mut sums: BTreeMap<(u64, String), SpanSums> = BTreeMap::new();
        for span in trace.spans() {
            let Some(step) = span.step() else { continue };
            let sums = sums.entry((step.number(), path_of(span))).or_default();
            let location = span.callsite().location().unwrap_or_default();
            if sums.calls == 0 {
                sums.name = span.name().to_owned();
            }
            if sums.location.is_empty() || (!location.is_empty() && location < sums.location) {
                sums.location = location;
            }
            let [work, collectives] = gpu.get(&span.id()).copied().unwrap_or_default();
            sums.calls += 1;
            sums.own += span.self_time();
            sums.busy += span.self_time().saturating_sub(waits.get(&span.id()).copied().unwrap_or_default());
            sums.total += span.duration();
            sums.gpu += work;
            sums.collectives += collectives;
            sums.start = Some(sums.start.map_or(span.start(), |start| start.min(span.start())));
        }
        let rank = trace.metadata().rank;
        for ((step, path), sums) in &sums {
            self.rows(&schema::SPANS).push(&[
                rank.into(),
                (*step).into(),
                (**path).into(),
                (*sums.name).into(),
                (*sums.location).into(),
                sums.calls.into(),
                sums.own.into(),
                sums.busy.into(),
                sums.total.into(),
                sums.gpu.into(),
                sums.collectives.into(),
                sums.start.unwrap_or(trace.start()).into(),
            ]);
        }
    }

    fn add_collectives(&mut self, trace: &Trace) {
        let paths: HashMap<SpanId, String> = trace.spans().map(|span| (span.id(), path_of(span))).collect();
        for call in collective_calls(trace) {
            let path = call.span.and_then(|span| paths.get(&span)).map_or("", String::as_str);
            self.rows(&schema::COLLECTIVES).push(&[
                trace.metadata().rank.into(),
                call.step.into(),
                call.start.into(),
                call.duration().into(),
                (*call.group).into(),
                call.number.into(),
                call.operation.as_str().into(),
                call.operation.is_pairwise().into(),
                (*call.dtype).into(),
                call.bytes.into(),
                call.group_size.into(),
                call.exposed.into(),
                path.into(),
            ]);
        }
    }

    fn add_work(&mut self, trace: &Trace) {
        let rank = trace.metadata().rank;
        // The number of executions, their time, the shortest, the longest, and the bytes.
        type Sums = (u64, Duration, Duration, Duration, u64);
        let mut sums: BTreeMap<(i64, String, &str), Sums> = BTreeMap::new();
        for work in trace.work() {
            let step = work.step().and_then(|step| i64::try_from(step.number()).ok()).unwrap_or(-1);
            let kind = match work.detail() {
                _ if is_collective(work) => "collective",
                Detail::Kernel(_) => "kernel",
                Detail::Copy(_) => "copy",
                _ => "fill",
            };
            let (name, time) = (work.name().to_string(), work.duration());
            if self.with_work {
                self.rows(&schema::WORK).push(&[
                    rank.into(),
                    step.into(),
                    work.start().into(),
                    time.into(),
                    (*name).into(),
                    kind.into(),
                    work.stream().device().as_u32().into(),
                    work.stream().number().into(),
                    work.bytes().into(),
                    work.correlation().into(),
                    (*work.span().map(path_of).unwrap_or_default()).into(),
                ]);
            }
            let sums = sums.entry((step, name, kind)).or_insert((0, Duration::ZERO, time, time, 0));
            *sums = (sums.0 + 1, sums.1 + time, sums.2.min(time), sums.3.max(time), sums.4 + work.bytes());
        }
        for ((step, name, kind), (calls, total, min, max, bytes)) in &sums {
            self.rows(&schema::KERNELS).push(&[
                rank.into(),
                (*step).into(),
                (**name).into(),
                (*kind).into(),
                (*calls).into(),
                (*total).into(),
                (*min).into(),
                (*max).into(),
                (*bytes).into(),
            ]);
        }
    }

    /// Writes all rows into new files of a folder, one for each table that has rows, and forgets them. Returns the
    /// files. Each appears whole or not at all.
    ///
    /// # Errors
    ///
    /// The first file that cannot be written. The rows of others remain, for another try.
    pub fn write(&mut self, folder: &Path) -> Result<Vec<PathBuf>, TableError> {
        let mut files = Vec::new();
        let Metadata { host, pid, .. } = Metadata::of_this_process();
        let name = safe(&format!("{host}-{pid}-{}", Timestamp::now().as_unix_nanos()));
        if self.windows.is_empty() {
            // Steps only. A copy has the same name inside.
            self.windows.insert(digest(&name));
        }
        for table in schema::TABLES {
            let Some(rows) = self.rows.get_mut(table.name).filter(|rows| !rows.is_empty()) else { continue };
            let folder = folder.join(table.name).join(format!("run={}", safe(&self.run)));
            files.push(file::write(&folder, &name, rows, &self.windows)?);
            *rows = Rows::new(table);
        }
        self.windows.clear();
        Ok(files)
    }
}

fn path_of(span: Span<'_>) -> String {
    /// The most names of a path, the innermost ones, since recursion may be deep: as in a comparison of ranks.
    const DEPTH: usize = 200;
    let mut names: Vec<_> = span.stack().take(DEPTH).map(Span::name).collect();
    names.reverse();
    join_path(names)
}

/// Returns a digest of what makes a window unique.
fn window_id(trace: &Trace) -> String {
    let Metadata { host, pid, rank, .. } = trace.metadata();
    digest(&format!("{host} {pid} {rank} {} {}", trace.window(), trace.start().as_unix_nanos()))
}

/// Returns the FNV-1a hash, which is the same in every release of Rust.
fn digest(text: &str) -> String {
    let add = |digest: u64, byte| (digest ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    format!("{:016x}", text.bytes().fold(0xcbf2_9ce4_8422_2325, add))
}

/// Returns a name that is safe in any file system and as a value of a partition: engines decode `%`, and split at `=`.
pub(crate) fn safe(name: &str) -> String {
    let is_safe = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let name: String = name.chars().map(|c| if is_safe(c) { c } else { '_' }).collect();
    match name.trim_start_matches('.') {
        "" => "unnamed".to_owned(),
        name => name.to_owned(),
    }
}
