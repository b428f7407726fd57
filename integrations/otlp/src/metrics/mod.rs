//! Metrics of every step and request, of the GPU work in recorded windows, of the process, and of the GPUs' hardware.

mod encode;
mod gpu_reading;
mod hardware;
mod histogram;
#[cfg_attr(not(feature = "serving"), allow(dead_code, reason = "the table has the metrics of requests, too"))]
mod instruments;
#[cfg(target_os = "linux")]
mod nvml;
mod process;
#[cfg(feature = "serving")]
mod request_exemplars;
#[cfg(feature = "serving")]
mod requests;
mod steps;
#[cfg(test)]
mod tests;
mod vitals;
mod windows;

#[cfg(feature = "serving")]
use self::request_exemplars::RequestExemplars;
use self::{
    encode::{Interval, Sums, Writer},
    hardware::Hardware,
    process::Process,
    steps::Steps,
    windows::Windows,
};
use crate::{run_trace::RunTrace, settings::Settings, tally::Tally};
#[cfg(feature = "serving")]
use kernspan::serving::Requests;
use kernspan::{
    analysis::{Analysis, VitalSigns},
    export::{Run, StepSummary},
    trace::Timestamp,
};
use std::{
    sync::Arc,
    time::{Duration, Instant},
};

/// The metrics of a run.
#[derive(Debug)]
pub(crate) struct Metrics {
    /// `None` if metrics are not sent.
    measured: Option<Measured>,
    /// Asked for its requests and vital signs.
    run: Option<Run>,
}

#[derive(Debug)]
struct Measured {
    steps: Steps,
    windows: Windows,
    /// Those until the next collection.
    #[cfg(feature = "serving")]
    requests: Requests,
    #[cfg(feature = "serving")]
    request_exemplars: RequestExemplars,
    /// The last reading until the next collection.
    vitals: Option<Arc<VitalSigns>>,
    hardware: Hardware,
    sums: Sums,
    /// The start of the run.
    start: Timestamp,
    /// When metrics were last collected; before that, the start of the run.
    last: (Instant, Timestamp),
    every: Duration,
    delta: bool,
}

impl Metrics {
    pub(crate) fn new(start: Timestamp, run: RunTrace, settings: &Settings) -> Self {
        let now = Instant::now();
        // An exemplar would lead nowhere if its trace is not sent.
        let exemplars = Some(run).filter(|_| settings.exemplars && settings.traces.is_some());
        #[cfg(feature = "serving")]
        let request_exemplars = RequestExemplars::new(exemplars.clone(), settings.exemplars);
        let measured = settings.metrics.is_some().then(|| Measured {
            steps: Steps::new(settings.samples_per_step, exemplars, now),
            windows: Windows::new(),
            #[cfg(feature = "serving")]
            requests: Requests::default(),
            #[cfg(feature = "serving")]
            request_exemplars,
            vitals: None,
            hardware: Hardware::watch(),
            sums: Sums::default(),
            start,
            last: (now, start),
            every: settings.metrics_every,
            delta: settings.delta,
        });
        Self { measured, run: None }
    }

    /// Adds the requests and the vital signs of a run, at each collection.
    pub(crate) fn follow(&mut self, run: Run) {
        self.run = Some(run);
    }

    /// Adds a step.
    pub(crate) fn add_step(&mut self, step: &StepSummary) {
        if let Some(measured) = &mut self.measured {
            measured.steps.add(step, Instant::now());
        }
    }

    /// Adds a recorded window.
    pub(crate) fn add_window(&mut self, window: &Analysis<'_>) {
        if let Some(measured) = &mut self.measured {
            measured.windows.add(window);
            #[cfg(feature = "serving")]
            measured.request_exemplars.add_window(window.trace());
        }
    }

    /// Encodes all metrics as fields of a `ScopeMetrics` message, and counts their points. `None` if it is not yet
    /// time.
    pub(crate) fn collect(&mut self, is_last: bool, tallies: &[(&str, Option<&Tally>)]) -> Option<(Vec<u8>, u64)> {
        let measured = self.measured.as_mut()?;
        if !is_last && measured.last.0.elapsed() < measured.every {
            return None;
        }
        if is_last {
            measured.hardware.end();
        }
        if let Some(run) = &self.run {
            measured.vitals = run.vitals();
            #[cfg(feature = "serving")]
            {
                measured.requests = run.requests();
            }
        }
        Some(measured.collect(Instant::now(), Timestamp::now(), tallies))
    }
}

impl Measured {
    fn collect(&mut self, now: Instant, wall: Timestamp, tallies: &[(&str, Option<&Tally>)]) -> (Vec<u8>, u64) {
        // If the clock was set back, points must not end before they begin.
        let (run, last) = (self.start.min(wall), self.last.1.min(wall));
        let mut writer = Writer::new(Interval { run, last, now: wall, delta: self.delta }, &mut self.sums);
        self.steps.write(now, &mut writer);
        self.windows.write(self.steps.dropped(), &mut writer);
        #[cfg(feature = "serving")]
        requests::write(&std::mem::take(&mut self.requests), &mut self.request_exemplars, &mut writer);
        write_tallies(tallies, &mut writer);
        Process::now().write(wall, &mut writer);
        self.vitals.take().iter().for_each(|vitals| vitals::write(vitals, &mut writer));
        self.hardware.write(now, &mut writer);
        self.last = (now, wall);
        writer.finish()
    }
}

/// Writes the counts of sent and lost items. Causes without losses are written, too, so that queries see the first
/// rise.
fn write_tallies(tallies: &[(&str, Option<&Tally>)], writer: &mut Writer<'_>) {
    let known = || tallies.iter().filter_map(|&(signal, tally)| Some((signal, tally?)));
    writer.metric(&instruments::OTLP_SENT, |points| {
        for (signal, tally) in known() {
            points.number(&[(instruments::SIGNAL, signal)], tally.sent());
        }
    });
    writer.metric(&instruments::OTLP_LOST, |points| {
        for (signal, tally) in known() {
            for (cause, count) in tally.causes() {
                points.number(&[(instruments::SIGNAL, signal), (instruments::CAUSE, cause)], count);
            }
        }
    });
}
