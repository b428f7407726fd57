//! The command-line tool of kernspan: prints tables from traces, reports what makes steps slow, compares runs, and
//! converts traces.

mod achieved;
mod advise;
mod baseline;
mod breakdown;
mod calls;
mod check;
mod config;
mod convert;
mod counters;
mod diff;
mod explain;
mod fault;
mod file;
mod flame;
mod github;
mod hang;
mod html;
mod input;
mod json;
mod launches;
#[cfg(unix)]
mod live;
mod memory;
mod merge;
mod output;
mod progress;
mod ranks;
mod report;
mod run;
mod runs;
mod sort;
mod sql;
mod steps;
mod sweep;
mod tables;
mod top;
mod torch;

use clap::{CommandFactory, Parser, Subcommand};
use fault::Fault;
use std::{
    io::{self, Write},
    process::ExitCode,
};

/// Reads traces of training runs and shows where the time went
///
/// Traces are written by kernspan (Chrome JSON, recorded windows) or by PyTorch's profiler (JSON), plain or compressed.
/// Commands take files, folders of files, and `-` for standard input.
#[derive(Parser)]
#[command(name = "kernspan", version, after_help = AFTER_HELP, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

const AFTER_HELP: &str = "\
Examples:
  kernspan report runs/mnist                           tables of where the time went
  kernspan report --html mnist.html runs/mnist         an HTML page
  kernspan advise runs/mnist                           what makes steps slow
  kernspan explain host-sync                           more about a finding
  kernspan report --torch trace.pt.trace.json.gz       the table that PyTorch prints
  kernspan steps runs/mnist                            durations and GPU use of each step
  kernspan memory runs/mnist                           what GPU memory is used for at its peak
  kernspan ranks runs/ddp                              which rank the others wait for
  kernspan ranks hang runs/ddp                         which rank is missing from a collective
  kernspan tables runs/ddp --out tables                Parquet tables, for SQL and data frames
  kernspan baseline runs/mnist -o baseline.json        statistics to compare later runs with
  kernspan check --baseline baseline.json runs/mnist   regression check for CI
  kernspan convert window.kernspan trace.pftrace       for ui.perfetto.dev
  kernspan flame --gpu trace.json -o gpu.svg           a flame graph of GPU time
  kernspan diff runs/monday runs/tuesday               differences between two runs
  kernspan sweep --var BATCH=16,32,64 -- ./train       which batch size is worth it
  kernspan run --schedule steps=100..110 -- ./train    record a program with other settings
  kernspan ps                                          running programs that can be asked
  kernspan top --pid 4711                              watch a running program
  kernspan record --pid 4711 --steps 10                a window of a running program

Exit status:
  0  success
  1  a file could not be read or written, nothing was found, or a run is worse than its baseline
  2  usage error, such as an unknown option or an unsupported file ending
  3  a check is inconclusive, with --fail-if-inconclusive
kernspan run has the exit status of the program";

#[derive(Subcommand)]
enum Command {
    Report(report::Args),
    Advise(advise::Args),
    Explain(explain::Args),
    Steps(steps::Args),
    Memory(memory::Args),
    Ranks(ranks::Args),
    Tables(tables::Args),
    Sql(sql::Args),
    Baseline(baseline::Args),
    Check(check::Args),
    Top(top::Args),
    Convert(convert::Args),
    Merge(merge::Args),
    Flame(flame::Args),
    Diff(diff::Args),
    Sweep(sweep::Args),
    Run(run::Args),
    Config(config::Args),
    #[cfg(unix)]
    Ps(live::PsArgs),
    #[cfg(unix)]
    Status(live::StatusArgs),
    #[cfg(unix)]
    Record(live::RecordArgs),
    #[cfg(unix)]
    Snapshot(live::SnapshotArgs),
    #[cfg(unix)]
    Schedule(live::ScheduleArgs),
    Completions(Completions),
}

/// Print a shell completion script
#[derive(clap::Args)]
#[command(after_help = "Example:\n  kernspan completions bash > ~/.local/share/bash-completion/completions/kernspan")]
struct Completions {
    /// The shell
    shell: clap_complete::Shell,
}

impl Completions {
    fn run(&self) -> Result<(), Fault> {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut Cli::command(), "kernspan", &mut script);
        Ok(io::stdout().write_all(&script)?)
    }
}

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Report(args) => args.run(),
        Command::Advise(args) => args.run(),
        Command::Explain(args) => args.run(),
        Command::Steps(args) => args.run(),
        Command::Memory(args) => args.run(),
        Command::Ranks(args) => args.run(),
        Command::Tables(args) => args.run(),
        Command::Sql(args) => args.run(),
        Command::Baseline(args) => args.run(),
        Command::Check(args) => args.run(),
        Command::Top(args) => args.run(),
        Command::Convert(args) => args.run(),
        Command::Merge(args) => args.run(),
        Command::Flame(args) => args.run(),
        Command::Diff(args) => args.run(),
        Command::Sweep(args) => args.run(),
        Command::Run(args) => args.run(),
        Command::Config(args) => args.run(),
        #[cfg(unix)]
        Command::Ps(args) => args.run(),
        #[cfg(unix)]
        Command::Status(args) => args.run(),
        #[cfg(unix)]
        Command::Record(args) => args.run(),
        #[cfg(unix)]
        Command::Snapshot(args) => args.run(),
        #[cfg(unix)]
        Command::Schedule(args) => args.run(),
        Command::Completions(args) => args.run(),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(fault) => fault.report(),
    }
}
