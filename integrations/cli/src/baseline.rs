//! The command `baseline`: statistics of runs, to compare later ones with.

use crate::{
    fault::{Fault, say},
    input::Inputs,
    runs::Runs,
};
use std::{
    fs,
    io::{self, Write},
    path::PathBuf,
};

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
        let runs = Runs::read(&self.inputs, self.machine.as_deref())?;
        if runs.baseline.steps() == 0 {
            return Err(Fault::Failed(
                "no whole step was recorded, so that there is nothing to compare with".to_owned(),
            ));
        }
        let json = runs.baseline.to_json() + "\n";
        match &self.output {
            Some(path) => {
                let fault = |error| Fault::Failed(format!("{}: cannot be written: {error}", path.display()));
                fs::write(path, &json).map_err(fault)?;
                let (count, steps) = (runs.baseline.runs.len(), runs.baseline.steps());
                let (runs, steps_noun) =
                    (if count == 1 { "run" } else { "runs" }, if steps == 1 { "step" } else { "steps" });
                say(&format!("wrote {}: {count} {runs}, {steps} {steps_noun}", path.display()));
            }
            None => io::stdout().write_all(json.as_bytes())?,
        }
        runs.end()
    }
}
