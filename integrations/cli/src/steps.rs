//! The command `steps`: how long each step took, and how busy the GPUs were.

use crate::{
    breakdown,
    fault::Fault,
    input::{Inputs, Read},
    json::json,
    output::{self, Section, Style},
};
use kernspan::{
    Report,
    analysis::{Analysis, StepGpu, StepInterval, Verdict},
    report::{Table, units},
    trace::DeviceId,
};
use serde::Serialize;
use std::time::Duration;

/// Print one line per step: its duration and what each GPU did
///
/// A step lasts from the end of all that came before it until the host and the GPU are both done with it; `On host` is
/// its duration on the host alone. Steps that take much longer than the others are marked as outliers: more than half
/// again the median, and far outside the spread of the others. Steps cut off by the edge of a recorded window are not
/// listed.
///
/// With `--breakdown`, each moment of a step counts once. While the GPU is busy, it computes, only communicates, or
/// only copies. While it is idle, it is between kernels (gaps) if the host had launched the next one; otherwise the
/// host is in the input pipeline, waits for the GPU (sync), launches work, is in another span (host), or is in none
/// (other). Threads that launch work for the step, such as PyTorch's autograd
/// thread, count as well.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  kernspan steps runs/mnist
  kernspan steps --breakdown runs/mnist
  kernspan steps --format csv trace.json > steps.csv

Exit status: 0 success; 1 a file could not be read, or nothing was found; 2 usage error")]
pub(crate) struct Args {
    #[command(flatten)]
    inputs: Inputs,
    /// Print where the time of each step went: compute, communication and copies, and the host while the GPU was idle
    #[arg(long)]
    breakdown: bool,
    /// Maximum number of rows [default: all]
    #[arg(long, short = 'n', value_name = "ROWS", value_parser = output::limit)]
    limit: Option<usize>,
    #[command(flatten)]
    style: Style,
}

impl Args {
    pub(crate) fn run(&self) -> Result<(), Fault> {
        let read = self.inputs.read()?;
        let rows = self.style.rows(self.limit, usize::MAX);
        let section =
            if self.breakdown { breakdown::section(&read, rows) } else { section(&read, &read.report(), rows) };
        self.style.print(&[section])?;
        read.end()
    }
}

/// A step, and what one GPU did in it.
#[derive(Clone, Serialize)]
struct StepRow {
    /// The file, if there are several.
    file: Option<String>,
    #[serde(skip)]
    short_file: Option<String>,
    step: u64,
    duration: Duration,
    on_host: Duration,
    device: Option<DeviceId>,
    busy: Option<Duration>,
    busy_percent: Option<f64>,
    idle: Option<Duration>,
    kernels: Option<u64>,
    copying: Option<Duration>,
    copied: Option<u64>,
    verdict: Option<&'static str>,
    /// The duration as a multiple of the median, if the step is an outlier.
    slow: Option<f64>,
}

/// Returns the table of steps, with the step time and percentiles below it.
pub(crate) fn section(read: &Read, report: &Report, limit: usize) -> Section {
    let mut rows = rows(read, report);
    let left_out = rows.len().saturating_sub(limit);
    rows.truncate(limit);
    let times = report.steps();
    const PERCENTILES: [(&str, f64); 4] = [("p50", 50.0), ("p90", 90.0), ("p95", 95.0), ("p99", 99.0)];
    let known = PERCENTILES.iter().filter_map(|(name, percent)| Some((*name, times.percentile(*percent)?)));
    let percentiles: Vec<_> = known.chain(times.longest().map(|time| ("longest", time))).collect();
    let texts: Vec<_> = percentiles.iter().map(|(name, time)| format!("{name} {}", units::time(*time))).collect();
    let steps = if times.count() == 1 { "step" } else { "steps" };
    let note = format!("{} {steps}: {}", times.count(), texts.join(", "));
    let notes = report.step_time().map(|step| step.to_string()).into_iter().chain([note]).collect();
    let percentiles = percentiles.iter().map(|(name, time)| ((*name).to_owned(), json(time)));
    Section {
        title: "Steps".to_owned(),
        key: "steps",
        table: (!rows.is_empty()).then(|| table(&rows, read.folder.as_deref(), notes).left_out(left_out)),
        empty: "no whole step was recorded",
        rows: rows.iter().map(json).collect(),
        members: vec![("step_time", json(&report.step_time())), ("percentiles", percentiles.collect())],
        marked: (0..rows.len()).filter(|&row| rows[row].slow.is_some()).collect(),
        ..Section::default()
    }
}

fn rows(read: &Read, report: &Report) -> Vec<StepRow> {
    let slow = report.steps().slow();
    let mut rows = Vec::new();
    for source in &read.sources {
        let files = [source.short_name.as_ref().map(|_| source.name.clone()), source.short_name.clone()];
        for trace in &source.traces {
            let window = Analysis::of(trace);
            for step in window.step_intervals() {
                let (number, duration) = (step.step, step.time());
                let slow = slow.iter().find(|slow| slow.number == number && slow.duration == duration);
                let row = StepRow::new(files.clone(), step, slow.map(|slow| slow.factor));
                let is_same = |usage: &&StepGpu| usage.step == number && usage.usage.duration == duration;
                let usages = window.gpu_steps().iter().filter(is_same);
                let of_gpus: Vec<_> = usages.map(|usage| row.clone().with_gpu(usage)).collect();
                if of_gpus.is_empty() { rows.push(row) } else { rows.extend(of_gpus) }
            }
        }
    }
    rows
}

impl StepRow {
    fn new([file, short_file]: [Option<String>; 2], step: &StepInterval, slow: Option<f64>) -> Self {
        Self {
            file,
            short_file,
            step: step.step,
            duration: step.time(),
            on_host: step.host,
            device: None,
            busy: None,
            busy_percent: None,
            idle: None,
            kernels: None,
            copying: None,
            copied: None,
            verdict: None,
            slow,
        }
    }

    fn with_gpu(self, step: &StepGpu) -> Self {
        let usage = &step.usage;
        Self {
            device: Some(step.device),
            busy: Some(usage.busy),
            busy_percent: Some(usage.busy_percent()),
            idle: Some(usage.idle),
            kernels: Some(usage.kernels),
            copying: Some(usage.copying),
            copied: Some(usage.copied),
            verdict: Some(Verdict::as_str(usage.verdict)),
            ..self
        }
    }
}

fn table(rows: &[StepRow], folder: Option<&str>, notes: Vec<String>) -> Table {
    let mut table = Table::default();
    notes.into_iter().for_each(|note| table.note(note));
    folder.into_iter().for_each(|folder| table.heading(format!("Files in {folder}:")));
    if rows.iter().any(|row| row.short_file.is_some()) {
        table.text("File", rows, |row| row.short_file.clone());
    }
    table.number("Step", rows, |row| row.step.to_string());
    table.number("Duration", rows, |row| units::column_time(row.duration));
    table.number("On host", rows, |row| units::column_time(row.on_host)).droppable(8);
    table.number("GPU", rows, |row| row.device.map(|device| device.to_string())).droppable(6);
    table.number("GPU busy", rows, |row| row.busy.map(units::column_time));
    table.number("Busy %", rows, |row| row.busy_percent.map(units::percent)).droppable(3);
    table.number("GPU idle", rows, |row| row.idle.map(units::column_time)).droppable(7);
    table.number("# of Kernels", rows, |row| row.kernels.map(|count| count.to_string())).droppable(5);
    table.number("Copies", rows, |row| row.copying.map(units::column_time)).droppable(4);
    table.number("Copied", rows, |row| row.copied.map(units::bytes)).droppable(1);
    if rows.iter().any(|row| row.verdict.is_some()) {
        table.text("Bottleneck", rows, |row| row.verdict.map(str::to_owned)).droppable(2);
    }
    if rows.iter().any(|row| row.slow.is_some()) {
        table.text("", rows, |row| row.slow.map(|factor| format!("outlier: {factor:.1}x median")));
    }
    table
}
