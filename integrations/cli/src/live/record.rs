//! The command `record`: asks running programs for a window.

use super::{answering, connect, failed};
use crate::{
    fault::{Fault, say},
    json,
    output::print_json,
};
use kernspan::{
    control::{
        Client, ClientError, StepCondition,
        protocol::{Record, RecordProgress, RecordState, RecordedWindow, RunStatus},
    },
    units,
};
use serde_json::{Value, json};
use std::{
    io::{self, Write},
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

/// Record a window of a running program, and report what makes its steps slow
///
/// The window begins with the next step, has only whole steps, and is written into a folder as a Chrome trace, a
/// Perfetto trace and an HTML page. All ranks of a run are asked for the same steps. If this command is interrupted
/// before the window begins, the request is withdrawn.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  kernspan record --pid 4711                                   the next 10 steps
  kernspan record --pid 4711 --duration 5s --out runs/slow
  kernspan record --pid 4711 --steps 3 --when 'step_time > 2*median'
  kernspan record --pid 4711 --recent                          what the flight recorder has kept
  kernspan record --run 42 --steps 5 --at-step 40000           all ranks of a run on this machine

Exit status: 0 success; 1 a program cannot be asked, or a window was not recorded; 2 usage error")]
pub(crate) struct Args {
    #[command(flatten)]
    target: Target,
    /// Number of steps [default: 10]
    #[arg(long, value_name = "N", conflicts_with = "duration", value_parser = clap::value_parser!(u64).range(1..))]
    steps: Option<u64>,
    /// Time, such as 5s or 500ms: up to the end of the step in which it has passed. Several ranks are asked for the
    /// steps that they take in that time
    #[arg(long, value_name = "TIME", value_parser = duration)]
    duration: Option<Duration>,
    /// Write what the program's flight recorder has kept, instead of steps to come
    #[arg(long, conflicts_with_all = ["steps", "duration", "at_step", "when"])]
    recent: bool,
    /// First step, counted from 0; it must not have begun
    #[arg(long, value_name = "N", conflicts_with = "when")]
    at_step: Option<u64>,
    /// Wait for a slow step: 'step_time > 2*median' or 'step_time > 50ms'. It is written with those before it if the
    /// program has a flight recorder; otherwise it is over, and the steps after it are recorded
    #[arg(long, value_name = "CONDITION", value_parser = condition)]
    when: Option<StepCondition>,
    /// Folder for the files [default: a new one in the current folder, named after the program]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Pass the window to the exporters of the program instead of writing it into a folder
    #[arg(long, conflicts_with = "out")]
    exporters: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// The programs that are asked.
#[derive(clap::Args)]
#[group(required = true, multiple = false)]
struct Target {
    /// Process id, as `kernspan ps` prints it
    #[arg(long)]
    pid: Option<u32>,
    /// All programs of this user that listen
    #[arg(long)]
    all: bool,
    /// All ranks of a run, by the name that the launcher gave it
    #[arg(long, value_name = "ID")]
    run: Option<String>,
}

fn duration(text: &str) -> Result<Duration, String> {
    let least = Duration::from_millis(1);
    let time = units::parse_duration(text).filter(|time| *time >= least);
    time.ok_or_else(|| "expected a time of at least 1ms, such as 5s or 500ms".to_owned())
}

fn condition(text: &str) -> Result<StepCondition, String> {
    text.parse()
}

/// Returns a path that a program in another folder understands.
pub(super) fn absolute(path: &Path) -> Result<PathBuf, Fault> {
    std::path::absolute(path).map_err(|error| Fault::Failed(format!("cannot use {}: {error}", path.display())))
}

impl Args {
    /// The number of steps that are recorded unless the command line says otherwise.
    const STEPS: u64 = 10;

    pub(crate) fn run(&self) -> Result<(), Fault> {
        let programs = self.target.find()?;
        let steps = match self.duration {
            _ if self.recent => None,
            None => Some(self.steps.unwrap_or(Self::STEPS)),
            Some(time) => common_steps(&programs, time),
        };
        let duration = self.duration.filter(|_| steps.is_none());
        let record = Record {
            steps,
            duration_ms: duration.map(|time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX)),
            recent: self.recent,
            at_step: self.at_step.or_else(|| common_step(&programs).filter(|_| self.when.is_none() && !self.recent)),
            when: self.when.map(|condition| condition.to_string()),
            out: if self.exporters { None } else { Some(self.folder(&programs)?) },
        };
        let several = programs.len() > 1;
        let ask = |(mut client, status): (Client, RunStatus)| {
            let record = record.clone();
            let name = if several { format!("rank {} ({}): ", status.rank, status.pid) } else { String::new() };
            let asking = move || {
                let mut last = None;
                let recorded = client.record(&record, |progress| tell(&name, &record, progress, &mut last));
                (status, recorded)
            };
            thread::spawn(asking)
        };
        let asked: Vec<_> = programs.into_iter().map(ask).collect();
        let ended: Vec<_> = asked.into_iter().filter_map(|asked| asked.join().ok()).collect();
        for (status, problem) in ended.iter().filter_map(|(status, recorded)| Some((status, recorded.as_ref().err()?)))
        {
            match problem {
                ClientError::Closed => say(&format!("process {} ended before the window was written", status.pid)),
                _ => say(&format!("process {}: {problem}", status.pid)),
            }
        }
        let windows: Vec<_> = ended.iter().filter_map(|(it, recorded)| Some((it, recorded.as_ref().ok()?))).collect();
        if self.json {
            print_json(&json!({"windows": windows.iter().map(|(it, window)| row(it, window)).collect::<Vec<_>>()}))?;
        } else {
            let mut out = io::stdout().lock();
            windows.iter().try_for_each(|(status, window)| out.write_all(describe(status, window).as_bytes()))?;
        }
        let failed_exports = windows.iter().flat_map(|(_, window)| &window.failures);
        let failed_exports = failed_exports.inspect(|failure| say(failure)).count();
        if windows.len() < ended.len() || failed_exports > 0 { Err(Fault::Incomplete) } else { Ok(()) }
    }

    /// Returns the folder for the files.
    fn folder(&self, programs: &[(Client, RunStatus)]) -> Result<PathBuf, Fault> {
        if let Some(out) = &self.out {
            return absolute(out);
        }
        let name = match programs {
            [(_, status)] => format!("kernspan-{}-{}", status.program, status.pid),
            [(_, first), ..] => format!("kernspan-{}", first.run.as_ref().unwrap_or(&first.program)),
            [] => "kernspan".to_owned(),
        };
        // A run may be called anything.
        let name: String =
            name.chars().map(|c| if c.is_alphanumeric() || "-_.".contains(c) { c } else { '_' }).collect();
        let numbered = (2_u64..).map(|number| format!("{name}-{number}"));
        let mut names = [name.clone()].into_iter().chain(numbered);
        absolute(Path::new(&names.find(|name| !Path::new(name).exists()).unwrap_or(name)))
    }
}

impl Target {
    /// Connects to the programs.
    fn find(&self) -> Result<Vec<(Client, RunStatus)>, Fault> {
        if let Some(pid) = self.pid {
            let mut client = connect(pid)?;
            let status = client.status().map_err(|error| failed(pid, &error))?;
            return Ok(vec![(client, status)]);
        }
        let mut programs = answering();
        if let Some(run) = &self.run {
            programs.retain(|(_, status)| status.run.as_ref() == Some(run));
        }
        match (programs.is_empty(), &self.run) {
            (false, _) => Ok(programs),
            (true, Some(run)) => Err(Fault::Failed(format!("no program of run {run} listens: see `kernspan ps`"))),
            (true, None) => Err(Fault::Failed("no running program listens: see `kernspan ps`".to_owned())),
        }
    }
}

/// Returns the first step for several ranks, which none of them has reached when it gets the request.
fn common_step(programs: &[(Client, RunStatus)]) -> Option<u64> {
    /// The seconds that requests to all ranks may take.
    const MARGIN: f64 = 1.0;
    let several = programs.len() > 1 && programs.iter().all(|(_, status)| status.has_steps);
    let step = programs.iter().map(|(_, status)| status.step).max().filter(|_| several)?;
    let rate = programs.iter().filter_map(|(_, status)| status.steps_per_second).fold(0.0, f64::max);
    Some(step.saturating_add(2).saturating_add((rate * MARGIN).ceil() as u64))
}

/// Returns how many steps several ranks take in this time, so that all record the same number.
fn common_steps(programs: &[(Client, RunStatus)], time: Duration) -> Option<u64> {
    let rates = programs.iter().filter_map(|(_, status)| status.steps_per_second);
    let rate = rates.reduce(f64::max).filter(|_| common_step(programs).is_some())?;
    Some(((rate * time.as_secs_f64()).ceil() as u64).max(1))
}

/// Reports each change of a window's state.
fn tell(name: &str, record: &Record, progress: RecordProgress, last: &mut Option<RecordState>) {
    if last.replace(progress.state) == Some(progress.state) {
        return;
    }
    let step = progress.step;
    say(&match (progress.state, record.at_step, &record.when) {
        (RecordState::Waiting, Some(first), _) => format!("{name}waiting for step {first}, in step {step}"),
        (RecordState::Waiting, None, Some(condition)) => format!("{name}waiting for {condition}, in step {step}"),
        (RecordState::Waiting, None, None) => format!("{name}waiting, in step {step}"),
        (RecordState::Recording, _, Some(_)) => format!(
            "{name}recording from step {step}, after the slow one: with .flight_recorder(…), the program would have \
             kept that"
        ),
        (RecordState::Recording, _, None) => format!("{name}recording from step {step}"),
        _ => format!("{name}writing"),
    });
}

/// Returns a window and its findings as text.
fn describe(status: &RunStatus, window: &RecordedWindow) -> String {
    let steps = match window.first_step.map(|first| (first, window.steps)) {
        Some((first, 1)) => format!("step {first}"),
        Some((first, steps)) => format!("steps {first} to {}", first + steps.saturating_sub(1)),
        None => "no steps".to_owned(),
    };
    let rank = if status.world_size > 1 { format!(", rank {}", status.rank) } else { String::new() };
    let gpu = if status.records_gpu { format!(", {} on GPUs", window.gpu_work) } else { String::new() };
    let mut text = format!("{} ({}{rank}): {steps}, {} spans{gpu}\n", status.program, status.pid, window.spans);
    window.files.iter().for_each(|file| text += &format!("  {}\n", file.display()));
    match window.findings.is_empty() {
        true => text += "  no findings\n",
        false => window.findings.iter().for_each(|finding| text += &format!("  {finding}\n")),
    }
    text
}

fn row(status: &RunStatus, window: &RecordedWindow) -> Value {
    let mut row = json!({"program": status.program, "pid": status.pid, "rank": status.rank, "run": status.run});
    if let (Value::Object(row), Value::Object(window)) = (&mut row, json::json(window)) {
        row.extend(window);
    }
    row
}
