//! The plan of a training, from the command line.

use kernspan::Activity;
use std::time::Duration;

/// The numbers of steps, windows and threads of a training, and the recorded activities:
/// `wait=15 windows=40 threads=4 memory sync calls`.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Steps before the first wait.
    pub before: u64,
    /// Steps between two windows, in which nothing is recorded.
    pub wait: u64,
    /// Steps before a window, in which recording is prepared.
    pub warmup: u64,
    /// Steps in a window.
    pub active: u64,
    /// The number of windows.
    pub windows: u64,
    /// Steps after the last window.
    pub after: u64,
    /// The number of training threads. The schedule counts the steps of the first one.
    pub threads: u64,
    /// Activities to record.
    pub activities: Vec<Activity>,
    /// A fixed time after which CUPTI is detached.
    pub detach_after: Option<Duration>,
    /// Whether windows are requested by another thread, each when the one before it is written.
    pub requests: bool,
    /// Whether they are requested through the program's socket.
    pub socket: bool,
    /// Whether steps are also measured while a client watches the run.
    pub watched: bool,
    /// Whether the flight recorder keeps `wait` steps between windows that are requested, and whether it has the GPU's.
    pub flight: Option<bool>,
    /// Whether threads may be suspended for so long that some of their records are late.
    pub busy: bool,
}

impl Plan {
    /// Parses the program's arguments.
    ///
    /// # Errors
    ///
    /// If an argument is unknown or not a number.
    pub fn from_args() -> Result<Self, String> {
        let mut plan = Self {
            before: 150,
            wait: 15,
            warmup: 2,
            active: 5,
            windows: 12,
            after: 60,
            threads: 1,
            activities: vec![Activity::Host, Activity::Kernels, Activity::Copies],
            detach_after: None,
            requests: false,
            socket: false,
            watched: false,
            flight: None,
            busy: false,
        };
        for argument in std::env::args().skip(1) {
            let (name, value) = argument.split_once('=').unwrap_or((&argument, ""));
            let number = || value.parse().map_err(|_| format!("not a number: {argument}"));
            match name {
                "before" => plan.before = number()?,
                "wait" => plan.wait = number()?,
                "warmup" => plan.warmup = number()?,
                "active" => plan.active = number()?,
                "windows" => plan.windows = number()?,
                "after" => plan.after = number()?,
                "threads" => plan.threads = number()?,
                "detach_ms" => plan.detach_after = Some(Duration::from_millis(number()?)),
                "requests" => plan.requests = true,
                "socket" => plan.socket = true,
                "watched" => plan.watched = true,
                "flight" => plan.flight = Some(value == "gpu"),
                "busy" => plan.busy = true,
                "memory" => plan.activities.push(Activity::Memory),
                "sync" => plan.activities.push(Activity::Sync),
                "counters" => plan.activities.push(Activity::Counters),
                "calls" => plan.activities.push(Activity::ApiCalls),
                _ => return Err(format!("unknown argument: {argument}")),
            }
        }
        Ok(plan)
    }

    /// Returns the total number of steps.
    pub(crate) fn steps(&self) -> u64 {
        self.before + self.windows * self.cycle() + self.after
    }

    /// Returns the number of steps from one window to the next.
    pub(crate) fn cycle(&self) -> u64 {
        self.wait + self.warmup + self.active
    }
}
