//! The thread that reads vital signs.

use super::{Sources, history::VitalsHistory, settings::Vitals, threshold::ThresholdWatch};
use crate::{
    analysis::{Carbon, KILOWATT_HOUR, RunEnergy},
    export::LatestVitals,
    host::Host,
    thread::{STUCK_AFTER, join_unless_stuck, spawn},
    trace::Timestamp,
};
use std::{
    convert::Infallible,
    io,
    path::Path,
    sync::{
        Arc,
        mpsc::{self, Receiver, RecvTimeoutError, Sender},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

/// The thread that reads, until this is dropped.
#[derive(Debug)]
pub(crate) struct VitalsThread {
    thread: Option<JoinHandle<()>>,
    /// Dropped to end the thread.
    ending: Option<Sender<Infallible>>,
    pub(crate) history: Arc<VitalsHistory>,
}

impl VitalsThread {
    /// Starts the thread. If nothing can be read, it ends at once, and the history says why.
    pub(crate) fn start(settings: Vitals, host: Arc<Host>, latest: LatestVitals) -> io::Result<Self> {
        let history = Arc::new(VitalsHistory::new(latest));
        let (ending, end) = mpsc::channel();
        let shared = Arc::clone(&history);
        // Here, as NVML may take a second to load.
        let run = move || match Sources::open(Path::new("/")) {
            Ok(sources) => VitalsReader::new(settings, sources, host, shared).run(&end),
            Err(problem) => {
                tracing::warn!("kernspan: {problem}");
                shared.change_run(|run| run.problems.push(problem));
            }
        };
        let thread = Some(spawn("kernspan-vitals", run)?);
        Ok(Self { thread, ending: Some(ending), history })
    }
}

impl Drop for VitalsThread {
    fn drop(&mut self) {
        self.ending = None;
        let Some(thread) = self.thread.take() else { return };
        // It panics only by a bug of ours, and then the readings end there.
        if join_unless_stuck(thread, STUCK_AFTER, || 0).is_none() {
            let problem = "the readings end early: NVML or the system does not return from a call";
            self.history.change_run(|run| run.problems.push(problem.to_owned()));
        }
    }
}

/// What the thread has.
struct VitalsReader {
    settings: Vitals,
    sources: Sources,
    watch: ThresholdWatch,
    host: Arc<Host>,
    history: Arc<VitalsHistory>,
    started: Instant,
    first_step: u64,
    last: Option<Duration>,
    readings: u64,
}

impl VitalsReader {
    /// The readings after which it is known what cannot be read: rates need two.
    const SETTLED: u64 = 2;

    fn new(mut settings: Vitals, sources: Sources, host: Arc<Host>, history: Arc<VitalsHistory>) -> Self {
        let watch = ThresholdWatch::new(std::mem::take(&mut settings.thresholds), settings.hook.take());
        let (started, first_step) = (Instant::now(), host.steps());
        Self { settings, sources, watch, host, history, started, first_step, last: None, readings: 0 }
    }

    fn run(mut self, end: &Receiver<Infallible>) {
        // Whether a window is open is looked at this often.
        let tick = self.settings.every.min(self.settings.every_in_windows);
        let mut next = self.started;
        loop {
            let now = self.started.elapsed();
            // Ticks may come a little early or late.
            let is_due = self.last.is_none_or(|last| now.saturating_sub(last) + tick / 2 >= self.settings.every);
            if is_due || self.host.is_recording() {
                self.read(now);
            }
            // What was missed while the machine was too busy is not made up for.
            next = (next + tick).max(Instant::now());
            match end.recv_timeout(next.saturating_duration_since(Instant::now())) {
                Err(RecvTimeoutError::Timeout) => {}
                // The last moment counts, too.
                Ok(_) | Err(RecvTimeoutError::Disconnected) => {
                    self.read(self.started.elapsed());
                    return self.end();
                }
            }
        }
    }

    fn read(&mut self, at: Duration) {
        let mut signs = self.sources.read(at);
        signs.at = Timestamp::now();
        let time = self.last.map_or(Duration::ZERO, |last| at.saturating_sub(last));
        self.last = Some(at);
        self.history.change_run(|run| run.add(&signs, time, |sign| self.watch.limit(sign)));
        self.watch.look(&signs, at, self.host.steps());
        self.history.add(signs);
        self.readings += 1;
        if self.readings == Self::SETTLED {
            let problems = self.sources.problems();
            problems.iter().for_each(|problem| tracing::info!("kernspan: vital signs: {problem}"));
            self.history.change_run(|run| run.problems = problems);
        }
    }

    fn end(self) {
        let uses = self.sources.energy();
        if uses.is_empty() {
            return;
        }
        let steps = self.host.steps().saturating_sub(self.first_step);
        let mut energy = RunEnergy { uses, steps, carbon: None, cost: None };
        let kilowatt_hours = energy.joules() / KILOWATT_HOUR;
        energy.carbon = self.settings.carbon.map(|(grams_per_kwh, source)| {
            let grams = kilowatt_hours * grams_per_kwh;
            Carbon { grams, grams_per_kwh, source }
        });
        energy.cost = self.settings.price.map(|price| price * kilowatt_hours);
        self.history.change_run(|run| run.energy = Some(energy));
    }
}
