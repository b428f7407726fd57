//! The thread that writes a rank's file when a step takes too long, a signal arrives, or the process ends.

use crate::{
    exit::{Alarm, ProcessEnd},
    ring_file,
};
use kernspan::framework::HandOver;
use std::{
    io::{self, Write},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

/// The folder that files are written to, and when.
#[derive(Clone, Debug)]
pub(crate) struct Watched {
    pub(crate) folder: PathBuf,
    pub(crate) slow_step: Duration,
    pub(crate) profiler: HandOver,
}

/// A thread that watches the steps of a program, until it is dropped.
#[derive(Debug)]
pub(crate) struct Watch {
    watched: Watched,
    ended: Arc<AtomicBool>,
    alarm: Arc<Alarm>,
    thread: Option<JoinHandle<()>>,
}

/// How often the thread looks at the step.
const INTERVAL: Duration = Duration::from_millis(100);

impl Watch {
    /// Starts the thread. It also writes on a signal, and when the process ends.
    pub(crate) fn start(watched: Watched, signal: Option<i32>) -> io::Result<Self> {
        let (ended, signalled) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let alarm = Alarm::new(signal.map(|signal| (signal, &signalled)))?;
        let (of_thread, ended_there, its_alarm) = (watched.clone(), Arc::clone(&ended), Arc::clone(&alarm));
        let thread = thread::Builder::new().name("kernspan-nccl".to_owned());
        let thread = thread.spawn(move || of_thread.run(&ended_there, &signalled, &its_alarm));
        if thread.is_err() {
            alarm.end();
        }
        Ok(Self { watched, ended, alarm, thread: Some(thread?) })
    }

    pub(crate) fn write(&self, reason: &'static str) -> io::Result<PathBuf> {
        self.watched.write(reason)
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.watched.folder
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        self.alarm.wake();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        self.alarm.end();
    }
}

impl Watched {
    fn run(&self, ended: &AtomicBool, signalled: &AtomicBool, alarm: &Alarm) {
        let mut steps = SlowSteps::new(self.slow_step, self.profiler.current_step(), Instant::now());
        while !ended.load(Ordering::Relaxed) {
            if signalled.swap(false, Ordering::Relaxed) {
                self.write_or_say("signal");
            }
            if steps.is_slow(self.profiler.current_step(), Instant::now()) {
                self.write_or_say("slow step");
            }
            if let Some(end) = alarm.process_end() {
                self.write_or_say(if end == ProcessEnd::Exit { "exit" } else { "SIGTERM" });
                alarm.answer(end);
            }
            alarm.wait(INTERVAL);
        }
    }

    fn write(&self, reason: &'static str) -> io::Result<PathBuf> {
        ring_file::write(&self.folder, reason, &self.profiler)
    }

    fn write_or_say(&self, reason: &'static str) {
        if let Err(error) = self.write(reason) {
            say(&self.folder, &error);
        }
    }
}

/// Reports a file that could not be written. `eprintln!` would panic if standard error is closed.
pub(crate) fn say(folder: &Path, error: &io::Error) {
    let _ = writeln!(io::stderr(), "kernspan: cannot write the last collectives to {}: {error}", folder.display());
}

/// Tells when a step has taken too long: after the limit, then after twice, four times, … as long.
#[derive(Debug)]
struct SlowSteps {
    limit: Duration,
    step: u64,
    since: Instant,
    next: Duration,
}

impl SlowSteps {
    fn new(limit: Duration, step: u64, now: Instant) -> Self {
        Self { limit, step, since: now, next: limit }
    }

    fn is_slow(&mut self, step: u64, now: Instant) -> bool {
        if step != self.step {
            *self = Self::new(self.limit, step, now);
        }
        let is_slow = now.duration_since(self.since) >= self.next;
        if is_slow {
            self.next = self.next.saturating_mul(2);
        }
        is_slow
    }
}

#[cfg(test)]
mod tests {
    use super::SlowSteps;
    use std::time::{Duration, Instant};

    #[test]
    fn a_slow_step_is_told_after_the_limit_and_ever_more_rarely() {
        let (start, second) = (Instant::now(), Duration::from_secs(1));
        let mut steps = SlowSteps::new(10 * second, 0, start);
        let slow: Vec<_> = (0..100).filter(|at| steps.is_slow(u64::from(at / 50), start + *at * second)).collect();
        assert_eq!(slow, [10, 20, 40, 60, 70, 90]);
    }
}
