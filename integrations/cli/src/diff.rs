//! The command `diff`: what differs between two runs, or between two sets of runs.

mod efficiency;
mod page;
mod summary;
mod tables;

use self::efficiency::EfficiencyChange;
use crate::{
    achieved::{Goal, RunCounters},
    fault::{Fault, say},
    input::{self, FolderRun, Inputs},
    json::json,
    output::{self, Format, Section, Style, print_json},
    progress::Progress,
    runs::Runs,
};
use kernspan_check::{
    Baseline, Comparison, CountKind,
    comparison::{KernelTimeChange, KernelTimes},
};
use serde_json::Value;
use std::{
    path::{Path, PathBuf},
    thread,
};

/// Print what differs between two runs: the step, spans, kernels, memory, FLOPs and findings
///
/// Each side is a file or a folder, of which the newest run is read. Several runs per side give a surer answer:
/// `BEFORE… -- AFTER…`. A single folder is compared with itself: the newest run with the one before it.
///
/// Times are means over the typical steps of all runs of a side: the middle half of the steps of each run, by duration.
/// So the change of a span is that of its own time and those of the spans in it. The 99 % confidence interval of a
/// change comes from the spread between runs. With a single run, that is unknown and assumed to be 5 %. What is worse
/// is decided as in `kernspan check`, which allows more by default: 5 % of a step.
///
/// Explanations are ranked by the self time of spans on the critical path, on the host and on the GPU: where the host
/// waits for the GPU, the work it waits for counts. Spans are matched by the path of their names; a span that is called
/// from elsewhere has moved.
#[derive(clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// The run before and the run after, or all runs before
    #[arg(value_name = "BEFORE", required = true)]
    before: Vec<PathBuf>,
    /// All runs after
    #[arg(value_name = "AFTER", last = true)]
    after: Vec<PathBuf>,
    /// Search folders recursively
    #[arg(long, short)]
    recursive: bool,
    /// Read all runs of each folder [default: the newest]
    #[arg(long)]
    all: bool,
    /// Maximum rows of each table [default: 25; 10 for explanations and kernels]
    #[arg(long, short = 'n', value_name = "ROWS", value_parser = output::limit)]
    limit: Option<usize>,
    /// Print spans only
    #[arg(long)]
    spans: bool,
    /// Print kernels and copies only
    #[arg(long)]
    kernels: bool,
    /// Largest change of the step, in percent, that counts as no change
    #[arg(long, value_name = "PERCENT", default_value_t = 1.0)]
    threshold: f64,
    /// The counter that says how good the results are, with what is better unless its name says so: `valid/loss`,
    /// `perplexity=lower` [default: `loss` and `accuracy`, if both sides have them]
    #[arg(long, value_name = "COUNTER")]
    goal: Option<Goal>,
    /// Write an HTML page instead, with both sides in columns, tables and differential flame graphs; `-` for standard
    /// output
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    #[command(flatten)]
    style: Style,
}

const AFTER_HELP: &str = "\
Examples:
  kernspan diff before.kernspan after.kernspan
  kernspan diff runs/monday runs/tuesday
  kernspan diff runs/mnist                          the newest run and the one before it
  kernspan diff main/*.json -- branch/*.json
  kernspan diff --format md runs/monday runs/tuesday > change.md
  kernspan diff --html change.html runs/monday runs/tuesday
  kernspan diff --kernels --format csv before.json after.json
  kernspan diff --json before.json after.json | jq '.explanations[0]'

Exit status: 0 success, also if the sides differ; 1 a file could not be read; 2 usage error";

/// Two sides, and how they differ.
struct Diff {
    sides: [Side; 2],
    comparison: Comparison,
    /// The efficiency of both sides, in time and energy.
    efficiency: Vec<EfficiencyChange>,
}

/// One side of a comparison: statistics of its runs.
struct Side {
    /// The files and folders, as given.
    name: String,
    baseline: Baseline,
    kernels: KernelTimes,
    /// The counters of each run. Statistics written earlier have none.
    counters: Vec<RunCounters>,
    /// Whether all files could be read.
    is_complete: bool,
}

impl Args {
    pub(crate) fn run(&self) -> Result<(), Fault> {
        let sides = self.sides()?;
        sides.iter().try_for_each(|(_, inputs)| inputs.check_output(self.html.as_deref()))?;
        let sides = read_both(sides)?;
        let comparison = Comparison::of(&sides[0].baseline, &sides[1].baseline);
        let goals = self.goal.clone().map_or_else(|| Goal::usual().to_vec(), |goal| vec![goal]);
        let efficiency = efficiency::changes(sides.each_ref().map(|side| side.counters.as_slice()), &goals);
        let diff = Diff { sides, comparison, efficiency };
        match (&self.html, self.style.format()) {
            (Some(path), _) => {
                page::page(&diff, self.part()).write(path, &self.style.plain(&self.sections(&diff)))?;
            }
            (None, Format::Json) if !self.spans && !self.kernels => print_json(&diff.json())?,
            (None, _) => self.style.print(&self.sections(&diff))?,
        }
        if diff.sides.iter().all(|side| side.is_complete) { Ok(()) } else { Err(Fault::Incomplete) }
    }

    /// Returns the fraction of a step that counts as no change.
    fn part(&self) -> f64 {
        self.threshold / 100.0
    }

    /// Returns each side: its name, and its files and folders.
    fn sides(&self) -> Result<[(String, Inputs); 2], Fault> {
        let side = |files: &[PathBuf]| {
            let inputs = Inputs::of(files.to_vec(), self.recursive).all_runs(self.all);
            (inputs.names(), inputs)
        };
        match (self.before.as_slice(), self.after.as_slice()) {
            ([before], []) if before.is_dir() && !self.all => self.last_two(before),
            ([before, after], []) => Ok([before, after].map(|path| side(std::slice::from_ref(path)))),
            (_, []) => {
                let count = self.before.len();
                Err(Fault::Usage(format!("expected BEFORE and AFTER, got {count} (use `BEFORE… -- AFTER…`)")))
            }
            (before, after) => Ok([before, after].map(side)),
        }
    }

    /// Returns the newest run of a folder, and the one before it.
    fn last_two(&self, folder: &Path) -> Result<[(String, Inputs); 2], Fault> {
        let files = Inputs::of(vec![folder.to_owned()], self.recursive).all_runs(true).find()?.0;
        let runs = input::runs_of(files).0;
        let [.., before, after] = runs.as_slice() else {
            let (name, count) = (folder.display(), runs.len());
            return Err(Fault::Usage(format!(
                "expected BEFORE and AFTER, or a folder of several runs, but {name} holds {count}"
            )));
        };
        let (name, count) = (folder.display(), runs.len());
        if count > 2 {
            say(&format!("{name} holds {count} runs; comparing the last two"));
        }
        let side = |run: &FolderRun| {
            let inputs = Inputs::of(run.files().cloned().collect(), false);
            (format!("{name}: {}", run.described()), inputs)
        };
        Ok([before, after].map(side))
    }

    fn sections(&self, diff: &Diff) -> Vec<Section> {
        /// The number of rows in the tables of explanations, kernels and findings.
        const FEW: usize = 10;
        const SPANS: usize = 25;
        let rows = |few| self.style.rows(self.limit, few);
        let all = !self.spans && !self.kernels;
        let mut sections = Vec::new();
        if all {
            sections.push(summary::section(diff, self.part()));
            sections.push(tables::explanations(&diff.comparison, rows(FEW)));
        }
        if all || self.spans {
            sections.push(tables::spans(&diff.comparison, rows(SPANS)));
        }
        let kernels = tables::kernels(diff, rows(FEW));
        if self.kernels || (all && kernels.table.is_some()) {
            sections.push(kernels);
        }
        let findings = tables::findings(&diff.comparison, rows(FEW));
        if all && findings.table.is_some() {
            sections.push(findings);
        }
        sections
    }
}

impl Diff {
    /// Returns the kernels of both sides, those that change the time of a step the most first. There are none if a side
    /// has statistics only.
    fn kernels(&self) -> Vec<KernelTimeChange> {
        KernelTimes::compare(&self.sides[0].kernels, &self.sides[1].kernels)
    }

    fn json(&self) -> Value {
        let mut whole = json(&self.comparison);
        whole["explanations"] = self.comparison.explanations().iter().map(json).collect();
        whole["efficiency"] = self.efficiency.iter().map(json).collect();
        whole["kernel_times"] = self.kernels().iter().map(json).collect();
        whole
    }
}

impl Side {
    fn read(name: String, inputs: &Inputs, progress: &Progress) -> Result<Self, Fault> {
        let runs = Runs::read_with(inputs, None, progress)?;
        let (kernels, is_complete) = (KernelTimes::of(runs.traces()), runs.end().is_ok());
        let counters = RunCounters::of_runs(runs.traces());
        Ok(Self { name, kernels, counters, is_complete, baseline: runs.baseline })
    }

    /// Returns the mean of a count over the steps of all runs.
    fn count(&self, kind: CountKind) -> f64 {
        let ranges = || self.baseline.runs.iter().map(|run| run.count(kind));
        let steps: f64 = ranges().map(|range| range.steps as f64).sum();
        let sum: f64 = ranges().map(|range| range.sum as f64).sum();
        if steps > 0.0 { sum / steps } else { 0.0 }
    }
}

/// Reads both sides concurrently.
fn read_both([before, after]: [(String, Inputs); 2]) -> Result<[Side; 2], Fault> {
    let progress = Progress::new();
    let (before, after) = thread::scope(|scope| {
        let first = scope.spawn(|| Side::read(before.0, &before.1, &progress));
        let after = Side::read(after.0, &after.1, &progress);
        (first.join(), after)
    });
    let panicked = |_| Fault::Failed("cannot read the runs before".to_owned());
    Ok([before.map_err(panicked)??, after?])
}
