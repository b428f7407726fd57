//! The thread that reads CUPTI's buffers, and completes each closed window with the records of its launches.

use super::{
    buffer::Buffer,
    claim::Claim,
    closed::Closed,
    decode::decode,
    message::Message,
    names::{self, LiveNames},
    sink::Sink,
    source::Source,
};
use crate::{
    budget::Budget,
    gpu::{
        GpuSource,
        calls::{Call, Calls, Role},
        gather::Gathered,
    },
    recording::{Function, GpuRecord, GpuRecording, HandOn, Pool, RawRecords, Record, Recording, ThreadRecords},
    schedule::WaitLength,
    trace::{GpuCounters, Losses},
};
use cupti_sys::flush;
use rustc_hash::FxHashMap;
use std::{
    collections::{HashMap, VecDeque},
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
        mpsc::{Receiver, RecvTimeoutError},
    },
    time::{Duration, Instant},
};

/// The state of the GPUs when a window opened.
#[derive(Debug, Default)]
struct Opening {
    pools: HashMap<u32, Pool>,
    /// The highest correlation id of a call entered before.
    last_before: u32,
}

/// The state of the reader's thread.
pub(super) struct Reader {
    source: Arc<Source>,
    sink: &'static Sink,
    messages: Receiver<Message>,
    hand_on: HandOn,
    names: LiveNames,
    functions: HashMap<Function, Arc<str>>,
    contexts: FxHashMap<u32, u32>,
    gathered: Gathered,
    /// The windows that are open or about to open, and those that are closed but incomplete.
    open: VecDeque<Opening>,
    /// The windows that are closed but incomplete.
    closed: VecDeque<Closed>,
    budget: Arc<Budget>,
    /// The bytes reserved for the gathered records.
    reserved: usize,
    losses: Losses,
    finishing: bool,
    /// Whether the records of a kernel were given up on, since it may run forever.
    stuck: bool,
    /// When the last record of work arrived.
    arrived: Instant,
    /// The bytes of the records, if they are to be kept.
    raw: Option<RawRecords>,
    /// The length of the wait that has begun.
    wait: WaitLength,
    /// When to detach CUPTI, unless a window opens before.
    detach_at: Option<Instant>,
    /// Held until CUPTI has been detached.
    claim: Option<Claim>,
    /// Changes whenever the thread makes progress.
    progress: Arc<AtomicU64>,
}

impl Reader {
    /// How long to wait for the next step before CUPTI is detached in the middle of one.
    const UNTIL_NEXT_STEP: Duration = Duration::from_secs(1);
    /// How long CUPTI continues to record for a window that has closed, if graphs were launched in it.
    const GRAPHS_TIMEOUT: Duration = Duration::from_secs(1);

    pub(super) fn new(
        source: Arc<Source>,
        sink: &'static Sink,
        messages: Receiver<Message>,
        hand_on: HandOn,
        budget: Arc<Budget>,
        claim: Claim,
        progress: Arc<AtomicU64>,
    ) -> Self {
        Self {
            raw: source.keeps_raw().then(RawRecords::default),
            source,
            sink,
            messages,
            hand_on,
            names: LiveNames::default(),
            functions: HashMap::new(),
            contexts: FxHashMap::default(),
            gathered: Gathered::default(),
            open: VecDeque::new(),
            closed: VecDeque::new(),
            budget,
            reserved: 0,
            losses: Losses::default(),
            finishing: false,
            stuck: false,
            arrived: Instant::now(),
            wait: WaitLength::Unknown,
            detach_at: None,
            claim: Some(claim),
            progress,
        }
    }

    /// Runs until the last window is complete; returns the losses that belong to no window.
    pub(super) fn run(mut self) -> Losses {
        let done = catch_unwind(AssertUnwindSafe(|| self.read_on()));
        if let Err(panic) = done {
            // A bug of ours with the GPU must not cost the spans.
            self.pass_on();
            self.sink.close();
            resume_unwind(panic);
        }
        self.sink.close();
        self.losses
    }

    fn read_on(&mut self) {
        loop {
            match self.wait() {
                Ok(message) => self.take(message),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => self.finishing = true,
            }
            self.complete();
            if self.finishing && self.closed.is_empty() {
                return self.source.detach_for_good(self.stuck, self.claim.take());
            }
            self.detach_if_due();
        }
    }

    /// Passes windows on as they come, without GPU records.
    fn pass_on(&mut self) {
        for closed in std::mem::take(&mut self.closed) {
            (self.hand_on)(*closed.recording);
        }
        while let Ok(message) = self.messages.recv() {
            match message {
                Message::Collected(recording) => (self.hand_on)(*recording),
                Message::Finish => return,
                _ => {}
            }
        }
    }

    fn wait(&self) -> Result<Message, RecvTimeoutError> {
        if let Some(closed) = self.closed.front() {
            return self.messages.recv_timeout(closed.poll_interval());
        }
        match self.detach_at.filter(|_| self.open.is_empty()) {
            Some(at) => self.messages.recv_timeout(at.saturating_duration_since(Instant::now())),
            None => self.messages.recv().map_err(|_| RecvTimeoutError::Disconnected),
        }
    }

    fn take(&mut self, message: Message) {
        self.progress.fetch_add(1, Ordering::Relaxed);
        match message {
            Message::Filled(buffer, valid) => self.read(buffer, valid),
            Message::Opening(pools) => {
                self.open.push_back(Opening { pools, last_before: 0 });
                self.detach_at = None;
            }
            Message::Opened { last_before } => {
                if let Some(opening) = self.open.back_mut() {
                    opening.last_before = last_before;
                }
            }
            Message::Idle(wait) => {
                self.wait = wait;
                // If a window is incomplete, this is planned once it is complete.
                if self.open.is_empty() {
                    self.plan_detach(Duration::ZERO, 0);
                }
            }
            Message::Collected(recording) => self.close(recording),
            Message::Finish => self.finishing = true,
        }
    }

    fn read(&mut self, buffer: Buffer, valid: usize) {
        // If no window is open or incomplete, the records belong to none.
        if !self.open.is_empty() || !self.closed.is_empty() {
            let (names, raw) = (&mut self.names, &mut self.raw);
            // SAFETY: CUPTI filled the buffer with this many bytes and returned it.
            let mut records = unsafe { self.source.cupti().records(buffer.bytes(valid)) };
            for record in &mut records {
                let mut name = |address| {
                    let name = names.kernel(address);
                    raw.iter_mut().for_each(|raw| raw.name(address, &name.1));
                    name
                };
                let decoded = decode(record, &mut name);
                raw.iter_mut().filter(|_| !self.budget.is_spent_at(usize::MAX)).for_each(|raw| raw.add(record));
                match decoded {
                    Ok(Some(_)) if self.budget.is_spent_at(usize::MAX) => self.losses.gpu_over_memory += 1,
                    Ok(Some(record)) => {
                        if let GpuRecord::Work(work) = &record {
                            self.contexts.insert(work.context, work.device);
                            self.arrived = Instant::now();
                        }
                        self.gathered.add(record);
                    }
                    Ok(None) => {}
                    Err(_) => self.losses.gpu_unreadable += 1,
                }
            }
            self.losses.gpu_unreadable += u64::from(records.is_cut_short());
            self.reserve();
        }
        self.sink.give_back(buffer);
    }

    fn reserve(&mut self) {
        let raw = self.raw.as_ref().map_or(0, RawRecords::bytes);
        let bytes = self.gathered.bytes() + raw;
        self.budget.take(bytes.saturating_sub(self.reserved));
        self.reserved = self.reserved.max(bytes);
    }

    /// Begins to wait for the records of a window.
    fn close(&mut self, recording: Box<Recording>) {
        let mut calls = self.calls(&recording);
        calls.last_before = self.open.get(self.closed.len()).map_or(0, |opening| opening.last_before);
        let stepping = recording.window.steps.last().map(|step| step.thread.id);
        let calls_of =
            |thread: &ThreadRecords| thread.chunks.iter().flatten().any(|record| matches!(record, Record::Call(_)));
        let mut calling = recording.threads.iter().filter(|thread| calls_of(thread));
        self.source.set_alone(calling.all(|thread| Some(thread.thread.id) == stepping));
        self.closed.push_back(Closed::new(recording, calls));
    }

    /// Returns the calls that the threads made in a window.
    fn calls(&mut self, recording: &Recording) -> Calls {
        let window = &recording.window;
        let close = window.close.ticks;
        let (functions, cupti) = (&mut self.functions, self.source.cupti());
        let mut role = |function: Function| {
            let name =
                functions.entry(function).or_insert_with(|| names::function(cupti, function.0.into(), function.1));
            Role::of(name)
        };
        let threads: Vec<Vec<Call>> = recording
            .threads
            .iter()
            .map(|thread| {
                let records = thread.chunks.iter().flatten();
                let calls = records.filter_map(|record| match *record {
                    Record::Call(call) if call.start <= close => {
                        let role = if call.is_before_window() {
                            Role::BeforeWindow
                        } else {
                            role((call.api, call.function.into()))
                        };
                        Some(Call { correlation: call.correlation, role, failed: call.result != 0 })
                    }
                    _ => None,
                });
                calls.collect()
            })
            .collect();
        Calls::new(window.open.unix..window.close.unix, threads)
    }

    /// Passes on the windows that are complete.
    fn complete(&mut self) {
        while let Some(mut closed) = self.closed.pop_front() {
            self.progress.fetch_add(1, Ordering::Relaxed);
            self.flush(0);
            let missing = self.gathered.missing(&closed.calls);
            let now = Instant::now();
            if !closed.is_done(missing, now, self.arrived, self.finishing) {
                let last = self.closed.back().unwrap_or(&closed);
                if now.duration_since(last.since) >= Self::GRAPHS_TIMEOUT {
                    self.source.finish_recording(self.expects_step());
                }
                self.closed.push_front(closed);
                return;
            }
            if missing.launches > 0 {
                self.give_up();
            }
            self.finish_window(closed);
        }
    }

    fn flush(&mut self, flags: u32) {
        self.source.flush(flags);
        while let Ok(message) = self.messages.try_recv() {
            self.take(message);
        }
    }

    /// Gives up waiting for the record of a kernel. At the end of the run, takes all available records. Earlier, that
    /// would cut off records still to come.
    fn give_up(&mut self) {
        self.stuck = true;
        if !self.finishing {
            return;
        }
        let before = self.losses.gpu_unreadable;
        self.flush(flush::FORCED);
        // Records without an end are counted as unfinished.
        self.losses.gpu_unreadable = before;
    }

    fn finish_window(&mut self, closed: Closed) {
        let Closed { mut recording, mut calls, .. } = closed;
        calls.followed = recording.window.followed;
        self.losses.gpu_dropped += self.source.dropped_records();
        let taken = self.gathered.take(&calls);
        let Opening { pools, .. } = self.open.pop_front().unwrap_or_default();
        self.source.finish_window();
        if self.open.is_empty() && self.closed.is_empty() {
            self.source.finish_recording(self.expects_step());
            self.gathered.clear();
            let (window, steps) = (&recording.window, recording.window.steps.len().max(1));
            let step = window.close.unix.since(window.open.unix) / u32::try_from(steps).unwrap_or(u32::MAX);
            self.plan_detach(step, calls.work_count() / steps as u64);
        }
        if calls.are_ambiguous() {
            // When CUPTI is attached again, it counts correlation ids from the beginning.
            self.detach_at = self.detach_at.map(|_| Instant::now());
        }
        let kept = self.gathered.bytes();
        let mut losses = std::mem::take(&mut self.losses);
        losses += taken.losses;
        let counters = self.source.take_counters(recording.window.open.unix..recording.window.close.unix);
        let counter_bytes = counters.iter().map(GpuCounters::bytes).sum();
        self.budget.take(counter_bytes);
        recording.gpu = GpuRecording {
            counters,
            gpu: self.source.gpu(),
            devices: self.source.devices(),
            functions: self.functions.clone(),
            pools,
            contexts: self.contexts.clone(),
            losses,
            charged: self.reserved.saturating_sub(kept) + counter_bytes,
            raw: self.raw.as_mut().map(std::mem::take),
            ..taken
        };
        self.reserved = self.reserved.min(kept);
        (self.hand_on)(*recording);
    }

    /// Plans when to detach CUPTI, based on how long a step took and how much it launched.
    fn plan_detach(&mut self, step: Duration, launches_per_step: u64) {
        let after = self.source.detach_policy().after(self.wait, step, launches_per_step);
        self.detach_at = Instant::now().checked_add(after);
    }

    /// Whether the program is expected to step: it is if the schedule gives the length of the wait.
    fn expects_step(&self) -> bool {
        self.wait != WaitLength::Unknown
    }

    /// Detaches CUPTI if it is time.
    fn detach_if_due(&mut self) {
        let is_time = self.detach_at.is_some_and(|at| at <= Instant::now());
        if is_time && self.open.is_empty() && self.closed.is_empty() {
            // Detaching waits for running kernels, so it is skipped if one may run forever.
            let done = self.stuck || self.source.detach(self.expects_step());
            self.detach_at = (!done).then(|| Instant::now() + Self::UNTIL_NEXT_STEP);
            // From now on, no step is expected.
            self.wait = WaitLength::Unknown;
        }
    }
}
