//! The memory pool of a device, read through the queue of its thread.

use crate::queue::Downstream;
use burn::cubecl::{Device as CubeDevice, MemoryScope, client::Client};
use burn_std::device_handle::DeviceHandle;
use kernspan::{
    analysis::MemoryPool,
    framework::{FollowedPool, HandOver, PoolUse},
};
use std::{
    fmt,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

/// Burn's memory pool on one device: those of all its streams together.
///
/// Only the device's thread knows it. A task in the thread's queue takes a reading, between two pieces of work, and
/// whoever wants to know gets the latest reading without waiting: neither for the device, nor for a thread that
/// compiles or tunes a kernel for seconds.
pub(crate) struct DevicePool {
    number: u32,
    client: Client,
    queue: DeviceHandle<Downstream>,
    latest: Mutex<Latest>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Latest {
    reading: Option<PoolUse>,
    /// Whether a reading is in the queue.
    is_requested: bool,
    /// When the next reading may be requested.
    next: Option<Instant>,
}

impl DevicePool {
    /// The thread of the device spends at most one part in this many of its time on readings, unless one takes longer
    /// than a millisecond. It takes longer the more pages the pools have.
    const SHARE: u32 = 100;
    /// The shortest and the longest time between two readings. The thread that asks for them does so every ten
    /// milliseconds. On Vulkan, Metal and WebGPU, a reading submits the commands that have been collected, so that its
    /// time includes theirs: on Mesa's software driver, milliseconds that the thread would spend a little later.
    const APART: (Duration, Duration) = (Duration::from_millis(10), Duration::from_millis(100));

    /// The bits of a device's id that are its number. On Vulkan, Metal and WebGPU, the others are the graphics API.
    const INDEX: u16 = (1 << 13) - 1;

    pub(crate) fn new(device: &CubeDevice, queue: DeviceHandle<Downstream>) -> Arc<Self> {
        let number = u32::from(device.to_id().index_id & Self::INDEX);
        Arc::new(Self { number, client: device.client(), queue, latest: Mutex::default() })
    }

    /// The number of the device.
    pub(crate) fn number(&self) -> u32 {
        self.number
    }

    /// Has the profiler follow the pool over the whole run.
    pub(crate) fn follow(self: &Arc<Self>, hand_over: &HandOver) -> FollowedPool {
        let pool = Arc::clone(self);
        hand_over.follow_pool(MemoryPool::new("burn", self.number), move || pool.latest())
    }

    fn lock(&self) -> MutexGuard<'_, Latest> {
        self.latest.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the latest reading, and requests another if it is time.
    fn latest(self: &Arc<Self>) -> Option<PoolUse> {
        let mut latest = self.lock();
        let reading = latest.reading;
        if !latest.is_requested && latest.next.is_none_or(|next| Instant::now() >= next) {
            latest.is_requested = true;
            // Without the lock, as the queue may be full, and the device's thread takes the lock.
            drop(latest);
            let pool = Arc::clone(self);
            self.queue.submit(move |_| {
                pool.read();
            });
            self.queue.flush_queue();
        }
        reading
    }

    /// Takes a reading on the device's thread.
    pub(crate) fn read(&self) -> Option<PoolUse> {
        let start = Instant::now();
        // On its own thread, the device is asked directly. It panics if it has failed, which whoever uses it will see.
        let usage = catch_unwind(AssertUnwindSafe(|| self.client.memory_report(MemoryScope::Device).usage())).ok();
        let end = Instant::now();
        let reading =
            usage.map(|usage| PoolUse { used: usage.bytes_in_use, reserved: usage.bytes_reserved, limit: None });
        let (shortest, longest) = Self::APART;
        let next = Some(end + (end.duration_since(start) * Self::SHARE).clamp(shortest, longest));
        *self.lock() = Latest { reading, is_requested: false, next };
        reading
    }
}

impl fmt::Debug for DevicePool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DevicePool")
            .field("number", &self.number)
            .field("latest", &*self.lock())
            .finish_non_exhaustive()
    }
}
