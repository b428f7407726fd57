//! What is known of every step, on its way from the thread that ends it to those who want it.
//!
//! The thread writes a few words into a ring; another one reads them, several times a second. If nobody wants to know, there is neither.

use crate::{
    Error,
    clock::{Anchor, Ticks},
    error::{Failure, panic_message},
    export::{ExportResult, StepExporter, StepSigns},
    host::{Counters, Host, mute_this_thread},
    schedule::Phase,
    trace::Timestamp,
};
use rtrb::{Consumer, Producer, RingBuffer};
use std::{
    fmt,
    panic::{AssertUnwindSafe, catch_unwind},
    path::PathBuf,
    sync::{
        Arc,
        mpsc::{self, Receiver, RecvTimeoutError, Sender},
    },
    thread::JoinHandle,
    time::Duration,
};

/// What the ring holds: the counters of a step, and then the step.
#[derive(Clone, Copy, Debug)]
enum Sign {
    Counter(&'static str, f64),
    Step(Ended),
}

/// A step that is over.
#[derive(Clone, Copy, Debug)]
struct Ended {
    number: u64,
    phase: Phase,
    start: Ticks,
    end: Ticks,
    /// Or else the run has ended in the middle of it.
    by_step: bool,
}

/// The end of the ring that steps go into.
#[derive(Debug)]
pub(crate) struct StepSender {
    ring: Producer<Sign>,
    /// When the current step began.
    start: Ticks,
}

impl StepSender {
    /// Words that the reader may be behind: a hundred thousand steps a second, with a counter each.
    const CAPACITY: usize = 1 << 15;

    /// Ends a step. A step that does not fit is counted, with its counters.
    pub(crate) fn send(&mut self, host: &Host, number: u64, phase: Phase, end: Ticks, by_step: bool) {
        let step = Ended { number, phase, start: self.start, end, by_step };
        self.start = end;
        let Some(counters) = host.counters() else { return };
        counters.with(|latest| {
            let values = latest.values();
            if by_step || !values.is_empty() {
                if self.ring.slots() > values.len() {
                    let signs = values.iter().map(|&(name, value)| Sign::Counter(name, value));
                    for sign in signs.chain([Sign::Step(step)]) {
                        // There is room for all of them.
                        let _ = self.ring.push(sign);
                    }
                } else {
                    counters.lose(1);
                }
            }
            let lost = latest.clear();
            if lost > 0 {
                counters.lose(lost);
            }
        });
    }
}

/// Who wants to know of every step, and what to call them when they fail.
pub(crate) struct NamedSteps {
    pub(crate) name: String,
    pub(crate) exporter: Box<dyn StepExporter>,
}

/// The thread that tells of every step.
#[derive(Debug)]
pub(crate) struct StepThread {
    thread: JoinHandle<StepOutcome>,
    /// Dropped to end it.
    ending: Sender<()>,
}

/// What came of it.
#[derive(Debug, Default)]
pub(crate) struct StepOutcome {
    pub(crate) files: Vec<PathBuf>,
    pub(crate) failures: Vec<Failure>,
}

impl StepThread {
    /// Starts it for `exporters`. Step 0 begins now.
    pub(crate) fn start(host: Arc<Host>, exporters: Vec<NamedSteps>) -> Result<(StepSender, Self), Error> {
        let (producer, ring) = RingBuffer::new(StepSender::CAPACITY);
        let anchor = host.clock().anchor();
        let sender = StepSender { ring: producer, start: anchor.ticks };
        let (ending, ended) = mpsc::channel();
        let reader = StepReader {
            host,
            ring,
            anchors: vec![anchor],
            last: (anchor.ticks, anchor.unix),
            counters: Vec::new(),
            exporters,
            outcome: StepOutcome::default(),
        };
        let thread = std::thread::Builder::new().name("kernspan-steps".to_owned()).spawn(move || {
            mute_this_thread();
            reader.run(&ended)
        });
        Ok((sender, Self { thread: thread.map_err(Error::Thread)?, ending }))
    }

    /// Waits until all steps have been told of, and those who want them have finished.
    pub(crate) fn join(self) -> StepOutcome {
        drop(self.ending);
        self.thread.join().unwrap_or_else(|panic| StepOutcome {
            failures: vec![Failure::of_panic("kernspan", None, &panic_message(&*panic))],
            ..StepOutcome::default()
        })
    }
}

/// The end of the ring that steps come out of.
struct StepReader {
    host: Arc<Host>,
    ring: Consumer<Sign>,
    /// The last few readings of both clocks.
    anchors: Vec<Anchor>,
    /// When the last step ended.
    last: (Ticks, Timestamp),
    /// The counters of the step that comes next.
    counters: Vec<(&'static str, f64)>,
    exporters: Vec<NamedSteps>,
    outcome: StepOutcome,
}

impl StepReader {
    /// How often steps are told of, and so how much of them is lost if the process is killed.
    const EVERY: Duration = Duration::from_millis(200);
    /// How far readings of the clocks are apart at the least: the further, the better is the rate between them known.
    const ANCHORS_APART: Duration = Duration::from_millis(50);
    /// How many are kept. The step may have ended before the last one, if its thread was held up just then.
    const ANCHORS: usize = 3;

    fn run(mut self, ended: &Receiver<()>) -> StepOutcome {
        loop {
            let over = ended.recv_timeout(Self::EVERY) != Err(RecvTimeoutError::Timeout);
            let steps = self.read();
            for named in &mut self.exporters {
                let done = named.run(|exporter| exporter.steps(&steps).map(|()| Vec::new()));
                self.outcome.add(done);
            }
            if over {
                for named in &mut self.exporters {
                    let done = named.run(StepExporter::finish);
                    self.outcome.add(done);
                }
                return self.outcome;
            }
        }
    }

    /// All steps that have ended.
    fn read(&mut self) -> Vec<StepSigns> {
        self.take_anchor();
        let timeline = self.host.clock().timeline(&self.anchors);
        let mut steps = Vec::new();
        // Not those that end meanwhile, which may be without end.
        for _ in 0..self.ring.slots() {
            match self.ring.pop() {
                Ok(Sign::Counter(name, value)) => self.counters.push((name, value)),
                Ok(Sign::Step(step)) => {
                    let (ticks, moment) = self.last;
                    let start = if step.start == ticks { moment } else { timeline.at(step.start) };
                    let end = timeline.at(step.end).max(start);
                    self.last = (step.end, end);
                    steps.push(StepSigns {
                        number: step.number,
                        phase: step.phase,
                        start,
                        duration: end.since(start),
                        ended: step.by_step,
                        counters: std::mem::take(&mut self.counters),
                    });
                }
                Err(_) => break,
            }
        }
        steps
    }

    fn take_anchor(&mut self) {
        let now = self.host.clock().anchor();
        let apart = |last: &Anchor| now.unix.since(last.unix) >= Self::ANCHORS_APART || now.unix < last.unix;
        if self.anchors.last().is_none_or(apart) {
            self.anchors.push(now);
            if self.anchors.len() > Self::ANCHORS {
                self.anchors.remove(0);
            }
        }
    }
}

impl NamedSteps {
    fn run(&mut self, f: impl FnOnce(&mut dyn StepExporter) -> ExportResult) -> Result<Vec<PathBuf>, Failure> {
        match catch_unwind(AssertUnwindSafe(|| f(&mut *self.exporter))) {
            Ok(Ok(files)) => Ok(files),
            Ok(Err(error)) => Err(Failure::new(&self.name, None, error)),
            Err(panic) => Err(Failure::of_panic(&self.name, None, &panic_message(&*panic))),
        }
    }
}

impl StepOutcome {
    /// Failures that are kept. What fails five times a second, for days, does so for few reasons.
    const FAILURES: usize = 16;

    fn add(&mut self, done: Result<Vec<PathBuf>, Failure>) {
        match done {
            Ok(files) => self.files.extend(files),
            Err(failure) => {
                let text = failure.to_string();
                let known = self.failures.iter().any(|known| known.to_string() == text);
                if !known && self.failures.len() < Self::FAILURES {
                    tracing::error!(%failure, "kernspan: export of steps failed");
                    self.failures.push(failure);
                }
            }
        }
    }
}

impl fmt::Debug for NamedSteps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.name.fmt(f)
    }
}

const _: () = assert!(Counters::MOST < StepSender::CAPACITY, "a step with all its counters fits");
