use crate::{
    device_thread::DeviceThread,
    memory::LiveMemory,
    operation::{Description, DescriptionCache, OperationKind},
    queue::Downstream,
    stream_origins::{StreamOrigins, ThreadOrigins},
};
use burn::backend::{
    fusion::observer::{BlockOperations, FusionObserver},
    ir::{OperationIr, TensorId},
};
use burn_std::{device_handle::DeviceHandle, stream::StreamId};
use kernspan::{
    framework::{HandOver, Origin, Uncounted},
    trace::Operation,
};
use rustc_hash::FxHashMap;
use std::{
    cell::RefCell,
    sync::atomic::{AtomicU32, Ordering},
};

thread_local! {
    static STATE: RefCell<Option<FusionThread>> = const { RefCell::new(None) };
}

/// The state of the thread that fuses a device's operations. It knows the origin of each operation from its
/// registration, and so the origins of the kernel that the operation becomes part of.
#[derive(Debug)]
pub(crate) struct FusionThread {
    streams: StreamOrigins,
    device_thread: DeviceThreadQueue,
    /// Operations that have not run yet, by their first output.
    registered: FxHashMap<TensorId, Registered>,
    /// The origin of the block of fused operations that is running.
    block: Option<Option<Origin>>,
    hand_over: HandOver,
    operations: DescriptionCache<Operation>,
    /// The number of operations without a description that earlier windows have reported.
    reported_uncached: u64,
    memory: Option<Memory>,
}

/// Who requested an operation.
#[derive(Clone, Copy, Debug)]
struct Registered {
    origin: Option<Origin>,
    /// The stream of the thread that requested it. It may run because of another: one that wants its output.
    stream: u64,
}

/// The memory of the device's tensors, if the profiler records memory.
#[derive(Debug, Default)]
struct Memory {
    /// The number of the device.
    device: u32,
    /// The tensors since the first operation of the window.
    live: Option<LiveMemory>,
    /// Drops that have not run yet, by the tensor.
    drops: FxHashMap<TensorId, Registered>,
    /// Who requested the operations of the current block.
    block: Vec<Registered>,
}

struct DeviceThreadQueue(DeviceHandle<Downstream>);

impl std::fmt::Debug for DeviceThreadQueue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DeviceThreadQueue").finish_non_exhaustive()
    }
}

impl FusionThread {
    /// Starts attribution on the calling thread, which fuses a device's operations.
    pub(crate) fn begin(
        hand_over: HandOver,
        threads: ThreadOrigins,
        device_thread: DeviceHandle<Downstream>,
        memory_of: Option<u32>,
    ) {
        let _uncounted = Uncounted::begin();
        let new = Self {
            streams: StreamOrigins::new(threads),
            device_thread: DeviceThreadQueue(device_thread),
            registered: FxHashMap::default(),
            block: None,
            hand_over,
            operations: DescriptionCache::new(),
            reported_uncached: 0,
            memory: memory_of.map(|device| Memory { device, ..Memory::default() }),
        };
        STATE.with_borrow_mut(|state| *state = Some(new));
    }

    /// Ends attribution on the calling thread.
    pub(crate) fn end() {
        let _uncounted = Uncounted::begin();
        if let Some(state) = STATE.with_borrow_mut(Option::take) {
            state.hand_over.release();
        }
    }

    /// Sets the origin of operations that arrive on this stream from now on.
    pub(crate) fn set_origin(origin: Origin) {
        with_state(|state| state.streams.set(StreamId::current(), origin));
    }

    pub(crate) fn open_window(opened: Origin) {
        with_state(|state| {
            let uncounted = Uncounted::begin();
            state.registered.clear();
            state.memory.iter_mut().for_each(|memory| *memory = Memory { device: memory.device, ..Memory::default() });
            drop(uncounted);
            state.streams.open(opened);
            state.device_thread.0.submit(|_| DeviceThread::fusion_is_open());
        });
    }

    pub(crate) fn close_window() {
        let uncached = with_state(|state| {
            state.streams.close();
            let uncached = state.operations.uncached();
            uncached - std::mem::replace(&mut state.reported_uncached, uncached)
        });
        if let Some(uncached @ 1..) = uncached {
            tracing::warn!("{uncached} operations have only a name: there are too many different ones");
        }
    }

    /// Announces a launch to the device thread; returns false if the calling thread is not a fusion thread.
    pub(crate) fn announce_launch(kernel: &'static str) -> bool {
        let announced = with_state(|state| {
            let origin = state.block.unwrap_or_else(|| state.origin());
            state.device_thread.0.submit(move |_| DeviceThread::expect_launch(kernel, origin));
        });
        announced.is_some()
    }

    /// Returns the origin of work outside of blocks.
    fn origin(&self) -> Option<Origin> {
        match self.streams.is_open() {
            true => self.streams.get(StreamId::current()),
            false => Some(self.hand_over.before()),
        }
    }

    /// Records an operation that runs.
    fn record(&mut self, operation: &OperationIr, origin: Option<Origin>) {
        let operation = self.operations.get(operation, |Description { name, fields, .. }| {
            fields.into_iter().fold(Operation::new(name), |operation, (name, value)| operation.with(name, value))
        });
        adopt(&self.hand_over, origin);
        self.hand_over.operation(&operation);
    }

    /// Tells the device thread which block allocates memory from now on, if that is recorded.
    fn announce_block(&self, origin: Option<Origin>) {
        if self.memory.is_some() && self.streams.is_open() {
            self.device_thread.0.submit(move |_| DeviceThread::set_block(origin));
        }
    }

    /// Records the memory that the operations of a block allocate and free.
    fn record_memory(&mut self, block: BlockOperations<'_>) {
        let Some(Memory { device, live: Some(live), block: registered, .. }) = &mut self.memory else { return };
        let operations = block.iter().zip(registered.iter().map(|registered| registered.stream));
        for change in live.run_block(operations) {
            adopt(&self.hand_over, registered[change.operation].origin);
            match change.is_freed {
                true => self.hand_over.freed(*device, change.number, change.bytes),
                false => self.hand_over.allocated(*device, change.number, change.bytes),
            }
        }
    }
}

impl Memory {
    /// Adds the next operation of a block. One that was not registered is older than the window.
    fn add(&mut self, operation: &OperationIr, registered: Option<Registered>, hand_over: &HandOver) {
        let dropped = match operation {
            OperationIr::Drop(tensor) => self.drops.remove(&tensor.id),
            _ => None,
        };
        let before = || Registered { origin: Some(hand_over.before()), stream: StreamId::current().value };
        self.block.push(registered.or(dropped).unwrap_or_else(before));
    }
}

/// Attributes what the thread reports from now on to an origin, or to the thread itself.
fn adopt(hand_over: &HandOver, origin: Option<Origin>) {
    match origin {
        Some(origin) => hand_over.adopt(origin),
        None => hand_over.release(),
    }
}

/// Runs a function on the calling thread's state; `None` if it is not a fusion thread or the state is borrowed.
fn with_state<T>(f: impl FnOnce(&mut FusionThread) -> T) -> Option<T> {
    STATE.try_with(|state| state.try_borrow_mut().ok()?.as_mut().map(f)).ok().flatten()
}

/// An observer of operations and blocks of fused operations, which Burn calls on the fusion thread.
#[derive(Debug)]
pub(crate) struct OperationObserver;

impl FusionObserver for OperationObserver {
    fn registered(&self, operation: &OperationIr) {
        let _uncounted = Uncounted::begin();
        with_state(|state| {
            if !state.streams.is_open() {
                return;
            }
            let stream = StreamId::current();
            let registered = Registered { origin: state.streams.get(stream), stream: stream.value };
            // Burn's own method for outputs allocates.
            if let Some(output) = OperationKind::of(operation).1.output() {
                state.registered.insert(output.id, registered);
                if let Some(memory) = &mut state.memory {
                    memory.live.get_or_insert_with(|| LiveMemory::since(output.id));
                }
            }
            if let (OperationIr::Drop(tensor), Some(memory)) = (operation, &mut state.memory) {
                memory.drops.insert(tensor.id, registered);
            }
        });
    }

    fn block_starts(&self, block: BlockOperations<'_>) {
        // One counter for all devices, because the blocks of all devices are in one trace.
        static BATCHES: AtomicU32 = AtomicU32::new(0);
        let _uncounted = Uncounted::begin();
        with_state(|state| {
            let mut first = None;
            if state.streams.is_open() {
                let batch = BATCHES.fetch_add(1, Ordering::Relaxed).wrapping_add(1).max(1);
                state.memory.iter_mut().for_each(|memory| memory.block.clear());
                for operation in block.iter() {
                    let output = OperationKind::of(operation).1.output();
                    let mut registered = output.and_then(|output| state.registered.remove(&output.id));
                    if let Some(Registered { origin: Some(origin), .. }) = &mut registered {
                        *origin = origin.in_batch(batch);
                    }
                    if let Some(memory) = &mut state.memory {
                        memory.add(operation, registered, &state.hand_over);
                    }
                    // An operation without an output drops a tensor; one that was not registered is older than the
                    // window.
                    let Some(Registered { origin, .. }) = registered else { continue };
                    first = first.or(Some(origin));
                    state.record(operation, origin);
                }
                state.record_memory(block);
            }
            let origin = first.unwrap_or_else(|| Some(state.hand_over.before()));
            state.block = Some(origin);
            state.announce_block(origin);
        });
    }

    fn block_ran(&self) {
        with_state(|state| {
            state.block = None;
            state.announce_block(None);
        });
    }
}
