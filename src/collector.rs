//! The collector: a background thread that drains the lanes while a window is open, and passes on each closed window.
//!
//! It must never fall behind, or lanes overflow. So correlating and exporting, which may be slow, run on another
//! thread.

use crate::{
    budget::Budget,
    clock::{Anchor, Timeline},
    cpu_time::{ThreadMeter, ThreadUsage},
    host::{Host, LaneReader},
    recording::{ClosedWindow, GpuRecording, HandOn, Record, Recording, RegistryId, ThreadRecords},
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

/// The records of one lane, on their way into a window.
struct Intake {
    lane: LaneReader,
    /// The window the thread writes for.
    window: Option<u32>,
    /// Spans that were open in windows that the thread is joining. They are used once the thread has written all of
    /// them: until then the thread has not resumed, and its stack says the same.
    joining: Vec<(u32, Vec<Record>)>,
    chunks: Vec<Vec<Record>>,
    /// The memory cost of the window's records in bytes.
    cost: usize,
    /// The part of the cost that has been reserved.
    reserved: usize,
    /// The number of open spans, including dropped ones.
    depth: usize,
    /// Spans that were dropped for lack of memory and have not been exited.
    skipped: Vec<RegistryId>,
    /// Whether the last record other than a field was dropped, so that its fields are dropped, too.
    skipping: bool,
    /// Whether the last record came too late and has been counted together with the fields that follow.
    late_owner: bool,
}

impl Intake {
    /// The number of records in a thread's first chunk of a window, and the most in a later one. Each chunk has room
    /// for as many as all before it, so that a thread with few records takes little memory, and none are ever moved.
    const CHUNK: (usize, usize) = (16, 1024);
    /// The cost that is reserved at a time, so that the collector and the other threads seldom contend for the counter.
    const RESERVED_AT_ONCE: usize = 4096;

    fn new(lane: LaneReader) -> Self {
        Self {
            lane,
            window: None,
            joining: Vec::new(),
            chunks: Vec::new(),
            cost: 0,
            reserved: 0,
            depth: 0,
            skipped: Vec::new(),
            skipping: false,
            late_owner: false,
        }
    }

    /// Reads everything available. `next` is the first window that has not been passed on.
    fn drain(&mut self, next: u32, budget: &Budget, gathered: &mut Vec<(u32, ThreadRecords)>, losses: &mut Losses) {
        while let Some(record) = self.lane.read() {
            match record {
                Record::Join { window } => self.joining.push((window, Vec::new())),
                Record::Joined => {
                    for (window, open) in std::mem::take(&mut self.joining) {
                        gathered.extend(self.take(budget));
                        self.window = Some(window);
                        self.depth = 0;
                        self.skipped.clear();
                        // Spans that were open throughout a window that has been passed on are already in it.
                        let is_collected = window < next;
                        open.into_iter().filter(|_| !is_collected).for_each(|record| self.add(record, budget, losses));
                    }
                }
                _ => match self.joining.last_mut() {
                    Some((_, open)) => open.push(record),
                    None if self.window.is_some_and(|window| window >= next) => self.add(record, budget, losses),
                    None => self.count_late(&record, losses),
                },
            }
        }
        self.reserve(budget);
    }

    /// Counts a record for a window that has been passed on as lost: a span, an event, or the fields of one that was
    /// kept.
    fn count_late(&mut self, record: &Record, losses: &mut Losses) {
        let fields = match record {
            Record::Field(_) => 1,
            Record::Fields(fields) => fields.len() as u64,
            _ => 0,
        };
        losses.fields += if self.late_owner { 0 } else { fields };
        let is_owner = matches!(
            record,
            Record::Enter { .. }
                | Record::Event { .. }
                | Record::Update { .. }
                | Record::Follows { .. }
                | Record::Call(_)
                | Record::Memory(_)
                | Record::Operation { .. }
                | Record::Collective { .. }
        );
        losses.late += u64::from(is_owner);
        // The fields that follow are counted with this one.
        self.late_owner = is_owner || fields > 0;
    }

    fn add(&mut self, record: Record, budget: &Budget, losses: &mut Losses) {
        self.late_owner = false;
        if self.keeps(&record, budget, losses) {
            self.push(record, budget);
        }
    }

    /// Takes the records that were read for the thread's window.
    fn take(&mut self, budget: &Budget) -> Option<(u32, ThreadRecords)> {
        let window = self.window.filter(|_| !self.chunks.is_empty())?;
        self.reserve(budget);
        let (chunks, charged) = (std::mem::take(&mut self.chunks), std::mem::take(&mut self.reserved));
        self.cost = 0;
        Some((window, ThreadRecords { thread: self.lane.thread().clone(), chunks, charged }))
    }

    fn push(&mut self, record: Record, budget: &Budget) {
        self.cost += record.cost();
        match self.chunks.last_mut() {
            Some(chunk) if chunk.len() < chunk.capacity() => chunk.push(record),
            last => {
                let (first, most) = Self::CHUNK;
                let records = last.map_or(first, |last| (2 * last.capacity()).min(most));
                self.cost += records * Record::SIZE;
                self.cost += if self.chunks.is_empty() { ThreadRecords::cost(&self.lane.thread().name) } else { 0 };
                let mut chunk = Vec::with_capacity(records);
                chunk.push(record);
                self.chunks.push(chunk);
            }
        }
        if self.cost - self.reserved >= Self::RESERVED_AT_ONCE {
            self.reserve(budget);
        }
    }

    /// Reserves the cost that has not been reserved yet.
    fn reserve(&mut self, budget: &Budget) {
        if self.cost > self.reserved {
            budget.take(self.cost - self.reserved);
            self.reserved = self.cost;
        }
    }

    /// Whether the record is kept: there is memory for it, or it belongs to a record that was kept. A span is dropped
    /// as a whole.
    fn keeps(&mut self, record: &Record, budget: &Budget, losses: &mut Losses) -> bool {
        match *record {
            Record::Field(_)
            | Record::Fields(_)
            | Record::Context { .. }
            | Record::Unsampled { .. }
            | Record::Parent { .. }
            | Record::CpuStart { .. }
            | Record::Backtrace(_) => return !self.skipping,
            Record::CpuEnd { id, .. } => return !self.skipped.contains(&id),
            Record::ContextOf { id } => self.skipping = self.skipped.contains(&id),
            // Without it, calls would be attributed to the wrong spans.
            Record::Adopt(_) => return true,
            Record::Exit { id, .. } => {
                self.depth = self.depth.saturating_sub(1);
                let index = self.skipped.iter().rposition(|skipped| *skipped == id);
                self.skipping = index.map(|index| self.skipped.remove(index)).is_some();
            }
            Record::Enter { id, .. } | Record::Open { id, .. } => {
                self.skipping = budget.is_spent_at(self.depth);
                self.depth += 1;
                if self.skipping {
                    losses.over_memory += 1;
                    self.skipped.push(id);
                }
            }
            _ => {
                self.skipping = budget.is_spent_at(usize::MAX);
                losses.over_memory += u64::from(self.skipping);
            }
        }
        !self.skipping
    }
}
