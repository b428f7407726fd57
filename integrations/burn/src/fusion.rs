//! The thread that fuses a device's operations: whose they are when they are registered, and so whose the kernels are that they end up in.

use crate::{
    device_thread::DeviceThread,
    memory::LiveMemory,
    operation::{Description, Descriptions, Known},
    queue::Downstream,
    streams::{Streams, Threads},
};
use burn::backend::{
    fusion::observer::{BlockOperations, FusionObserver},
    ir::{OperationIr, TensorId},
};
use burn_std::{device_handle::DeviceHandle, stream::StreamId};
use kernspan::{
    framework::{HandOver, Origin},
    trace::Operation,
};
use rustc_hash::FxHashMap;
use std::{
    cell::RefCell,
    sync::atomic::{AtomicU32, Ordering},
};

thread_local! {
    static HERE: RefCell<Option<FusionThread>> = const { RefCell::new(None) };
}

/// What the thread knows.
#[derive(Debug)]
pub(crate) struct FusionThread {
    streams: Streams,
    device: Device,
    /// Whose the operations are that have not run yet, by the first tensor that comes out of them.
    owners: FxHashMap<TensorId, Option<Origin>>,
    /// Whose the block is that runs.
    block: Option<Option<Origin>>,
    hand_over: HandOver,
    operations: Descriptions<Operation>,
    /// Those without a description that were told of.
    unkept: u64,
    memory: Option<Memory>,
}

/// What the tensors take that are alive, where that is asked for.
#[derive(Debug, Default)]
struct Memory {
    live: LiveMemory,
    /// What was last told of it.
    told: u64,
}

struct Device(DeviceHandle<Downstream>);

impl std::fmt::Debug for Device {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Device").finish_non_exhaustive()
    }
}

impl FusionThread {
    /// Makes the calling thread, which is a device's, known as such.
    pub(crate) fn begin(hand_over: HandOver, threads: Threads, device: DeviceHandle<Downstream>, memory: bool) {
        let here = Self {
            streams: Streams::new(threads),
            device: Device(device),
            owners: FxHashMap::default(),
            block: None,
            hand_over,
            operations: Descriptions::new(),
            unkept: 0,
            memory: memory.then(Memory::default),
        };
        HERE.with_borrow_mut(|place| *place = Some(here));
    }

    pub(crate) fn end() {
        if let Some(here) = HERE.with_borrow_mut(Option::take) {
            here.hand_over.release();
        }
    }

    pub(crate) fn changes(origin: Origin) {
        with_here(|here| here.streams.change(StreamId::current(), origin));
    }

    pub(crate) fn opens(opened: Origin) {
        with_here(|here| {
            here.owners.clear();
            here.memory = here.memory.take().map(|_| Memory::default());
            here.streams.open(opened);
            here.device.0.submit(|_| DeviceThread::is_told());
        });
    }

    pub(crate) fn closes() {
        let unkept = with_here(|here| {
            here.streams.close();
            let unkept = here.operations.unkept();
            unkept - std::mem::replace(&mut here.unkept, unkept)
        });
        if let Some(unkept @ 1..) = unkept {
            tracing::warn!("{unkept} operations have only a name: there are too many different ones");
        }
    }

    /// A kernel is launched from here, if this is such a thread: otherwise, false.
    pub(crate) fn launches(kernel: &'static str) -> bool {
        let told = with_here(|here| {
            let owner = here.block.unwrap_or_else(|| here.origin());
            here.device.0.submit(move |_| DeviceThread::launches(kernel, owner));
        });
        told.is_some()
    }

    /// Where what is done now comes from, outside of blocks.
    fn origin(&self) -> Option<Origin> {
        match self.streams.is_open() {
            true => self.streams.origin(StreamId::current()),
            false => Some(self.hand_over.before()),
        }
    }

    /// Tells of an operation that runs.
    fn tell(&mut self, operation: &OperationIr, origin: Option<Origin>) {
        let operation = self.operations.get(operation, |Description { name, fields, .. }| {
            fields.into_iter().fold(Operation::new(name), |operation, (name, value)| operation.with(name, value))
        });
        match origin {
            Some(origin) => self.hand_over.adopt(origin),
            None => self.hand_over.release(),
        }
        self.hand_over.operation(&operation);
    }
}

fn with_here<T>(f: impl FnOnce(&mut FusionThread) -> T) -> Option<T> {
    HERE.try_with(|here| here.try_borrow_mut().ok()?.as_mut().map(f)).ok().flatten()
}

/// Hears of operations and blocks, on the thread that fuses.
#[derive(Debug)]
pub(crate) struct Operations;

impl FusionObserver for Operations {
    fn registered(&self, operation: &OperationIr) {
        with_here(|here| {
            if !here.streams.is_open() {
                return;
            }
            // Burn's own way to ask for outputs allocates.
            if let Some(output) = Known::of(operation).1.output() {
                here.owners.insert(output.id, here.streams.origin(StreamId::current()));
            }
            here.memory.iter_mut().for_each(|memory| memory.live.registered(operation));
        });
    }

    fn block_starts(&self, block: BlockOperations<'_>) {
        // All devices' blocks are in one trace.
        static BATCHES: AtomicU32 = AtomicU32::new(0);
        with_here(|here| {
            let mut owner = None;
            if here.streams.is_open() {
                let batch = BATCHES.fetch_add(1, Ordering::Relaxed).wrapping_add(1).max(1);
                for operation in block.iter() {
                    let known = Known::of(operation).1.output().and_then(|output| here.owners.remove(&output.id));
                    // What has no output is a tensor dropped; what was not registered in the window is from before.
                    let Some(origin) = known else { continue };
                    let origin = origin.map(|origin| origin.in_batch(batch));
                    owner = owner.or(Some(origin));
                    here.tell(operation, origin);
                }
            }
            here.block = Some(owner.unwrap_or_else(|| Some(here.hand_over.before())));
        });
    }

    fn block_ran(&self) {
        let live = with_here(|here| {
            here.block = None;
            let Memory { live, told } = here.memory.as_mut().filter(|_| here.streams.is_open())?;
            let live = live.bytes();
            (std::mem::replace(told, live) != live).then_some(live)
        });
        if let Some(Some(live)) = live {
            tracing::trace!(counter.burn_tensors = live);
        }
    }
}
