//! The command `report`: tables of a run.

use crate::{
    calls::{self, Direction},
    counters::{self, CounterRows},
    fault::Fault,
    file,
    input::{Inputs, Read},
    json::json,
    launches,
    output::{self, Format, Section, Style, print_json},
    sort::Sort,
    steps, torch,
};
use kernspan::{
    Report,
    export::HtmlReport,
    report::{
        Averages, CounterTable, Functions, Kernels, Lines, MemoryPeak, MemoryPeaks, Modules, Operations, SortBy,
        SortOperationsBy, TimeTree, units,
    },
};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// Print where the time went: tables of spans, kernels, operations, steps and memory
///
/// By default, this is an overview: the spans, the ten longest kernels and operations, and a summary of steps, GPUs and
/// losses. --tree, --kernels, --model, --operations, --counters, --lines, --functions, --launches, --streams, --steps,
/// --memory, --callers, --callees and --torch print single tables instead. Several files are added up.
#[derive(clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    #[command(flatten)]
    inputs: Inputs,
    /// Sort spans by this column, in descending order, and operations as well if they have the column
    #[arg(long, value_enum, value_name = "COLUMN")]
    sort: Option<Sort>,
    /// Maximum rows of each table [default: 100; 10 for memory, and for kernels and operations in the overview]
    #[arg(long, short = 'n', value_name = "ROWS", value_parser = output::limit)]
    limit: Option<usize>,
    /// Group spans, kernels and operations by the shapes of their arguments
    #[arg(long)]
    by_shape: bool,
    /// Group spans by the N innermost spans around them
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    by_stack: usize,
    /// Group spans by module of the model
    #[arg(long)]
    by_module: bool,
    /// Print the time of each kernel and kind of copy on the GPU
    #[arg(long)]
    kernels: bool,
    /// Print the tree of spans: what a flame graph draws, with small spans folded
    #[arg(long)]
    tree: bool,
    /// With --tree: how deeply nested spans are printed [default: 32]
    #[arg(long, requires = "tree", value_name = "LEVELS", value_parser = output::limit)]
    depth: Option<usize>,
    /// Print the modules of the model: parameters, FLOPs, FLOPs per parameter, times and memory
    #[arg(long)]
    model: bool,
    /// Print the operations that a framework reported
    #[arg(long)]
    operations: bool,
    /// Print how busy the SMs, the tensor cores and the memory of GPUs were, if hardware counters were sampled
    #[arg(long)]
    counters: bool,
    /// With --counters: what the rows are [default: span]
    #[arg(long, requires = "counters", value_enum, value_name = "KIND")]
    counters_by: Option<CounterRows>,
    /// Print what launches cost the host, by API function
    #[arg(long)]
    launches: bool,
    /// Print why each CUDA stream was idle, and how much work was queued on it
    #[arg(long)]
    streams: bool,
    /// Print the steps, as the command `steps` does
    #[arg(long)]
    steps: bool,
    /// Print the lines that the time of each span itself went to, if stacks were sampled
    #[arg(long)]
    lines: bool,
    /// Print the functions that took the CPU's time, with their spans, if stacks were sampled
    #[arg(long)]
    functions: bool,
    /// With --lines: add lines of libraries to the program's own lines that led to them
    #[arg(long, requires = "lines")]
    own: bool,
    /// With --lines: only the lines of spans with this name
    #[arg(long, requires = "lines", value_name = "NAME")]
    in_span: Option<String>,
    /// Print which spans held GPU memory at its peak
    #[arg(long)]
    memory: bool,
    /// Print the callers of this span
    #[arg(long, value_name = "NAME")]
    callers: Option<String>,
    /// Print the callees of this span
    #[arg(long, value_name = "NAME")]
    callees: Option<String>,
    /// Print the same table as PyTorch's key_averages()
    #[arg(long)]
    torch: bool,
    /// Write an HTML page instead, with tables, charts, findings, flame graphs and a timeline; `-` for standard output
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    #[command(flatten)]
    style: Style,
}

const AFTER_HELP: &str = "\
Examples:
  kernspan report runs/mnist
  kernspan report --sort self-gpu -n 20 trace.pt.trace.json.gz
  kernspan report --tree runs/mnist
  kernspan report --kernels --by-shape window.kernspan
  kernspan report --lines --in-span backward runs/mnist
  kernspan report --model runs/mnist
  kernspan report --counters --counters-by kernel runs/mnist
  kernspan report --callers matmul trace.json
  kernspan report --html report.html runs/mnist
  kernspan report --torch --json trace.pt.trace.json | jq '.key_averages[0]'

Exit status: 0 success; 1 a file could not be read or written, or nothing was found; 2 usage error";

/// The text in place of a table of lines or functions.
const NO_STACKS: &str = "no stacks were sampled";

/// Returns the name of a page: its file without folders, and how many more there are.
fn page_name(read: &Read) -> String {
    let file = |name: &str| match Path::new(name).file_name() {
        Some(file) => file.to_string_lossy().into_owned(),
        None => name.to_owned(),
    };
    let first = read.sources.first().map(|source| file(&source.name)).unwrap_or_default();
    match read.sources.len() {
        0 | 1 => first,
        files => format!("{first} and {} more", files - 1),
    }
}

impl Args {
    pub(crate) fn run(&self) -> Result<(), Fault> {
        self.inputs.check_output(self.html.as_deref())?;
        let read = self.inputs.read()?;
        if let Some(path) = &self.html {
            let page = HtmlReport::of(read.traces()).named(page_name(&read));
            file::write(path, |out| write!(out, "{page}"))?;
            return read.end();
        }
        let report = read.report();
        let sections = self.sections(&read, &report)?;
        match (sections.is_empty(), self.style.format()) {
            (true, Format::Json) => print_json(&self.whole_json(&report))?,
            (true, Format::Csv) => self.style.print(&[self.spans(&report)])?,
            (true, _) => self.style.print(&self.overview(&report))?,
            (false, _) => self.style.print(&sections)?,
        }
        read.end()
    }

    /// Returns the requested sections; none means the overview.
    fn sections(&self, read: &Read, report: &Report) -> Result<Vec<Section>, Fault> {
        let mut sections = Vec::new();
        if self.torch {
            let rows = self.style.rows(self.limit, Averages::LIMIT);
            sections.push(torch::section(read.traces(), self.sort, rows));
        }
        if self.tree {
            sections.push(self.tree(report));
        }
        if self.kernels {
            sections.push(self.kernels(report, Kernels::LIMIT));
        }
        if self.model {
            sections.push(self.model(report));
        }
        if self.operations {
            sections.push(self.operations(report, Operations::LIMIT));
        }
        if self.counters {
            let rows = self.style.rows(self.limit, CounterTable::LIMIT);
            let counters = counters::section(report, self.counters_by.unwrap_or_default(), rows);
            sections.push(Section { below: counters::problems(report), ..counters });
        }
        if self.lines {
            sections.push(self.lines(report, Lines::LIMIT, self.own, self.in_span.as_deref()));
        }
        if self.functions {
            sections.push(self.functions(report, Functions::LIMIT));
        }
        if self.launches {
            sections.push(launches::launch_section(read, self.style.rows(self.limit, usize::MAX)));
        }
        if self.streams {
            sections.push(launches::stream_section(read, self.style.rows(self.limit, usize::MAX)));
        }
        if self.steps {
            sections.push(steps::section(read, report, self.style.rows(self.limit, usize::MAX)));
        }
        if self.memory {
            sections.extend(self.memory(report));
        }
        let asked = [(&self.callers, Direction::Callers), (&self.callees, Direction::Callees)];
        for (name, direction) in asked {
            if let Some(name) = name {
                let rows = self.style.rows(self.limit, Averages::LIMIT);
                sections.push(calls::section(report, name, direction, rows)?);
            }
        }
        Ok(sections)
    }

    fn overview(&self, report: &Report) -> Vec<Section> {
        /// The maximum number of rows in tables after the first.
        const FEW: usize = 10;
        let mut sections = vec![self.spans(report)];
        if report.gpu_work() > 0 {
            sections.push(self.kernels(report, FEW));
        }
        let operations = self.operations(report, FEW);
        if operations.table.is_some() {
            sections.push(operations);
        }
        if !report.counters().is_empty() {
            sections.push(counters::section(report, CounterRows::default(), self.style.rows(self.limit, FEW)));
        }
        if report.has_modes() {
            sections.push(modes(report));
        }
        if !report.lines().is_empty() {
            sections.extend([self.lines(report, FEW, true, None), self.functions(report, FEW)]);
        }
        let view = match (self.style.format(), self.style.width) {
            // Markdown renderers wrap lines themselves.
            (Format::Md, _) => report.width(usize::MAX),
            (_, Some(columns)) => report.width(columns),
            (_, None) => report.fit_terminal(),
        };
        // As in printed reports: the summary is set apart from the table if there are several.
        let gap = if sections.len() > 1 { "\n" } else { "" };
        if let Some(last) = sections.last_mut() {
            last.below = format!("{gap}{}", view.summary());
        }
        sections
    }

    fn averages<'a>(&self, report: &'a Report) -> Averages<'a> {
        let averages = report.averages().limit(self.style.rows(self.limit, Averages::LIMIT));
        let averages = averages.group_by_shape(self.by_shape).group_by_stack(self.by_stack);
        averages.group_by_module(self.by_module).sort_by(self.sort.map_or_else(SortBy::default, Sort::spans))
    }

    fn spans(&self, report: &Report) -> Section {
        let averages = self.averages(report);
        let rows = averages.rows();
        Section {
            title: "Spans".to_owned(),
            key: "averages",
            table: (!rows.is_empty()).then(|| averages.table()),
            empty: "no spans were recorded",
            rows: rows.iter().map(json).collect(),
            ..Section::default()
        }
    }

    fn tree(&self, report: &Report) -> Section {
        let tree = report.time_tree().limit(self.style.rows(self.limit, TimeTree::LIMIT));
        let tree = tree.depth(self.depth.unwrap_or(self.style.rows(None, TimeTree::DEPTH)));
        let rows = tree.rows();
        Section {
            title: "Tree".to_owned(),
            key: "tree",
            table: (!rows.is_empty()).then(|| tree.table()),
            empty: "no spans were recorded",
            rows: rows.iter().map(json).collect(),
            ..Section::default()
        }
    }

    fn kernels(&self, report: &Report, limit: usize) -> Section {
        let kernels = report.kernels().group_by_shape(self.by_shape).limit(self.style.rows(self.limit, limit));
        let rows = kernels.rows();
        Section {
            title: "Kernels".to_owned(),
            key: "kernels",
            table: (!rows.is_empty()).then(|| kernels.table()),
            empty: "no GPU work was recorded",
            rows: rows.iter().map(json).collect(),
            ..Section::default()
        }
    }

    fn model(&self, report: &Report) -> Section {
        let modules = report.modules().limit(self.style.rows(self.limit, Modules::LIMIT));
        let (rows, parameters) = (modules.rows(), modules.parameters());
        let total = parameters.map(|it| format!("the model has {} parameters", units::count(it).unwrap_or_default()));
        Section {
            title: "Modules".to_owned(),
            key: "modules",
            table: (!rows.is_empty()).then(|| modules.table()),
            empty: "no modules were recorded: no span has the field op.module",
            rows: rows.iter().map(json).collect(),
            members: vec![("parameters", parameters.into())],
            below: total.unwrap_or_default(),
            ..Section::default()
        }
    }

    fn operations(&self, report: &Report, limit: usize) -> Section {
        let operations = report.operations().group_by_shape(self.by_shape).limit(self.style.rows(self.limit, limit));
        let operations = operations.sort_by(self.sort.map_or_else(SortOperationsBy::default, Sort::operations));
        let rows = operations.rows();
        Section {
            title: "Operations".to_owned(),
            key: "operations",
            table: (!rows.is_empty()).then(|| operations.table()),
            empty: "no operations were recorded: no framework reported any",
            rows: rows.iter().map(json).collect(),
            ..Section::default()
        }
    }

    fn lines(&self, report: &Report, limit: usize, own: bool, span: Option<&str>) -> Section {
        let lines = report.lines().own(own).limit(self.style.rows(self.limit, limit));
        let lines = span.into_iter().fold(lines, Lines::in_span);
        let rows = lines.rows();
        Section {
            title: "Lines".to_owned(),
            key: "lines",
            table: (!rows.is_empty()).then(|| lines.table()),
            empty: if span.is_some() { "no stacks were sampled in this span" } else { NO_STACKS },
            marked: (0..rows.len()).filter(|&row| rows[row].is_hot()).collect(),
            rows: rows.iter().map(json).collect(),
            ..Section::default()
        }
    }

    fn functions(&self, report: &Report, limit: usize) -> Section {
        let functions = report.functions().limit(self.style.rows(self.limit, limit));
        let rows = functions.rows();
        Section {
            title: "Functions".to_owned(),
            key: "functions",
            table: (!rows.is_empty()).then(|| functions.table()),
            empty: NO_STACKS,
            rows: rows.iter().map(json).collect(),
            ..Section::default()
        }
    }

    fn memory(&self, report: &Report) -> Vec<Section> {
        let limit = self.style.rows(self.limit, MemoryPeaks::LIMIT);
        let section = Section {
            title: "Memory".to_owned(),
            key: "memory",
            empty: "no GPU memory was recorded",
            ..Section::default()
        };
        if report.memory().peaks().len() == 0 {
            return vec![section];
        }
        let of_peak = |peak: &MemoryPeak| {
            let owners = peak.owners.iter().take(limit).map(|owner| with_device(json(&peak.device), json(owner)));
            let before = json!({"device": json(&peak.device), "name": MemoryPeak::BEFORE,
                "stack": [], "bytes": peak.before, "allocations": null});
            Section {
                title: section.title.clone(),
                key: section.key,
                table: Some(peak.table(limit)),
                rows: (peak.before > 0).then_some(before).into_iter().chain(owners).collect(),
                ..Section::default()
            }
        };
        report.memory().peaks().map(of_peak).collect()
    }

    /// Returns the whole report, with the spans as requested.
    fn whole_json(&self, report: &Report) -> Value {
        let mut whole = json(report);
        whole["averages"] = self.averages(report).rows().iter().map(json).collect();
        whole
    }
}

fn modes(report: &Report) -> Section {
    Section {
        title: "Training and inference".to_owned(),
        key: "modes",
        table: Some(report.modes_table()),
        rows: report.modes().iter().map(json).collect(),
        ..Section::default()
    }
}

fn with_device(device: Value, owner: Value) -> Value {
    let mut row = json!({"device": device});
    if let (Value::Object(row), Value::Object(owner)) = (&mut row, owner) {
        row.extend(owner);
    }
    row
}
