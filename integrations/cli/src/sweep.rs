//! The command `sweep`: runs one program with several values of a setting, and compares the runs in one table.

mod choice;
mod page;
mod program;
mod table;
mod trial;

use self::{
    choice::Choice,
    program::{Program, Recorded, Setting},
    trial::{Items, Trial},
};
use crate::{fault::Fault, input::Inputs, output::Style};
use std::{ffi::OsString, path::PathBuf};

/// Run a program with several values of one setting, and print which value is worth it
///
/// The program runs once per value, which it gets as an environment variable and in place of `{}` in its arguments. The
/// traces of a run are the files that appear or change in a folder (--traces) while it runs. The program's output goes
/// to standard error. A run that fails or leaves no trace gets a row with the reason.
///
/// With --of, nothing is run: each argument is a file or folder of an earlier run.
///
/// The best value is the first whose throughput is within 5 % (--worth) of the highest. Throughput is the number of
/// items per step divided by the median step duration. Numeric values are sorted.
#[derive(clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// The environment variable and its values
    #[arg(long, value_name = "NAME=VALUE,VALUE…", required_unless_present = "of")]
    var: Option<Setting>,
    /// The folder to which the program writes its traces; `{}` stands for the value
    #[arg(long, value_name = "FOLDER", default_value = "runs")]
    traces: String,
    /// Copy the traces of each run to its own folder inside this one
    #[arg(long, short, value_name = "FOLDER", conflicts_with = "of")]
    output: Option<PathBuf>,
    /// The setting that differs between earlier runs
    #[arg(long, value_name = "NAME", conflicts_with = "var", requires = "runs")]
    of: Option<String>,
    /// Items per step: `{}` for the value, a number, or their product, such as `{}*8` [default: `{}` if the name of the
    /// setting contains "batch"]
    #[arg(long, value_name = "ITEMS")]
    items: Option<Items>,
    /// Smallest gain in throughput, in percent, that makes a value worth it
    #[arg(long, value_name = "PERCENT", default_value_t = Choice::WORTH)]
    worth: f64,
    /// Earlier runs, for --of: files or folders whose names end with the value, or VALUE=FOLDER
    #[arg(value_name = "RUN", requires = "of", conflicts_with = "program")]
    runs: Vec<PathBuf>,
    /// Write an HTML page instead, with the table and charts of throughput, step and memory; `-` for standard output
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    #[command(flatten)]
    style: Style,
    /// The program and its arguments
    #[arg(last = true, value_name = "PROGRAM", required_unless_present = "of")]
    program: Vec<OsString>,
}

const AFTER_HELP: &str = "\
Examples:
  kernspan sweep --var BATCH_SIZE=16,32,64,128 -- target/release/train
  kernspan sweep --var BATCH_SIZE=16,32 --traces logs -o sweep -- ./train --epochs 1
  kernspan sweep --var batch=16,32 --traces logs/{} -- ./train --batch-size {} --log-dir logs/{}
  kernspan sweep --var WORKERS=0,2,4 --items 64 -- ./train
  kernspan sweep --of BATCH_SIZE sweep/*
  kernspan sweep --html sweep.html --of BATCH_SIZE sweep/*
  kernspan sweep --of BATCH_SIZE 16=runs/first 32=runs/second

Exit status: 0 success; 1 a run failed or left no trace; 2 usage error";

impl Args {
    pub(crate) fn run(&self) -> Result<(), Fault> {
        let (name, mut trials) = match (&self.var, &self.of) {
            (Some(setting), _) => {
                let traces = self.traces.clone();
                let program = Program { command: &self.program, traces, output: self.output.as_deref() };
                (&setting.name, program.run_all(setting)?)
            }
            (None, Some(name)) => {
                let recorded = Recorded { name, runs: &self.runs };
                Inputs::of(recorded.paths(), true).check_output(self.html.as_deref())?;
                (name, recorded.read_all())
            }
            (None, None) => return Err(Fault::Usage("expected --var or --of".to_owned())),
        };
        trial::sort(&mut trials);
        let by_name = || name.to_lowercase().contains("batch").then(Items::value);
        let items = self.items.clone().or_else(by_name);
        trials.iter_mut().for_each(|trial| trial.set_items(items.as_ref()));
        let choice = Choice::of(&trials, self.worth);
        let sections = [table::section(name, &trials, items.is_some(), &choice)];
        match &self.html {
            Some(path) => {
                page::page(name, &trials, items.is_some(), &choice).write(path, &self.style.plain(&sections))?;
            }
            None => self.style.print(&sections)?,
        }
        if trials.iter().all(Trial::is_measured) { Ok(()) } else { Err(Fault::Incomplete) }
    }
}
