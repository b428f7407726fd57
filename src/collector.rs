//! The collector: a background thread that drains the lanes while a window is open, and passes on each closed window.
//!
//! It must never fall behind, or lanes overflow. So correlating and exporting, which may be slow, run on another
//! thread.

mod intake;

use self::intake::Intake;
use crate::{
    budget::Budget,
    clock::{Anchor, Timeline},
    cpu_time::{ThreadMeter, ThreadUsage},
    host::Host,
    recording::{ClosedWindow, GpuRecording, HandOn, Record, Recording, ThreadRecords},
    trace::Losses,
};
use std::{
    sync::{
        Arc,
        mpsc::{Receiver, RecvTimeoutError},
    },
    time::{Duration, Instant},
};

/// A message from the session to the collector.
#[derive(Debug)]
pub(crate) enum Command {
    Opened,
    Closed(Box<ClosedWindow>),
    /// The run ends. `lost_steps` were dropped for lack of memory, and no window has counted them.
    Finish {
        lost_steps: u64,
    },
}

/// The collector's state: it reads all lanes and assembles the records of each closed window.
pub(crate) struct Collector {
    host: Arc<Host>,
    commands: Receiver<Command>,
    hand_on: HandOn,
    intakes: Vec<Intake>,
    /// Records for a window that has not been passed on, from threads that are gone or already in the next window.
    gathered: Vec<(u32, ThreadRecords)>,
    /// Readings of both clocks taken while a window was open.
    anchors: Vec<Anchor>,
    /// When both clocks were last read.
    anchored: Option<Instant>,
    /// Whether a window is open.
    open: bool,
    /// Windows below this one have been passed on.
    next: u32,
    budget: Arc<Budget>,
    losses: Losses,
    /// The reader of the threads' CPU time, if that is wanted.
    threads: Option<ThreadMeter>,
}

impl Collector {
    /// How often lanes are drained: a lane of the default capacity then takes thirty million records a second.
    const EVERY: Duration = Duration::from_millis(2);
    /// How often both clocks are read.
    const ANCHORS_EVERY: Duration = Duration::from_millis(100);
    /// How many clock readings are kept.
    const ANCHORS: usize = 4096;
    /// How long a thread may take to write a record of something that happened before the window closed.
    const GRACE: Duration = Duration::from_millis(2);
    /// How long a thread may be inside a call to a device's API: launches wait while the device's queue is full.
    const GRACE_IN_CALL: Duration = Duration::from_millis(100);

    pub(crate) fn new(
        host: Arc<Host>,
        commands: Receiver<Command>,
        hand_on: HandOn,
        budget: Arc<Budget>,
        threads: Option<ThreadMeter>,
    ) -> Self {
        Self {
            host,
            commands,
            hand_on,
            intakes: Vec::new(),
            gathered: Vec::new(),
            anchors: Vec::new(),
            anchored: None,
            open: false,
            next: 0,
            budget,
            losses: Losses::default(),
            threads,
        }
    }

    /// Runs until the session sends [`Command::Finish`] or is gone. Returns the losses that no window could report.
    pub(crate) fn run(mut self) -> Losses {
        loop {
            let command = if self.open {
                match self.commands.recv_timeout(Self::EVERY) {
                    Ok(command) => command,
                    Err(RecvTimeoutError::Timeout) => {
                        self.drain();
                        self.take_anchor();
                        continue;
                    }
                    Err(RecvTimeoutError::Disconnected) => Command::Finish { lost_steps: 0 },
                }
            } else {
                self.commands.recv().unwrap_or(Command::Finish { lost_steps: 0 })
            };
            match command {
                Command::Opened => {
                    self.open = true;
                    self.threads.iter_mut().for_each(ThreadMeter::open);
                }
                Command::Closed(window) => {
                    let thread_usage = self.threads.as_mut().map_or_else(Vec::new, ThreadMeter::close);
                    std::thread::sleep(Self::GRACE.saturating_sub(window.closed.elapsed()));
                    self.drain_until_calls_return(&window);
                    self.hand_on(*window, thread_usage);
                    // If the next window is already open, its `Opened` is still in the queue.
                    self.open = false;
                }
                Command::Finish { lost_steps } => {
                    self.drain();
                    self.take_losses();
                    self.losses.over_memory += lost_steps;
                    return self.losses;
                }
            }
        }
    }

    fn drain(&mut self) {
        self.intakes.extend(self.host.take_new_lanes().into_iter().map(Intake::new));
        let ended: Vec<_> = self
            .intakes
            .extract_if(.., |intake| {
                // Read first, so that records a thread writes before it ends are read below.
                let has_ended = intake.lane.has_ended();
                intake.drain(self.next, &self.budget, &mut self.gathered, &mut self.losses);
                has_ended
            })
            .collect();
        for mut intake in ended {
            self.gathered.extend(intake.take(&self.budget));
            self.losses.lane_full += intake.lane.take_dropped();
            self.host.reuse(intake.lane);
        }
    }

    /// Drains until no thread is in a call of the window, or [`GRACE_IN_CALL`](Self::GRACE_IN_CALL) has passed.
    fn drain_until_calls_return(&mut self, window: &ClosedWindow) {
        self.drain();
        loop {
            // Read first, so that records a thread writes before it returns are read below.
            let in_call = self.intakes.iter().any(|intake| intake.lane.is_in_call(window.index));
            self.drain();
            // A call that takes longer counts as late when it returns.
            if !in_call || window.closed.elapsed() >= Self::GRACE_IN_CALL {
                return;
            }
            std::thread::sleep(Self::EVERY);
        }
    }

    fn hand_on(&mut self, window: ClosedWindow, thread_usage: Vec<ThreadUsage>) {
        self.budget.take(thread_usage.len() * ThreadUsage::COST);
        for intake in &mut self.intakes {
            // A thread that has written nothing for this window, nor since, may still have open spans. Their stack is
            // read before the lane: if the thread resumes just now, it first writes its open spans itself.
            let silent = |intake: &Intake| intake.window.is_none_or(|joined| joined < window.index);
            let may_have_spans = intake.lane.was_in(window.index) && silent(intake);
            let open = if may_have_spans { self.host.open_on(&intake.lane) } else { Vec::new() };
            intake.drain(self.next, &self.budget, &mut self.gathered, &mut self.losses);
            if intake.window == Some(window.index) {
                self.gathered.extend(intake.take(&self.budget));
            } else if silent(intake) && !open.is_empty() {
                let thread = intake.lane.thread().clone();
                let records: usize = open.iter().map(|record| Record::SIZE + record.cost()).sum();
                let charged = records + ThreadRecords::cost(&thread.name);
                self.budget.take(charged);
                self.gathered.push((window.index, ThreadRecords { thread, chunks: vec![open], charged }));
            }
        }
        let threads = self.gathered.extract_if(.., |(index, _)| *index == window.index);
        let threads = threads.map(|(_, records)| records).collect();
        self.next = window.index + 1;
        self.host.set_collected(window.index);
        self.take_losses();
        let recording = Recording {
            timeline: self.timeline(&window),
            window,
            threads,
            losses: std::mem::take(&mut self.losses),
            gpu: GpuRecording::default(),
            thread_usage,
        };
        (self.hand_on)(recording);
    }

    /// Reads both clocks from time to time while a window is open.
    fn take_anchor(&mut self) {
        if self.anchored.is_none_or(|last| last.elapsed() >= Self::ANCHORS_EVERY) {
            self.anchors.push(self.host.clock().anchor());
            self.anchored = Some(Instant::now());
            // Drop every other reading, so that even a window of hours has only a few thousand anchors.
            if self.anchors.len() >= Self::ANCHORS {
                let mut keep = false;
                self.anchors.retain(|_| {
                    keep = !keep;
                    keep
                });
            }
        }
    }

    fn timeline(&mut self, window: &ClosedWindow) -> Timeline {
        let (open, close) = (window.open.ticks, window.close.ticks);
        let within = self.anchors.iter().filter(|anchor| open < anchor.ticks && anchor.ticks < close).copied();
        let anchors: Vec<_> = [window.open].into_iter().chain(within).chain([window.close]).collect();
        self.anchors.retain(|anchor| anchor.ticks >= close);
        self.host.clock().timeline(&anchors)
    }

    fn take_losses(&mut self) {
        self.losses += self.host.take_losses();
        self.losses.lane_full += self.intakes.iter().map(|intake| intake.lane.take_dropped()).sum::<u64>();
    }
}
