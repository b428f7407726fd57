//! The command `check`: whether runs are worse than their baseline, for CI.

use crate::{
    fault::Fault,
    file, github,
    input::{Inputs, cannot_read},
    json::json,
    runs::{Runs, read_baseline},
};
use kernspan_check::{Check, CheckVerdict, Thresholds};
use std::{
    fs,
    io::{self, Write},
    path::PathBuf,
};

/// Compare runs with a baseline, and fail if they are worse
///
/// Launches, grids, copies, bytes, allocations and floating-point operations are compared exactly. Times are means over
/// the typical steps of all runs, with a 99 % confidence interval. A factor that slows down all spans alike, such as a
/// busy machine, is removed first. A time is worse if it is longer by more than the threshold, and certainly longer: 0
/// is not in its interval; or, with three or more runs on each side, each run takes longer than each before, and the
/// time half as long again; or a step takes five times as long. If a time may be worse, the check is inconclusive: it
/// reports how many more steps or runs would settle it, and fails only with --fail-if-inconclusive. `kernspan diff`
/// decides in the same way.
#[derive(clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    #[command(flatten)]
    inputs: Inputs,
    /// The file written by the command `baseline`
    #[arg(long, value_name = "FILE")]
    baseline: PathBuf,
    /// An allowed change: METRIC=VALUE, or METRIC@SPAN=VALUE for spans whose name or path matches SPAN (* is any text)
    #[arg(long = "threshold", short, value_name = "METRIC=VALUE")]
    thresholds: Vec<String>,
    /// A file of allowed changes: a JSON object such as {"step": "3%", "kernels@*attention*": 2}
    #[arg(long = "thresholds", value_name = "FILE")]
    file: Option<PathBuf>,
    /// Kind of machine of these runs: times are compared if the baseline has the same kind
    #[arg(long, value_name = "KIND")]
    machine: Option<String>,
    /// Exit with status 3 if it is unclear whether the runs are worse
    #[arg(long)]
    fail_if_inconclusive: bool,
    /// Print Markdown for a comment, add it to $GITHUB_STEP_SUMMARY, and print annotations
    #[arg(long, conflicts_with_all = ["format", "json"])]
    github: bool,
    /// Output file [default: standard output]; annotations are always printed on standard output
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Output format
    #[arg(long, value_enum, default_value_t)]
    format: Format,
    /// Same as `--format json`
    #[arg(long, conflicts_with = "format")]
    json: bool,
}

const AFTER_HELP: &str = "\
Metrics, with their thresholds:
  step 5%, span 1%, gpu 1% (time of a span, in percent of the step), memory 1%, drift off (everything takes longer)
  kernels, copies, copied_bytes, fills, allocations, allocated_bytes, flops, grid 0 (compared exactly), calls off
  heap_allocations 0, heap_bytes 1% (of a typical step, where the heap was recorded on both sides)

Examples:
  kernspan check --baseline baseline.json runs/mnist
  kernspan check --baseline baseline.json run1 run2 run3 -t step=3% -t 'span@*attention*=off'
  kernspan check --baseline baseline.json --github -o comment.md runs/mnist
  kernspan check --baseline baseline.json --fail-if-inconclusive runs/mnist

Exit status: 0 not worse, or inconclusive; 1 worse, or a file could not be read; 2 usage error;
3 inconclusive, with --fail-if-inconclusive";

/// The output format.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    /// Lines for a terminal
    #[default]
    Text,
    /// One object with everything that was compared; times are in nanoseconds
    Json,
    /// Markdown for a comment
    Md,
}

impl Args {
    pub(crate) fn run(&self) -> Result<(), Fault> {
        let thresholds = self.thresholds()?;
        let output = self.output.as_deref();
        self.inputs.check_output(output)?;
        Inputs::of(vec![self.baseline.clone()], false).check_output(output)?;
        let baseline = read_baseline(&self.baseline)?;
        let runs = Runs::read(&self.inputs, self.machine.as_deref())?;
        let check = Check::of(&runs.baseline, &baseline, &thresholds);
        let format = match self.format {
            _ if self.json => Format::Json,
            _ if self.github => Format::Md,
            format => format,
        };
        let text = match format {
            Format::Text => format!("{check}{}", self.exit_status(&check)),
            Format::Json => {
                let mut whole = json(&check);
                whole["verdict"] = json(&check.verdict());
                format!("{whole:#}\n")
            }
            Format::Md => github::markdown(&check),
        };
        match &self.output {
            Some(path) => file::write(path, |out| out.write_all(text.as_bytes()))?,
            None => io::stdout().write_all(text.as_bytes())?,
        }
        if self.github {
            github::add_to_summary(&text)?;
            io::stdout().write_all(github::annotations(&check, self.fail_if_inconclusive).as_bytes())?;
        }
        if runs.baseline.steps() == 0 {
            return Err(Fault::Failed("no whole step was recorded".to_owned()));
        }
        match check.verdict() {
            CheckVerdict::Worse => Err(Fault::Worse),
            CheckVerdict::Inconclusive if self.fail_if_inconclusive => runs.end().and(Err(Fault::Inconclusive)),
            _ => runs.end(),
        }
    }

    /// Says what an inconclusive check exits with.
    fn exit_status(&self, check: &Check) -> &'static str {
        match (check.verdict(), self.fail_if_inconclusive) {
            (CheckVerdict::Inconclusive, false) => {
                "exit status 0: nothing is known to be worse (3 with --fail-if-inconclusive)\n"
            }
            (CheckVerdict::Inconclusive, true) => "exit status 3: something may be worse (--fail-if-inconclusive)\n",
            _ => "",
        }
    }

    fn thresholds(&self) -> Result<Thresholds, Fault> {
        let mut thresholds = Thresholds::default();
        if let Some(file) = &self.file {
            let json = fs::read(file).map_err(|error| Fault::Failed(cannot_read(file, &error)))?;
            let wrong = |error| Fault::Usage(format!("cannot read {}: {error}", file.display()));
            thresholds = thresholds.with_json(&json).map_err(wrong)?;
        }
        for text in &self.thresholds {
            thresholds = thresholds.with(text).map_err(|error| Fault::Usage(error.to_string()))?;
        }
        Ok(thresholds)
    }
}
