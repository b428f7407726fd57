//! The command `sweep`: runs one program with several values of a setting, and compares the runs in one table.

mod choice;
mod page;
mod pareto;
mod program;
mod table;
mod trial;

use self::{
    choice::Choice,
    pareto::Pareto,
    program::{Program, Recorded, Setting},
    trial::{Items, Trial},
};
use crate::{
    achieved::{Goal, Price},
    fault::Fault,
    input::Inputs,
    output::Style,
};
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
///
/// Values marked `*` are not dominated: no other value is as good in throughput, GPU memory, energy and the goal, and
/// better in one of them. What some run has not recorded is left out.
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
    /// The counter that says how good the results are, with what is better unless its name says so: `loss`,
    /// `perplexity=lower`, `f1=higher` [default: `loss` or `accuracy`, if recorded]
    #[arg(long, value_name = "COUNTER")]
    goal: Option<Goal>,
    /// What an hour or a kilowatt-hour costs: `2.5/h`, `0.31/kWh`
    #[arg(long, value_name = "PRICE")]
    price: Option<Price>,
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
  kernspan sweep --goal perplexity=lower --price 2.5/h --of LEARNING_RATE sweep/*
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
        let goal = self.set_goal(&mut trials);
        let unit = if items.is_some() { "items/s" } else { "steps/s" };
        let pareto = Pareto::of(&trials, unit, goal.as_ref());
        let choice = Choice::of(&trials, self.worth);
        let missing = self.missing(&trials);
        let compared = Compared { name, trials, unit, items_known: items.is_some(), choice, pareto, goal, missing };
        let sections = [table::section(&compared)];
        match &self.html {
            Some(path) => page::page(&compared).write(path, &self.style.plain(&sections))?,
            None => self.style.print(&sections)?,
        }
        if compared.trials.iter().all(Trial::is_measured) { Ok(()) } else { Err(Fault::Incomplete) }
    }

    /// Sets what each run achieved of the goal, and returns the goal if a run has recorded it.
    fn set_goal(&self, trials: &mut [Trial]) -> Option<Goal> {
        let goals = self.goal.clone().map_or_else(|| Goal::usual().to_vec(), |goal| vec![goal]);
        let mut set = |goal: Option<&Goal>| {
            trials.iter_mut().for_each(|trial| trial.set_goal(goal, self.price));
            trials.iter().any(|trial| trial.achieved.is_some())
        };
        let found = goals.into_iter().find(|goal| set(Some(goal)));
        set(found.as_ref());
        found
    }

    /// Describes what was asked for and not recorded by any run.
    fn missing(&self, trials: &[Trial]) -> Vec<String> {
        let mut missing = Vec::new();
        if let Some(goal) = self.goal.as_ref().filter(|_| trials.iter().all(|trial| trial.achieved.is_none())) {
            missing.push(format!("no run has recorded the counter {}", goal.counter));
        }
        if self.price.is_some() && trials.iter().all(|trial| trial.per_price().is_none()) {
            missing.push("the price is not known: no run has recorded its power, by the feature vitals".to_owned());
        }
        missing
    }
}

/// The runs of a sweep, and what comparing them says.
struct Compared<'a> {
    /// The name of the setting.
    name: &'a str,
    trials: Vec<Trial>,
    /// The unit of throughput.
    unit: &'static str,
    items_known: bool,
    choice: Choice,
    pareto: Pareto,
    /// The goal, if a run has recorded it.
    goal: Option<Goal>,
    /// What was asked for and not recorded, a sentence each.
    missing: Vec<String>,
}
