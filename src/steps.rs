//! What is known of every step, on its way from the thread that ends it to those who want it.
//!
//! The thread writes a few words into a ring; another one reads them, several times a second. If nobody wants to know, there is neither.

use crate::{
    clock::{Anchor, Ticks, Timeline},
    delivery::Delivery,
    export::{ExportResult, StepExporter, StepSummary},
    failure::{Failure, panic_message},
    host::{Counters, Host},
    schedule::Phase,
    thread::spawn,
    trace::Timestamp,
};
use rtrb::{Consumer, Producer, RingBuffer};
use std::{
    fmt, io,
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
    ending: Sender<Panicked>,
}

/// Said before the end if the run ends in a panic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Panicked;

/// What came of it.
#[derive(Debug, Default)]
pub(crate) struct StepOutcome {
    pub(crate) files: Vec<PathBuf>,
    pub(crate) failures: Vec<Failure>,
    pub(crate) deliveries: Vec<Delivery>,
}

impl StepThread {
    /// Starts it for `exporters`. Step 0 begins now.
    pub(crate) fn start(host: Arc<Host>, exporters: Vec<NamedSteps>) -> io::Result<(StepSender, Self)> {
        let (producer, ring) = RingBuffer::new(StepSender::CAPACITY);
        let anchor = host.clock().anchor();
        let sender = StepSender { ring: producer, start: anchor.ticks };
        let (ending, ended) = mpsc::channel();
        let reader = StepReader {
            host,
            ring,
            anchors: vec![anchor],
            last: LastEnd { ticks: anchor.ticks, moment: anchor.unix },
            counters: Vec::new(),
            exporters,
            outcome: StepOutcome::default(),
        };
        let thread = spawn("kernspan-steps", move || reader.run(&ended))?;
        Ok((sender, Self { thread, ending }))
    }

    /// Waits until all steps have been told of, and those who want them have finished.
    pub(crate) fn join(self) -> StepOutcome {
        if std::thread::panicking() {
            // If nobody hears it, the thread has panicked itself, which is told of below.
            let _ = self.ending.send(Panicked);
        }
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
    last: LastEnd,
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

    fn run(mut self, ended: &Receiver<Panicked>) -> StepOutcome {
        loop {
            let heard = ended.recv_timeout(Self::EVERY);
            let (over, panicked) = (heard != Err(RecvTimeoutError::Timeout), heard.is_ok());
            self.add_anchor(self.host.clock().anchor());
            let steps = self.read();
            for named in &mut self.exporters {
                let done = named.run(|exporter| exporter.steps(&steps).map(|()| Vec::new()));
                self.outcome.add(done);
            }
            if over {
                for named in &mut self.exporters {
                    let done = named.run(|exporter| {
                        if panicked {
                            exporter.panicked();
                        }
                        exporter.finish()
                    });
                    self.outcome.add(done);
                    match catch_unwind(AssertUnwindSafe(|| named.exporter.deliveries())) {
                        Ok(deliveries) => self.outcome.deliveries.extend(deliveries),
                        Err(panic) => {
                            self.outcome.add(Err(Failure::of_panic(&named.name, None, &panic_message(&*panic))));
                        }
                    }
                }
                return self.outcome;
            }
        }
    }

    /// All steps that have ended.
    fn read(&mut self) -> Vec<StepSummary> {
        let timeline = self.host.clock().timeline(&self.anchors);
        let mut steps = Vec::new();
        // Not those that end meanwhile, which may be without end.
        for _ in 0..self.ring.slots() {
            match self.ring.pop() {
                Ok(Sign::Counter(name, value)) => self.counters.push((name, value)),
                Ok(Sign::Step(step)) => {
                    let signs = StepSummary {
                        number: step.number,
                        phase: step.phase,
                        start: self.last.start_of(step.start, &timeline),
                        duration: timeline.between(step.start, step.end),
                        ended: step.by_step,
                        counters: std::mem::take(&mut self.counters),
                    };
                    self.last = LastEnd { ticks: step.end, moment: signs.end() };
                    steps.push(signs);
                }
                Err(_) => break,
            }
        }
        steps
    }

    fn add_anchor(&mut self, now: Anchor) {
        let apart = |last: &Anchor| now.unix.since(last.unix) >= Self::ANCHORS_APART || now.unix < last.unix;
        if self.anchors.last().is_none_or(apart) {
            self.anchors.push(now);
            if self.anchors.len() > Self::ANCHORS {
                self.anchors.remove(0);
            }
        }
    }
}

/// When the last step ended.
#[derive(Clone, Copy, Debug)]
struct LastEnd {
    ticks: Ticks,
    moment: Timestamp,
}

impl LastEnd {
    /// How far what is told of steps may be from the wall clock. More than that, and somebody has set the clock, or errors of the rate have added up.
    const OFF: Duration = Duration::from_millis(5);

    /// When a step began: when the last one ended, as it was told, so that there is no gap between them; unless the wall clock knows better.
    fn start_of(&self, ticks: Ticks, timeline: &Timeline) -> Timestamp {
        let wall = timeline.at_any(ticks);
        let off = wall.since(self.moment).max(self.moment.since(wall));
        if ticks == self.ticks && off < Self::OFF { self.moment } else { wall }
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

#[cfg(test)]
mod tests {
    use super::{Ended, LastEnd, Sign, StepOutcome, StepReader};
    use crate::{
        clock::{Anchor, Clock, Ticks},
        export::StepSummary,
        host::Host,
        schedule::Phase,
        trace::Timestamp,
    };
    use rtrb::RingBuffer;
    use std::{sync::Arc, time::Duration};

    const MILLI: u64 = 1_000_000;
    const HOUR: u64 = 3_600_000 * MILLI;

    /// What is told of steps of 100 ms while the wall clock is set by `jump` nanoseconds after a second, two seconds long. A tick is a nanosecond.
    fn told_while_the_clock_is_set(jump: i64) -> Vec<StepSummary> {
        let host = Arc::new(Host::new(Clock::mock(), 64, 64, true));
        let wall = |ticks: u64| {
            let unix = 10 * HOUR + ticks;
            Timestamp::from_unix_nanos(if ticks > 1000 * MILLI { unix.saturating_add_signed(jump) } else { unix })
        };
        let anchor = |ticks: u64| Anchor { ticks: Ticks(ticks), unix: wall(ticks) };
        let (mut steps, ring) = RingBuffer::new(64);
        let mut reader = StepReader {
            host,
            ring,
            anchors: vec![anchor(0)],
            last: LastEnd { ticks: Ticks(0), moment: wall(0) },
            counters: Vec::new(),
            exporters: Vec::new(),
            outcome: StepOutcome::default(),
        };
        let mut told = Vec::new();
        for number in 0..20 {
            let (start, end) = (Ticks(number * 100 * MILLI), Ticks((number + 1) * 100 * MILLI));
            steps.push(Sign::Step(Ended { number, phase: Phase::Wait, start, end, by_step: true })).unwrap();
            // Looked at after every other step.
            if number % 2 == 1 {
                reader.add_anchor(anchor(end.0 + MILLI));
                told.extend(reader.read());
            }
        }
        told
    }

    #[test]
    fn steps_take_as_long_as_they_do_when_the_wall_clock_is_set() {
        for jump in [0, HOUR.cast_signed(), -HOUR.cast_signed(), 40 * MILLI.cast_signed()] {
            let told = told_while_the_clock_is_set(jump);
            assert_eq!(told.len(), 20);
            for step in &told {
                let error = step.duration.abs_diff(Duration::from_millis(100));
                assert!(error < Duration::from_micros(1), "{jump}: {step:?}");
            }
            // It is followed, if not at once; where it was not set, there is no gap.
            let off = told[19].end().as_unix_nanos().cast_signed() - (10 * HOUR + 2000 * MILLI).cast_signed() - jump;
            assert!(off.unsigned_abs() < MILLI, "{jump}: off by {off} ns");
            let gaps = told.windows(2).filter(|pair| pair[0].end() != pair[1].start).count();
            assert_eq!(gaps, usize::from(jump != 0), "{jump}");
        }
    }
}
