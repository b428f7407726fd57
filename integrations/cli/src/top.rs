//! The command `top`: the spans and kernels with the most self time, on one screen, or a running program.

#[cfg(unix)]
mod gpus;
#[cfg(unix)]
mod screen;
#[cfg(unix)]
mod view;
#[cfg(unix)]
mod watch;

use crate::{
    fault::Fault,
    input::Inputs,
    json::json,
    output::{self, Section, Style},
};
use kernspan::{
    Report,
    report::{SortBy, Table, units},
};
use serde::Serialize;
use std::time::Duration;

/// Print the spans and kernels with the most self time, on one screen, or watch a running program
///
/// With `--pid`, the terminal shows the steps, counters, GPUs, memory and spans of a program that listens, until `q` is
/// pressed. `?` shows the other keys.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  kernspan top trace.json
  kernspan top --kernels -n 5 runs/mnist
  kernspan top --pid 4711

Exit status: 0 success; 1 a file could not be read, or nothing was found; 2 usage error")]
pub(crate) struct Args {
    #[command(flatten)]
    inputs: Inputs,
    /// Watch the running program with this process id instead
    #[cfg(unix)]
    #[arg(long, conflicts_with_all = ["files", "kernels", "spans", "limit"])]
    pid: Option<u32>,
    /// Print kernels and copies only
    #[arg(long)]
    kernels: bool,
    /// Print spans only
    #[arg(long)]
    spans: bool,
    /// Maximum number of rows [default: 20, or 8 each of spans and kernels]
    #[arg(short = 'n', long, value_name = "ROWS", value_parser = output::limit)]
    limit: Option<usize>,
    #[command(flatten)]
    style: Style,
}

#[derive(Serialize)]
struct Row {
    name: String,
    /// Time excluding nested spans.
    #[serde(rename = "self")]
    own: Duration,
    percent: f64,
    /// The cumulative share of this row and those above it.
    cumulative: f64,
    /// Whole calls.
    calls: u64,
    /// Calls cut by the edge of a window.
    cut_calls: u64,
}

impl Args {
    pub(crate) fn run(&self) -> Result<(), Fault> {
        #[cfg(unix)]
        if let Some(pid) = self.pid {
            return watch::watch(pid);
        }
        let read = self.inputs.read()?;
        let report = read.report();
        let spans = self.spans || !self.kernels;
        let kernels = self.kernels || (!self.spans && report.gpu_work() > 0);
        let rows = self.limit.unwrap_or(if spans && kernels { 8 } else { 20 });
        let mut sections = Vec::new();
        if spans {
            sections.push(of_spans(&report, rows));
        }
        if kernels {
            sections.push(of_kernels(&report, rows));
        }
        self.style.print(&sections)?;
        read.end()
    }
}

fn of_spans(report: &Report, limit: usize) -> Section {
    let all = report.averages().sort_by(SortBy::SelfCpu).limit(usize::MAX).rows();
    let rows = all.into_iter().map(|row| Row {
        name: row.name,
        own: row.self_cpu,
        percent: row.self_percent,
        cumulative: 0.0,
        calls: row.calls,
        cut_calls: row.cut_calls,
    });
    // Unattributed work is a row without calls.
    let rows = rows.filter(|row| row.calls + row.cut_calls > 0).collect();
    section(("Spans", "spans"), rows, limit, "no spans were recorded", |rows| table("Span", "Self time", rows))
}

/// The title of the column of kernels.
const KERNEL: &str = "Kernel";

fn of_kernels(report: &Report, limit: usize) -> Section {
    let all = report.kernels().limit(usize::MAX).rows();
    let rows = all.into_iter().map(|row| Row {
        name: row.name,
        own: row.total,
        percent: row.percent,
        cumulative: 0.0,
        calls: row.calls,
        cut_calls: 0,
    });
    let table = |rows: &[Row]| table(KERNEL, "CUDA total", rows);
    section(("Kernels", "kernels"), rows.collect(), limit, "no GPU work was recorded", table)
}

fn section(
    (title, key): (&str, &'static str),
    mut rows: Vec<Row>,
    limit: usize,
    empty: &'static str,
    table: fn(&[Row]) -> Table,
) -> Section {
    let left_out = rows.len().saturating_sub(limit);
    rows.truncate(limit);
    let mut sum = 0.0;
    for row in &mut rows {
        sum += row.percent;
        row.cumulative = sum;
    }
    Section {
        title: title.to_owned(),
        key,
        table: (!rows.is_empty()).then(|| table(&rows).left_out(left_out)),
        empty,
        rows: rows.iter().map(json).collect(),
        ..Section::default()
    }
}

fn table(name: &'static str, time: &'static str, rows: &[Row]) -> Table {
    let mut table = Table::default();
    let names = table.text(name, rows, |row| row.name.clone());
    if name == KERNEL {
        names.kernels();
    }
    table.number(time, rows, |row| units::column_time(row.own));
    table.number("Share", rows, |row| units::percent(row.percent));
    table.number("Cumulative", rows, |row| units::percent(row.cumulative)).droppable(1);
    table.number("# of Calls", rows, |row| units::calls(row.calls, row.cut_calls)).droppable(2);
    table
}
