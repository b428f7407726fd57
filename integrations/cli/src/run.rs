//! The command `run`: runs a program with other settings of its profiler, and reports what it recorded.

use crate::{
    fault::{Fault, reason_of, say},
    input::{Inputs, is_trace},
};
use kernspan::config::{Origin, Settings};
use std::{
    collections::BTreeMap,
    env,
    ffi::OsString,
    fs,
    io::Write,
    path::{Path, PathBuf},
    process::{self, Command, ExitStatus},
    time::SystemTime,
};

/// Run a program with other settings of its profiler, and print the report
///
/// The program must build its profiler with `Profiler::from_env`, or with settings of `kernspan::config`. It gets these
/// settings as environment variables. Its input, output and exit status are its own; the report goes to standard error,
/// unless the program prints it itself.
#[derive(clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// The steps to record: `wait=5,warmup=1,active=3,repeat=2` or `steps=100..110`
    #[arg(long, value_name = "SCHEDULE")]
    schedule: Option<String>,
    /// The formats to write, each with an optional folder: `chrome,perfetto:runs/x,tensorboard,html,stacks`
    #[arg(long, value_name = "FORMATS")]
    export: Option<String>,
    /// The activities to record: `cpu,cuda,memory`
    #[arg(long, value_name = "ACTIVITIES")]
    activities: Option<String>,
    /// The folder that gets a folder for this run [default: runs]
    #[arg(long, value_name = "FOLDER")]
    dir: Option<PathBuf>,
    /// A file with settings, which the other options override
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// List the files only
    #[arg(long)]
    no_report: bool,
    /// The program and its arguments
    #[arg(last = true, value_name = "PROGRAM", required = true)]
    program: Vec<OsString>,
}

const AFTER_HELP: &str = "\
Examples:
  kernspan run -- ./train --epochs 1
  kernspan run --schedule steps=100..110 --export chrome,html -- ./train
  kernspan run --config train.yaml --activities cpu,cuda,memory -- ./train

Exit status: that of the program, or 128 and the number of the signal that ended it; 1 if it could not be run; 2 usage
error";

/// The files in folders, with their modification time and size.
type Files = BTreeMap<PathBuf, (Option<SystemTime>, u64)>;

impl Args {
    pub(crate) fn run(&self) -> Result<(), Fault> {
        let settings = self.settings()?;
        let folders = settings.folders();
        let before = files(&folders);
        let [program, arguments @ ..] = self.program.as_slice() else {
            return Err(Fault::Usage("expected a program after --".to_owned()));
        };
        let mut command = Command::new(program);
        command.args(arguments).env("KERNSPAN", "on").envs(self.variables()?);
        let printed = Printed::new();
        if let Some(printed) = &printed {
            command.env("KERNSPAN_PRINTED", printed.file());
        }
        let status = wait(command)
            .map_err(|error| Fault::Failed(format!("cannot run {}: {}", program.display(), reason_of(&error))))?;
        let mut new = files(&folders);
        new.retain(|path, state| before.get(path) != Some(state));
        let prints = !self.no_report && !printed.is_some_and(|printed| printed.file().exists());
        report(&new.into_keys().collect::<Vec<_>>(), &folders, prints);
        match code(status) {
            0 => Ok(()),
            code => Err(Fault::Status(code)),
        }
    }

    /// Returns the variables for the program.
    fn variables(&self) -> Result<Vec<(&'static str, OsString)>, Fault> {
        let absolute = |path: &PathBuf| {
            // The program may change its working directory.
            let cannot = |error| Fault::Usage(format!("cannot use {}: {}", path.display(), reason_of(&error)));
            std::path::absolute(path).map(OsString::from).map_err(cannot)
        };
        let text = |text: &Option<String>| text.clone().map(OsString::from);
        let variables = [
            ("KERNSPAN_SCHEDULE", text(&self.schedule)),
            ("KERNSPAN_EXPORT", text(&self.export)),
            ("KERNSPAN_ACTIVITIES", text(&self.activities)),
            ("KERNSPAN_DIR", self.dir.as_ref().map(absolute).transpose()?),
            ("KERNSPAN_CONFIG", self.config.as_ref().map(absolute).transpose()?),
        ];
        Ok(variables.into_iter().filter_map(|(name, value)| Some((name, value?))).collect())
    }

    /// Returns the settings that the program will have.
    fn settings(&self) -> Result<Settings, Fault> {
        let variables = self.variables()?;
        let is_given = |name: &str| variables.iter().any(|(given, _)| *given == name);
        let inherited = env::vars_os().filter(|(name, _)| name.to_str().is_none_or(|name| !is_given(name)));
        let all = inherited.chain(variables.iter().map(|(name, value)| ((*name).into(), value.clone())));
        let settings = Settings::new().with_variables(all).and_then(|settings| {
            settings.check()?;
            Ok(settings)
        });
        settings.map_err(|error| match error.origin() {
            // `--schedule` rather than `KERNSPAN_SCHEDULE`, if that is where it came from.
            Origin::Variable { name, .. } if is_given(name) => {
                let option = name.trim_start_matches("KERNSPAN_").to_lowercase();
                Fault::Usage(format!("--{option}: {}", error.problem()))
            }
            _ => Fault::Usage(error.to_string()),
        })
    }
}

/// The file by which the program tells that it has printed its report itself, in a folder of its own.
struct Printed(PathBuf);

impl Printed {
    /// Creates the folder. If it cannot be created, the report is printed once more.
    fn new() -> Option<Self> {
        let folder = env::temp_dir().join(format!("kernspan-run-{}-{}", process::id(), unix_nanos()));
        fs::create_dir(&folder).ok().map(|()| Self(folder))
    }

    fn file(&self) -> PathBuf {
        self.0.join("printed")
    }
}

impl Drop for Printed {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn unix_nanos() -> u128 {
    SystemTime::UNIX_EPOCH.elapsed().map_or(0, |time| time.as_nanos())
}

/// Names these files, and prints their report if `prints`.
fn report(new: &[PathBuf], folders: &[PathBuf], prints: bool) {
    /// The number of files that are named.
    const NAMED: usize = 10;
    if new.is_empty() {
        let folders: Vec<_> = folders.iter().map(|folder| folder.display().to_string()).collect();
        return say(&format!(
            "the program wrote nothing to {}: it must build its profiler with Profiler::from_env(), and reach the \
             first recorded step",
            folders.join(", ")
        ));
    }
    let traces: Vec<_> = new.iter().filter(|path| is_trace(path)).cloned().collect();
    if prints && !traces.is_empty() {
        // Files that cannot be read have been reported.
        if let Ok(read) = Inputs::of(traces, false).read() {
            let _ = writeln!(anstream::stderr(), "{}", read.report().fit_terminal());
        }
    }
    new.iter().take(NAMED).for_each(|path| say(&format!("wrote {}", shown(path).display())));
    if let more @ 1.. = new.len().saturating_sub(NAMED) {
        say(&format!("wrote {more} more"));
    }
}

/// Runs a program until it ends. Ctrl-C is for the program, which may save its recording; other signals are passed on.
#[cfg(unix)]
fn wait(mut command: Command) -> std::io::Result<ExitStatus> {
    use rustix::process::{Pid, Signal, kill_process};
    use signal_hook::{
        consts::{SIGHUP, SIGINT, SIGTERM},
        iterator::Signals,
    };
    // Handlers are for this process only: the program starts with the defaults.
    let mut signals = Signals::new([SIGHUP, SIGINT, SIGTERM])?;
    let mut child = command.spawn()?;
    let (handle, pid) = (signals.handle(), Pid::from_child(&child));
    let passing_on = std::thread::spawn(move || {
        for signal in signals.forever() {
            // A terminal sends Ctrl-C to the program, too.
            let passed_on = match signal {
                SIGHUP => Signal::HUP,
                SIGTERM => Signal::TERM,
                _ => continue,
            };
            let _ = kill_process(pid, passed_on);
        }
    });
    let status = child.wait();
    handle.close();
    let _ = passing_on.join();
    status
}

#[cfg(not(unix))]
fn wait(mut command: Command) -> std::io::Result<ExitStatus> {
    command.status()
}

/// Returns the exit status as a shell has it.
fn code(status: ExitStatus) -> u8 {
    #[cfg(unix)]
    let signal = std::os::unix::process::ExitStatusExt::signal(&status);
    #[cfg(not(unix))]
    let signal: Option<i32> = None;
    let code = status.code().or_else(|| Some(128 + signal?)).unwrap_or(1);
    u8::try_from(code).unwrap_or(1)
}

/// Returns all files in these folders and their subfolders. What cannot be read is left out.
fn files(folders: &[PathBuf]) -> Files {
    let (mut files, mut left) = (Files::new(), folders.to_vec());
    while let Some(folder) = left.pop() {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            match entry.metadata() {
                Ok(state) if state.is_dir() => left.push(entry.path()),
                Ok(state) => drop(files.insert(entry.path(), (state.modified().ok(), state.len()))),
                Err(_) => {}
            }
        }
    }
    files
}

/// Returns a path as seen from the working directory.
fn shown(path: &Path) -> &Path {
    env::current_dir().ok().and_then(|folder| path.strip_prefix(folder).ok()).unwrap_or(path)
}
