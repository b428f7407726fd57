//! The ledger of GPU memory: who holds what, in the whole run, whether or not a window is open.
//!
//! CUPTI calls back for each allocation and each free, on the thread that made the call. What is allocated is entered
//! with the spans open on the thread; what is freed is struck out. Nothing else is kept, so the ledger is as long as
//! the list of live allocations.

use crate::{
    analysis::{HeldAllocation, MemoryFrame, MemorySnapshot, SnapshotReason},
    host::{Host, OpenSpans},
    trace::{DeviceId, Timestamp},
};
use rustc_hash::FxHashMap;
use std::{
    cell::Cell,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
        mpsc::Sender,
    },
};

/// The live allocations on all GPUs.
#[derive(Debug)]
pub(crate) struct Ledger {
    host: Arc<Host>,
    /// By address, which is unique among all GPUs of a process. Threads that allocate at once rarely meet in a shard.
    shards: [Mutex<FxHashMap<u64, Holding>>; Ledger::SHARDS],
    stacks: Mutex<Stacks>,
    /// The bytes in use of each GPU, and the most since the last reset.
    used: [Used; Ledger::DEVICES],
    /// When an allocation last failed.
    failed: AtomicU64,
    /// The way to the thread that keeps snapshots.
    keeper: Sender<Wake>,
}

/// What wakes the thread that keeps snapshots.
#[derive(Debug)]
pub(crate) enum Wake {
    /// The snapshot of an allocation that failed.
    Failed(Box<MemorySnapshot>),
    /// More is in use than the [alarm](Ledger::set_alarm) says.
    Alarm,
    /// The end of the run.
    End,
}

/// One live allocation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Holding {
    bytes: u64,
    at: Timestamp,
    step: u64,
    stack: u32,
    device: DeviceId,
}

/// The bytes in use of a GPU, on a cache line of its own.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Used {
    now: AtomicU64,
    peak: AtomicU64,
    /// The bytes in use above which the thread that keeps snapshots is woken, once; 0 for never.
    alarm: AtomicU64,
}

/// The stacks of spans that have allocated, each once.
#[derive(Debug)]
struct Stacks {
    indices: FxHashMap<Arc<[MemoryFrame]>, u32>,
    all: Vec<Arc<[MemoryFrame]>>,
}

impl Stacks {
    /// The most stacks that are told apart, since names of spans may be made up at run time without end. It is far more
    /// than a program has spans in its source.
    const MOST: usize = 1 << 16;
    /// The index of the empty stack, which also stands for those that are too many.
    const NONE: u32 = 0;

    fn new() -> Self {
        let none: Arc<[MemoryFrame]> = Arc::default();
        Self { indices: FxHashMap::from_iter([(Arc::clone(&none), Self::NONE)]), all: vec![none] }
    }

    fn index(&mut self, frames: Vec<MemoryFrame>) -> u32 {
        match self.indices.get(&frames[..]) {
            Some(&index) => index,
            None if self.all.len() >= Self::MOST => Self::NONE,
            None => {
                let (index, frames) = (self.all.len() as u32, Arc::<[_]>::from(frames));
                self.all.push(Arc::clone(&frames));
                self.indices.insert(frames, index);
                index
            }
        }
    }
}

thread_local! {
    /// The open spans that this thread last allocated in, for which ledger, and the index of their stack.
    static LATEST: Cell<(usize, u64, u32)> = const { Cell::new((0, 0, Stacks::NONE)) };
}

impl Ledger {
    const SHARDS: usize = 16;
    /// The number of GPUs that are told apart: as many as a machine has. Those beyond count as the last.
    const DEVICES: usize = 16;

    pub(crate) fn new(host: Arc<Host>, keeper: Sender<Wake>) -> Self {
        Self {
            host,
            shards: Default::default(),
            stacks: Mutex::new(Stacks::new()),
            used: Default::default(),
            failed: AtomicU64::new(0),
            keeper,
        }
    }

    fn shard(&self, address: u64) -> MutexGuard<'_, FxHashMap<u64, Holding>> {
        // Addresses are multiples of 256 at least, and those of small allocations follow each other.
        lock(&self.shards[(address >> 8) as usize % Self::SHARDS])
    }

    fn used(&self, device: DeviceId) -> &Used {
        &self.used[(device.as_u32() as usize).min(Self::DEVICES - 1)]
    }

    /// Enters an allocation that this thread has made.
    pub(crate) fn allocate(&self, address: u64, bytes: u64, device: DeviceId) {
        self.enter(
            address,
            Holding { bytes, at: Timestamp::now(), step: self.host.steps(), stack: self.stack(), device },
        );
    }

    /// Strikes out an allocation that is about to be freed. Afterwards, another thread may be given the same address.
    pub(crate) fn free(&self, address: u64) -> Option<Holding> {
        // It is unknown if it was allocated before the ledger began.
        let holding = self.shard(address).remove(&address)?;
        self.used(holding.device).now.fetch_sub(holding.bytes, Ordering::Relaxed);
        Some(holding)
    }

    /// Enters an allocation that was to be freed, but was not.
    pub(crate) fn restore(&self, address: u64, holding: Holding) {
        self.enter(address, holding);
    }

    fn enter(&self, address: u64, holding: Holding) {
        let used = self.used(holding.device);
        let now = used.now.fetch_add(holding.bytes, Ordering::Relaxed).wrapping_add(holding.bytes);
        used.peak.fetch_max(now, Ordering::Relaxed);
        let alarm = used.alarm.load(Ordering::Relaxed);
        if alarm != 0 && now > alarm && used.alarm.swap(0, Ordering::Relaxed) != 0 {
            let _ = self.keeper.send(Wake::Alarm);
        }
        let before = self.shard(address).insert(address, holding);
        // Its free was not seen.
        if let Some(Holding { bytes, device, .. }) = before {
            self.used(device).now.fetch_sub(bytes, Ordering::Relaxed);
        }
    }

    /// Takes note of an allocation that failed for lack of memory. What is held is listed at once, since the program is
    /// likely to free it on its way out; but once a second at most, since it may also try again and again.
    #[cold]
    pub(crate) fn fail(&self, bytes: u64, device: DeviceId) {
        const PAUSE: u64 = 1_000_000_000;
        let (at, last) = (Timestamp::now().as_unix_nanos(), self.failed.load(Ordering::Relaxed));
        let is_due = last == 0 || at.saturating_sub(last) >= PAUSE;
        if is_due && self.failed.compare_exchange(last, at, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
            let frames = self.host.open_spans().map_or_else(Vec::new, |open| self.frames(&open));
            let snapshot = self.snapshot(SnapshotReason::AllocationFailed { device, bytes, frames });
            // The thread is gone if the run is over.
            let _ = self.keeper.send(Wake::Failed(Box::new(snapshot)));
        }
    }

    /// Sets the bytes in use above which the thread that keeps snapshots is woken: memory may fill up between two of
    /// its readings.
    pub(crate) fn set_alarm(&self, device: DeviceId, bytes: u64) {
        self.used(device).alarm.store(bytes, Ordering::Relaxed);
    }

    /// Returns the bytes in use of a GPU.
    pub(crate) fn bytes(&self, device: DeviceId) -> u64 {
        self.used(device).now.load(Ordering::Relaxed)
    }

    /// Returns the most bytes of a GPU that were in use since the last reset.
    pub(crate) fn peak(&self, device: DeviceId) -> u64 {
        self.used(device).peak.load(Ordering::Relaxed)
    }

    pub(crate) fn reset_peaks(&self) {
        self.used.iter().for_each(|used| used.peak.store(used.now.load(Ordering::Relaxed), Ordering::Relaxed));
    }

    /// Lists all live allocations.
    pub(crate) fn snapshot(&self, reason: SnapshotReason) -> MemorySnapshot {
        let (mut allocations, step) = (Vec::new(), self.host.steps());
        // Nothing is allocated or freed while the list is made, so that it is one of a moment.
        let shards = self.shards.each_ref().map(lock);
        let at = Timestamp::now();
        for (&address, holding) in shards.iter().flat_map(|shard| shard.iter()) {
            let &Holding { bytes, at, step, stack, device } = holding;
            allocations.push(HeldAllocation { device, address, bytes, step, at, stack });
        }
        drop(shards);
        let stacks = lock(&self.stacks).all.clone();
        MemorySnapshot::new(reason, step, at, allocations, stacks)
    }

    /// Returns the index of the stack of spans that are open on this thread.
    fn stack(&self) -> u32 {
        let own = std::ptr::from_ref(self).addr();
        let Some(open) = self.host.open_spans() else { return Stacks::NONE };
        let hash = open.hash();
        let (ledger, latest, stack) = LATEST.get();
        if ledger == own && latest == hash {
            return stack;
        }
        // Before the lock is taken: the subscriber is asked.
        let frames = self.frames(&open);
        let stack = lock(&self.stacks).index(frames);
        LATEST.set((own, hash, stack));
        stack
    }

    /// Describes the open spans, innermost first.
    fn frames(&self, open: &OpenSpans) -> Vec<MemoryFrame> {
        open.ids().iter().rev().filter_map(|&id| self.host.describe(id)).collect()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
