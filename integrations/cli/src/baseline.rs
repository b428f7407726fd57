//! The command `baseline`: statistics of runs, for comparison with later runs.

use crate::{fault::Fault, file, input::Inputs, runs::Runs};
use std::path::{Path, PathBuf};

/// Write statistics of runs, to check later runs against
///
/// The output is a small JSON file with the steps, the time of each span in up to 128 steps of each run, launches,
/// copies, allocations, kernels, memory and findings. More runs make it more precise: five short runs are better than
/// one long run. Existing baselines can be given as well and are merged.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  kernspan baseline runs/mnist -o baseline.json
  kernspan baseline run1 run2 run3 --machine ci-large -o baseline.json
  kernspan check --baseline baseline.json runs/mnist

Exit status: 0 success; 1 a file could not be read or written, or no whole step was recorded; 2 usage error")]
pub(crate) struct Args {
    #[command(flatten)]
    inputs: Inputs,
    /// Output file [default: standard output]
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Kind of machine, if host names differ between runs: times are compared only between machines of the same kind
    #[arg(long, value_name = "KIND")]
    machine: Option<String>,
}

impl Args {
    pub(crate) fn run(&self) -> Result<(), Fault> {
        self.inputs.check_output(self.output.as_deref())?;
        let runs = Runs::read(&self.inputs, self.machine.as_deref())?;
        if runs.baseline.steps() == 0 {
            return Err(Fault::Failed("no whole step was recorded, so there is nothing to compare with".to_owned()));
        }
        let json = runs.baseline.to_json() + "\n";
        let (count, steps) = (runs.baseline.runs.len(), runs.baseline.steps());
        let (runs_noun, steps_noun) =
            (if count == 1 { "run" } else { "runs" }, if steps == 1 { "step" } else { "steps" });
        let path = self.output.as_deref().unwrap_or(Path::new("-"));
        let note = format!(": {count} {runs_noun}, {steps} {steps_noun}");
        file::write_with_note(path, &note, |out| out.write_all(json.as_bytes()))?;
        runs.end()
    }
}
