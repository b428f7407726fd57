//! The run's vital signs as metrics: of every step, whether it is recorded or not, of recorded windows what GPUs did, and of the process and its GPUs
//! how they are.

mod encode;
mod hardware;
mod histogram;
#[cfg(target_os = "linux")]
mod nvml;
mod process;
mod steps;
mod table;
#[cfg(test)]
mod tests;
mod windows;

use self::{
    encode::{Interval, Sums, Writer},
    hardware::Hardware,
    process::Process,
    steps::Steps,
    windows::Windows,
};
use super::{
    attributes::{Attributes, name},
    run_trace::RunTrace,
    settings::Settings,
    tally::Tally,
};
use crate::{
    export::StepSummary,
    trace::{Timestamp, Trace},
};
use std::time::{Duration, Instant};

/// What has been counted and measured.
#[derive(Debug)]
pub(super) struct Metrics {
    /// Not if they are turned off.
    measured: Option<Measured>,
}

#[derive(Debug)]
struct Measured {
    steps: Steps,
    windows: Windows,
    hardware: Hardware,
    sums: Sums,
    /// When the run began.
    start: Timestamp,
    /// When metrics were last collected, or else the run began.
    last: (Instant, Timestamp),
    every: Duration,
    delta: bool,
}

impl Metrics {
    pub(super) fn new(start: Timestamp, run: RunTrace, samples_per_step: Option<u64>, settings: &Settings) -> Self {
        let now = Instant::now();
        // What is not sent is no example.
        let exemplars = Some(run).filter(|_| settings.exemplars && settings.traces.is_some());
        let measured = settings.metrics.is_some().then(|| Measured {
            steps: Steps::new(samples_per_step, exemplars, now),
            windows: Windows::new(),
            hardware: Hardware::watch(),
            sums: Sums::default(),
            start,
            last: (now, start),
            every: settings.metrics_every,
            delta: settings.delta,
        });
        Self { measured }
    }

    /// A step has ended.
    pub(super) fn add_step(&mut self, step: &StepSummary) {
        if let Some(measured) = &mut self.measured {
            measured.steps.add(step, Instant::now());
        }
    }

    /// A window has been recorded.
    pub(super) fn add_window(&mut self, trace: &Trace) {
        if let Some(measured) = &mut self.measured {
            measured.windows.add(trace);
        }
    }

    /// If it is time, or the run is over: all metrics, as they go into a `ScopeMetrics` message, and how many points they have.
    pub(super) fn collect(&mut self, last: bool, tallies: &[(&str, Option<&Tally>)]) -> Option<(Vec<u8>, u64)> {
        let measured = self.measured.as_mut()?;
        if !last && measured.last.0.elapsed() < measured.every {
            return None;
        }
        if last {
            measured.hardware.end();
        }
        Some(measured.collect(Instant::now(), Timestamp::now(), tallies))
    }
}

impl Measured {
    fn collect(&mut self, now: Instant, wall: Timestamp, tallies: &[(&str, Option<&Tally>)]) -> (Vec<u8>, u64) {
        // A clock that was set back must not have anything end before it begins.
        let (run, last) = (self.start.min(wall), self.last.1.min(wall));
        let mut writer = Writer::new(Interval { run, last, now: wall, delta: self.delta }, &mut self.sums);
        self.steps.write(now, &mut writer);
        self.windows.write(self.steps.lost(), &mut writer);
        write_tallies(tallies, &mut writer);
        Process::now().write(wall, &mut writer);
        self.hardware.write(now, &mut writer);
        self.last = (now, wall);
        writer.finish()
    }
}

/// What became of what was sent. Causes are told of before there is anything lost: who looks for a rise needs to know where it began.
fn write_tallies(tallies: &[(&str, Option<&Tally>)], writer: &mut Writer<'_>) {
    let kept = || tallies.iter().filter_map(|&(signal, tally)| Some((signal, tally?)));
    writer.metric(&table::OTLP_SENT, |points| {
        for (signal, tally) in kept() {
            points.number(&[(table::SIGNAL, signal)], tally.sent());
        }
    });
    writer.metric(&table::OTLP_LOST, |points| {
        for (signal, tally) in kept() {
            for (cause, count) in tally.causes() {
                points.number(&[(table::SIGNAL, signal), (table::CAUSE, cause)], count);
            }
        }
    });
}
