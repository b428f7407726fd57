//! The commands that ask running programs: `ps`, `status`, `snapshot` and `schedule`; `record` is in a file of its own.

mod record;

pub(crate) use self::record::Args as RecordArgs;

use crate::{
    fault::{Fault, say},
    json,
    output::{Section, Style},
};
use kernspan::{
    control::{Client, ClientError, listening, protocol::RunStatus},
    report::Table,
    units,
};
use std::{
    io::{self, Write},
    path::PathBuf,
    time::Duration,
};

/// List the running programs that can be asked
///
/// A program can be asked if its profiler is built with `.listen(Listen::default())`. Only programs of the same user on
/// the same machine are listed.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  kernspan ps
  kernspan ps --json

Exit status: 0 success, even if there are none")]
pub(crate) struct PsArgs {
    #[command(flatten)]
    style: Style,
}

impl PsArgs {
    pub(crate) fn run(&self) -> Result<(), Fault> {
        let programs: Vec<_> = answering().into_iter().map(|(_, status)| status).collect();
        let section = Section {
            title: "Programs".to_owned(),
            key: "programs",
            table: (!programs.is_empty()).then(|| table(&programs)),
            empty: "no running program listens: build its profiler with `.listen(Listen::default())`",
            rows: programs.iter().map(json::json).collect(),
            ..Section::default()
        };
        self.style.print(&[section])
    }
}

fn table(programs: &[RunStatus]) -> Table {
    let mut table = Table::default();
    table.number("PID", programs, |program| program.pid.to_string());
    table.text("Program", programs, |program| program.program.clone());
    table.number("Rank", programs, |program| {
        (program.world_size > 1).then(|| format!("{}/{}", program.rank, program.world_size))
    });
    table.number("Step", programs, |program| program.has_steps.then(|| program.step.to_string()));
    table.number("Steps/s", programs, |program| program.steps_per_second.map(units::rate));
    table.text("Phase", programs, phase);
    table.text("Run", programs, |program| program.run.clone().unwrap_or_default());
    table
}

/// The phase in words, with what is pending.
fn phase(program: &RunStatus) -> String {
    let phase = match (program.recording, program.phase.as_str()) {
        _ if program.ended => "ended",
        (true, _) => "recording",
        (false, "warmup") => "warming up",
        (false, _) => "waiting",
    };
    match program.pending {
        0 => phase.to_owned(),
        1 => format!("{phase}, writing a window"),
        windows => format!("{phase}, writing {windows} windows"),
    }
}

/// Connects to all programs, in the order of their ids, and returns the state of each. One that does not answer is
/// reported.
fn answering() -> Vec<(Client, RunStatus)> {
    let mut found = Vec::new();
    for program in listening() {
        let asked = Client::connect(&program.path).and_then(|mut client| {
            let status = client.status()?;
            Ok((client, status))
        });
        match asked {
            Ok(answer) => found.push(answer),
            // It has ended in the meantime.
            Err(ClientError::Closed) => {}
            Err(ClientError::Io(error))
                if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused) => {}
            Err(error) => say(&format!("process {}: {error}", program.pid)),
        }
    }
    found
}

/// Connects to a program.
fn connect(pid: u32) -> Result<Client, Fault> {
    Client::of_process(pid).map_err(|error| failed(pid, &error))
}

fn failed(pid: u32, error: &ClientError) -> Fault {
    match error {
        ClientError::NoProcess(_) | ClientError::NotListening(_) | ClientError::OtherUser { .. } => {
            Fault::Failed(error.to_string())
        }
        _ => Fault::Failed(format!("process {pid}: {error}")),
    }
}

/// Print the state of a running program
#[derive(clap::Args)]
#[command(after_help = "\
Example:
  kernspan status --pid 4711

Exit status: 0 success; 1 the program cannot be asked; 2 usage error")]
pub(crate) struct StatusArgs {
    /// Process id, as `kernspan ps` prints it
    #[arg(long)]
    pid: u32,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl StatusArgs {
    pub(crate) fn run(&self) -> Result<(), Fault> {
        let status = connect(self.pid)?.status().map_err(|error| failed(self.pid, &error))?;
        if self.json {
            return crate::output::print_json(&json::json(&status));
        }
        Ok(write!(io::stdout(), "{}", describe(&status))?)
    }
}

/// The state of a run, a line for each fact.
fn describe(status: &RunStatus) -> String {
    let mut lines = vec![("program", format!("{} (process {} on {})", status.program, status.pid, status.host))];
    if status.world_size > 1 {
        lines.push(("rank", format!("{} of {}", status.rank, status.world_size)));
    }
    lines.extend(status.run.clone().map(|run| ("run", run)));
    if status.has_steps {
        let rate = status.steps_per_second.map(|rate| format!(", {} steps/s", units::rate(rate)));
        lines.push(("step", format!("{}{}", status.step, rate.unwrap_or_default())));
    }
    lines.extend(status.step_time_ns.map(|nanos| ("step time", units::time(Duration::from_nanos(nanos)))));
    lines.push(("phase", phase(status)));
    lines.push(("schedule", status.schedule.clone()));
    let (closed, requests) = (status.windows, status.requests);
    lines.push(("windows", format!("{closed} recorded, {} being written, {requests} requested", status.pending)));
    lines.push(("gpu", status.gpu.clone()));
    lines.push(("kernspan", status.version.clone()));
    lines.iter().map(|(name, value)| format!("{name:<10}{value}\n")).collect()
}

/// Print who holds the GPU memory of a running program
///
/// The program must follow allocations: `ProfilerBuilder::memory_snapshots`.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  kernspan snapshot --pid 4711
  kernspan snapshot --pid 4711 --out .       also a file for pytorch.org/memory_viz

Exit status: 0 success; 1 the program cannot be asked, or does not follow allocations; 2 usage error")]
pub(crate) struct SnapshotArgs {
    /// Process id, as `kernspan ps` prints it
    #[arg(long)]
    pid: u32,
    /// Folder for a file that PyTorch's memory viewer reads
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl SnapshotArgs {
    pub(crate) fn run(&self) -> Result<(), Fault> {
        let out = self.out.as_deref().map(record::absolute).transpose()?;
        let snapshot = connect(self.pid)?.snapshot(out).map_err(|error| failed(self.pid, &error))?;
        if self.json {
            return crate::output::print_json(&json::json(&snapshot));
        }
        write!(io::stdout(), "{}", snapshot.text)?;
        if let Some(file) = &snapshot.file {
            say(&format!("wrote {}", file.display()));
        }
        Ok(())
    }
}

/// Change when a running program records
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  kernspan schedule set --pid 4711 wait=5,warmup=1,active=3,repeat=2     from the next step on
  kernspan schedule set --pid 4711 steps=40000..40010
  kernspan schedule set --pid 4711 manual                                only on demand

Exit status: 0 success; 1 the program cannot be asked, or the schedule is invalid; 2 usage error")]
pub(crate) struct ScheduleArgs {
    #[command(subcommand)]
    command: ScheduleCommand,
}

#[derive(clap::Subcommand)]
enum ScheduleCommand {
    /// Replace the schedule
    Set {
        /// Process id, as `kernspan ps` prints it
        #[arg(long)]
        pid: u32,
        /// The schedule: wait=5,warmup=1,active=3,repeat=2 or steps=100..110 or always or manual
        #[arg(value_name = "SCHEDULE")]
        schedule: String,
    },
}

impl ScheduleArgs {
    pub(crate) fn run(&self) -> Result<(), Fault> {
        let ScheduleCommand::Set { pid, schedule } = &self.command;
        let words = connect(*pid)?.set_schedule(schedule).map_err(|error| failed(*pid, &error))?;
        Ok(writeln!(io::stdout(), "process {pid} records {words}")?)
    }
}
