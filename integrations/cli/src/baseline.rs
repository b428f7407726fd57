//! The command `baseline`: statistics of runs, to compare later ones with.

use crate::{fault::Fault, file, input::Inputs, runs::Runs};
use std::path::{Path, PathBuf};

/// Write statistics of runs, to check later runs against
///
/// The file is small JSON: the steps, the time of each span in each of up to 128 steps of a run, launches, copies,
/// allocations, kernels, memory and findings. Several runs make it more exact: five short ones tell more than a long
/// one. Files of this kind can be given, too, and are merged.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  kernspan baseline runs/mnist -o baseline.json
  kernspan baseline run1 run2 run3 --machine ci-large -o baseline.json
  kernspan check --baseline baseline.json runs/mnist

Exit status: 0 fine; 1 a file could not be read or written, or no whole step was recorded; 2 wrong usage")]
pub(crate) struct Args {
    #[command(flatten)]
    inputs: Inputs,
    /// The file to write [default: standard output]
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
    /// The kind of machine, where hosts have another name in each run: times are compared if the kinds are the same
    #[arg(long, value_name = "KIND")]
    machine: Option<String>,
}

impl Args {
    pub(crate) fn run(&self) -> Result<(), Fault> {
        self.inputs.check_output(self.output.as_deref())?;
        let runs = Runs::read(&self.inputs, self.machine.as_deref())?;
        if runs.baseline.steps() == 0 {
            return Err(Fault::Failed(
                "no whole step was recorded, so that there is nothing to compare with".to_owned(),
            ));
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
