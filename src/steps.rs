//! Summaries of all steps, on their way from the thread that ends a step to the step exporters.
//!
//! The thread that ends a step writes a few words into a ring, and a background thread reads them several times a
//! second. If no exporter wants summaries, there is neither a ring nor a thread.

use crate::{
    clock::{Anchor, Ticks, Timeline},
    cpu_time::ProcessUsage,
    delivery::Delivery,
    export::{ExportResult, StepExporter, StepSummary},
    failure::{Failure, Failures, panic_message},
    host::{Counters, Host},
    memory::MemoryHistory,
    schedule::Phase,
    thread::spawn,
    trace::Timestamp,
    vitals::VitalsHistory,
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

/// An entry in the ring. The counters of a step come before the step.
#[derive(Clone, Copy, Debug)]
enum Entry {
    Counter(&'static str, f64),
    Step(EndedStep),
}

/// A step that has ended.
#[derive(Clone, Copy, Debug)]
struct EndedStep {
    number: u64,
    phase: Phase,
    start: Ticks,
    end: Ticks,
    /// Whether [`step`](crate::Profiler::step) ended it. If not, the run ended in the middle of it.
    by_step: bool,
}

/// The writing end of the ring.
#[derive(Debug)]
pub(crate) struct StepSender {
    ring: Producer<Entry>,
    /// When the current step began.
    start: Ticks,
}

impl StepSender {
    /// The number of entries in the ring: enough for a hundred thousand steps a second with one counter each.
    const CAPACITY: usize = 1 << 15;

    /// Writes the step that has ended. A step that does not fit is counted as lost, together with its counters.
    pub(crate) fn send(
        &mut self,
        host: &Host,
        number: u64,
        phase: Phase,
        end: Ticks,
        by_step: bool,
        usage: Option<ProcessUsage>,
    ) {
        let step = EndedStep { number, phase, start: self.start, end, by_step };
        let duration = host.clock().duration(end.0.saturating_sub(self.start.0));
        self.start = end;
        let Some(counters) = host.counters() else { return };
        counters.with(|latest| {
            usage.iter().flat_map(|usage| usage.counters(duration)).for_each(|(name, value)| latest.set(name, value));
            let values = latest.values();
            if by_step || !values.is_empty() {
                if self.ring.slots() > values.len() {
                    let entries = values.iter().map(|&(name, value)| Entry::Counter(name, value));
                    for entry in entries.chain([Entry::Step(step)]) {
                        // There is room for all of them.
                        let _ = self.ring.push(entry);
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

/// A step exporter, and the name under which its failures are reported.
pub(crate) struct NamedSteps {
    pub(crate) name: String,
    pub(crate) exporter: Box<dyn StepExporter>,
}

/// What background threads read over the run, if they do, for the summaries of steps.
#[derive(Debug, Default)]
pub(crate) struct FollowedSteps {
    pub(crate) memory: Option<Arc<MemoryHistory>>,
    pub(crate) vitals: Option<Arc<VitalsHistory>>,
}

impl FollowedSteps {
    /// Adds the counters of a step.
    fn add_to(&self, step: &mut StepSummary) {
        let (start, end) = (step.start, step.end());
        step.counters.extend(self.memory.iter().flat_map(|memory| memory.at(end)));
        step.counters.extend(self.vitals.iter().flat_map(|vitals| vitals.between(start, end)));
    }
}

/// The background thread that hands summaries of all steps to the step exporters.
#[derive(Debug)]
pub(crate) struct StepThread {
    thread: JoinHandle<StepOutcome>,
    /// Ends the thread when it is dropped.
    ending: Sender<Panicked>,
}

/// A message sent before the end if the run ends in a panic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Panicked;

/// The results of the step exporters.
#[derive(Debug, Default)]
pub(crate) struct StepOutcome {
    pub(crate) files: Vec<PathBuf>,
    pub(crate) failures: Failures,
    pub(crate) deliveries: Vec<Delivery>,
    /// A failure for each delivery that was partly lost.
    pub(crate) undelivered: Failures,
}

impl StepThread {
    /// Starts the thread for `exporters`. Step 0 begins now.
    pub(crate) fn start(
        host: Arc<Host>,
        exporters: Vec<NamedSteps>,
        followed: FollowedSteps,
    ) -> io::Result<(StepSender, Self)> {
        let (producer, ring) = RingBuffer::new(StepSender::CAPACITY);
        let anchor = host.clock().anchor();
        let sender = StepSender { ring: producer, start: anchor.ticks };
        let (ending, receiver) = mpsc::channel();
        let reader = StepReader {
            host,
            followed,
            ring,
            anchors: vec![anchor],
            previous_end: PreviousEnd { ticks: anchor.ticks, reported: anchor.unix },
            counters: Vec::new(),
            exporters,
            outcome: StepOutcome::default(),
        };
        let thread = spawn("kernspan-steps", move || reader.run(&receiver))?;
        Ok((sender, Self { thread, ending }))
    }

    /// Waits until all steps have been handed to the exporters, and the exporters have finished.
    pub(crate) fn join(self) -> StepOutcome {
        if std::thread::panicking() {
            // If nobody receives it, the thread itself has panicked, which is reported below.
            let _ = self.ending.send(Panicked);
        }
        drop(self.ending);
        self.thread.join().unwrap_or_else(|panic| StepOutcome {
            failures: [Failure::of_panic("kernspan", None, &panic_message(&*panic))].into_iter().collect(),
            ..StepOutcome::default()
        })
    }
}

/// The reading end of the ring, and the exporters that receive its steps.
struct StepReader {
    host: Arc<Host>,
    followed: FollowedSteps,
    ring: Consumer<Entry>,
    /// The most recent readings of both clocks.
    anchors: Vec<Anchor>,
    previous_end: PreviousEnd,
    /// The counters read so far for the next step.
    counters: Vec<(&'static str, f64)>,
    exporters: Vec<NamedSteps>,
    outcome: StepOutcome,
}

impl StepReader {
    /// The time between two reads of the ring. If the process is killed, the steps since the last read are lost.
    const EVERY: Duration = Duration::from_millis(200);
    /// The minimum time between two clock readings. A longer time gives a more exact rate.
    const ANCHORS_APART: Duration = Duration::from_millis(50);
    /// The number of readings kept. A step may have ended before the last one if its thread was delayed just then.
    const ANCHORS: usize = 3;

    /// Passes steps to the exporters until the run is over.
    fn run(mut self, ending: &Receiver<Panicked>) -> StepOutcome {
        loop {
            let received = ending.recv_timeout(Self::EVERY);
            let (over, panicked) = (received != Err(RecvTimeoutError::Timeout), received.is_ok());
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
                        Ok(deliveries) => {
                            for delivery in deliveries.iter().filter(|delivery| delivery.lost() > 0) {
                                let error = delivery.to_string().into();
                                self.outcome.undelivered.add(Failure::new(&named.name, None, error));
                            }
                            self.outcome.deliveries.extend(deliveries);
                        }
                        Err(panic) => {
                            self.outcome.add(Err(Failure::of_panic(&named.name, None, &panic_message(&*panic))));
                        }
                    }
                }
                return self.outcome;
            }
        }
    }

    /// Reads the summaries of all steps that have ended.
    fn read(&mut self) -> Vec<StepSummary> {
        let timeline = self.host.clock().timeline(&self.anchors);
        let mut steps = Vec::new();
        // Steps that end meanwhile are left for the next read, or this might never end.
        for _ in 0..self.ring.slots() {
            match self.ring.pop() {
                Ok(Entry::Counter(name, value)) => self.counters.push((name, value)),
                Ok(Entry::Step(step)) => {
                    let mut summary = StepSummary {
                        number: step.number,
                        phase: step.phase,
                        start: self.previous_end.start_of_next(step.start, &timeline),
                        duration: timeline.between(step.start, step.end),
                        ended: step.by_step,
                        counters: std::mem::take(&mut self.counters),
                    };
                    self.followed.add_to(&mut summary);
                    self.previous_end = PreviousEnd { ticks: step.end, reported: summary.end() };
                    steps.push(summary);
                }
                Err(_) => break,
            }
        }
        steps
    }

    /// Adds a reading of the clocks, unless the last one is too recent.
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

/// The end of the previous step.
#[derive(Clone, Copy, Debug)]
struct PreviousEnd {
    ticks: Ticks,
    /// The moment reported to the exporters.
    reported: Timestamp,
}

impl PreviousEnd {
    /// The allowed difference between reported moments and the wall clock. A larger one means that the wall clock was
    /// set, or that errors of the rate have accumulated.
    const TOLERANCE: Duration = Duration::from_millis(5);

    /// Returns the start of the next step. This is the reported end of the previous one, so that there is no gap
    /// between them, unless the wall clock differs too much.
    fn start_of_next(&self, ticks: Ticks, timeline: &Timeline) -> Timestamp {
        let wall = timeline.at_any(ticks);
        let difference = wall.since(self.reported).max(self.reported.since(wall));
        if ticks == self.ticks && difference < Self::TOLERANCE { self.reported } else { wall }
    }
}

impl NamedSteps {
    /// Calls the exporter, and turns an error or a panic into a failure.
    fn run(&mut self, f: impl FnOnce(&mut dyn StepExporter) -> ExportResult) -> Result<Vec<PathBuf>, Failure> {
        match catch_unwind(AssertUnwindSafe(|| f(&mut *self.exporter))) {
            Ok(Ok(files)) => Ok(files),
            Ok(Err(error)) => Err(Failure::new(&self.name, None, error)),
            Err(panic) => Err(Failure::of_panic(&self.name, None, &panic_message(&*panic))),
        }
    }
}

impl StepOutcome {
    /// Adds the files of an exporter, or its failure if that is a new one. An exporter that fails five times a second,
    /// for days, does so for few reasons.
    fn add(&mut self, done: Result<Vec<PathBuf>, Failure>) {
        match done {
            Ok(files) => self.files.extend(files),
            Err(failure) => self.failures.add_new(failure),
        }
    }
}

impl fmt::Debug for NamedSteps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.name.fmt(f)
    }
}

const _: () = assert!(Counters::MAX < StepSender::CAPACITY, "a step with all its counters fits");

#[cfg(test)]
mod tests {
    use super::{EndedStep, Entry, FollowedSteps, PreviousEnd, StepOutcome, StepReader};
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

    /// Returns the summaries of twenty steps of 100 ms. After a second, the wall clock is set by `jump` nanoseconds. A
    /// tick is a nanosecond.
    fn summaries_while_the_clock_is_set(jump: i64) -> Vec<StepSummary> {
        let host = Arc::new(Host::new(Clock::mock(), 64, 64, true));
        let wall = |ticks: u64| {
            let unix = 10 * HOUR + ticks;
            Timestamp::from_unix_nanos(if ticks > 1000 * MILLI { unix.saturating_add_signed(jump) } else { unix })
        };
        let anchor = |ticks: u64| Anchor { ticks: Ticks(ticks), unix: wall(ticks) };
        let (mut steps, ring) = RingBuffer::new(64);
        let mut reader = StepReader {
            host,
            followed: FollowedSteps::default(),
            ring,
            anchors: vec![anchor(0)],
            previous_end: PreviousEnd { ticks: Ticks(0), reported: wall(0) },
            counters: Vec::new(),
            exporters: Vec::new(),
            outcome: StepOutcome::default(),
        };
        let mut summaries = Vec::new();
        for number in 0..20 {
            let (start, end) = (Ticks(number * 100 * MILLI), Ticks((number + 1) * 100 * MILLI));
            steps.push(Entry::Step(EndedStep { number, phase: Phase::Wait, start, end, by_step: true })).unwrap();
            // The reader reads after every other step.
            if number % 2 == 1 {
                reader.add_anchor(anchor(end.0 + MILLI));
                summaries.extend(reader.read());
            }
        }
        summaries
    }

    #[test]
    fn steps_take_as_long_as_they_do_when_the_wall_clock_is_set() {
        for jump in [0, HOUR.cast_signed(), -HOUR.cast_signed(), 40 * MILLI.cast_signed()] {
            let summaries = summaries_while_the_clock_is_set(jump);
            assert_eq!(summaries.len(), 20);
            for step in &summaries {
                let error = step.duration.abs_diff(Duration::from_millis(100));
                assert!(error < Duration::from_micros(1), "{jump}: {step:?}");
            }
            // The wall clock is followed, if not at once. If it was not set, there is no gap.
            let off =
                summaries[19].end().as_unix_nanos().cast_signed() - (10 * HOUR + 2000 * MILLI).cast_signed() - jump;
            assert!(off.unsigned_abs() < MILLI, "{jump}: off by {off} ns");
            let gaps = summaries.windows(2).filter(|pair| pair[0].end() != pair[1].start).count();
            assert_eq!(gaps, usize::from(jump != 0), "{jump}");
        }
    }
}
