//! The handle for frameworks that launch GPU work on their own threads.

use super::{
    Host,
    call_attributor::{CallAttributor, DeviceWork},
    memory_pools::{FollowedPool, PoolUse},
    watcher::{Watch, Watcher},
};
use crate::{
    analysis::{MemoryFrame, MemoryPool},
    clock::Ticks,
    recording::{MemoryCall, MemoryFacts, Origin, Record},
    thread::this_thread,
    trace::{Collective, MemoryChange, Operation},
};
use std::{fmt, sync::Arc};

/// A handle that attributes GPU work to the span that requested it when another thread launches the work.
///
/// Some frameworks launch kernels on their own threads, where none of the user's spans is open. There, the requesting
/// thread takes an [`Origin`], and the launching thread adopts it first: its launches then belong to the span of the
/// origin, as [`Attribution::HandedOff`](crate::trace::Attribution::HandedOff). A launch belongs to the window in which
/// it is made; if its origin is from before the window, it is
/// [`Attribution::Before`](crate::trace::Attribution::Before).
///
/// ```
/// use kernspan::Profiler;
/// use std::{sync::mpsc, thread};
///
/// let (layer, profiler) = Profiler::builder().build()?;
/// # drop(layer);
/// let (submit, submitted) = mpsc::channel::<Box<dyn FnOnce() + Send>>();
/// let device = thread::spawn(move || submitted.into_iter().for_each(|work| work()));
///
/// let hand_over = profiler.hand_over();
/// let _span = tracing::info_span!("forward").entered();
/// let origin = hand_over.origin();
/// submit.send(Box::new(move || {
///     hand_over.adopt(origin);
///     // Kernels launched here belong to `forward`, until the next origin is adopted.
/// })).unwrap();
/// # drop(submit);
/// # device.join().unwrap();
/// # drop(_span);
/// profiler.finish()?;
/// # Ok::<(), kernspan::Error>(())
/// ```
#[derive(Clone)]
pub struct HandOver {
    host: Arc<Host>,
}

impl HandOver {
    pub(crate) fn new(host: Arc<Host>) -> Self {
        Self { host }
    }

    /// Returns the origin of work that this thread requests now: the innermost span open on it. It costs one clock
    /// reading.
    #[inline]
    pub fn origin(&self) -> Origin {
        Origin::new(self.host.clock().now(), this_thread())
    }

    /// Attributes this thread's launches to `origin` from now on, whatever spans are open here.
    #[inline]
    pub fn adopt(&self, origin: Origin) {
        self.host.adopt(Some(origin));
    }

    /// Calls `attribute` for each of this thread's launches from now on, to decide its origin; `None` stands for the
    /// thread's own spans.
    ///
    /// This is for threads that serve several others at once. `attribute` is called when a call returns, while
    /// something is being recorded. It must not enter spans.
    pub fn adopt_each(&self, attribute: impl Fn(DeviceWork) -> Option<Origin> + Send + 'static) {
        self.host.attribute_calls(Some(CallAttributor(Box::new(attribute))));
    }

    /// Records that this thread was asked for an operation. Like a launch, it belongs to the origin that the thread has
    /// adopted, and to that origin's batch, if it has one.
    ///
    /// While nothing is recorded it costs one load; while something is, a clock reading and a clone of the `Arc`. So
    /// create each operation only once.
    #[inline]
    pub fn operation(&self, operation: &Arc<Operation>) {
        self.host.write_reported(|at| Record::Operation { at, operation: Arc::clone(operation) });
    }

    /// Records that a framework gave memory of its own pool to a tensor. Like a launch, it belongs to the origin that
    /// the thread has adopted.
    ///
    /// `address` is any number that stands for the memory until it is freed. The allocations that the driver makes on
    /// a device whose tensors are reported are pages, which the framework divides: the trace has them apart, as
    /// [`Trace::pages`](crate::Trace::pages).
    ///
    /// ```
    /// use kernspan::{Collected, Profiler, framework::PoolUse};
    /// use tracing_subscriber::prelude::*;
    ///
    /// let collected = Collected::new();
    /// let (layer, profiler) = Profiler::builder().export(collected.clone()).build()?;
    /// let hand_over = profiler.hand_over();
    /// tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
    ///     let _span = tracing::info_span!("forward").entered();
    ///     hand_over.pool(0, PoolUse { used: 1_000, reserved: 4_096, limit: None });
    ///     hand_over.allocated(0, 7, 500);
    ///     hand_over.freed(0, 7, 500);
    /// });
    /// profiler.finish()?;
    ///
    /// let trace = collected.only();
    /// let in_use: Vec<_> = trace.allocations().map(|change| change.in_use()).collect();
    /// assert_eq!(in_use, [1_500, 1_000]);
    /// assert!(trace.allocations().all(|change| change.span().is_some_and(|span| span.name() == "forward")));
    /// # Ok::<(), kernspan::Error>(())
    /// ```
    pub fn allocated(&self, device: u32, address: u64, bytes: u64) {
        self.write_memory(device, address, bytes, MemoryChange::Allocate);
    }

    /// Records that the memory of a tensor has gone back to the framework's pool: see [`allocated`](Self::allocated).
    ///
    /// The number of bytes counts if the memory was allocated before the window.
    pub fn freed(&self, device: u32, address: u64, bytes: u64) {
        self.write_memory(device, address, bytes, MemoryChange::Free);
    }

    fn write_memory(&self, device: u32, address: u64, bytes: u64, change: MemoryChange) {
        let context = u16::try_from(device).unwrap_or(u16::MAX);
        let facts = MemoryFacts { bytes, context, change, pooled: true, by_framework: true };
        self.host.write_reported(|at| Record::Memory(MemoryCall::new(at, address, facts)));
    }

    /// Records the memory of a framework's pool before the first [`allocated`](Self::allocated) of a window. From
    /// there on, [`Allocation::in_use`](crate::trace::Allocation::in_use) counts.
    pub fn pool(&self, device: u32, pool: PoolUse) {
        let PoolUse { used, reserved, .. } = pool;
        self.host.write_reported(|_| Record::Pool { device, used, reserved });
    }

    /// Follows the memory of a framework's pool over the whole run, whether or not steps are recorded.
    ///
    /// A framework takes memory from the device in pages and divides them, so that the driver knows only the pages.
    /// `read` is called on the thread that also reads the memory of the process and of GPUs, from a hundred times a
    /// second at first and in windows down to five times a second. It should not wait: the other readings wait for it.
    /// If it returns `None` or panics, there is no reading. Nothing is read unless the profiler records memory or the
    /// heap.
    ///
    /// Traces and summaries of steps get the counters `memory.burn0.used` and `memory.burn0.reserved`, by the name of
    /// the framework and the number of the device, and the report judges whether they grow.
    ///
    /// ```
    /// use kernspan::{Activity, Profiler, analysis::{MemoryPool, MemorySource}, framework::PoolUse};
    ///
    /// let (layer, profiler) = Profiler::builder().activities([Activity::Host, Activity::Memory]).build()?;
    /// # drop(layer);
    /// let pool = MemoryPool::new("mine", 0);
    /// let read = || Some(PoolUse { used: 1_000, reserved: 4_096, limit: None });
    /// let followed = profiler.hand_over().follow_pool(pool, read);
    /// # std::thread::sleep(std::time::Duration::from_millis(50));
    /// // Train.
    /// let report = profiler.finish()?;
    /// drop(followed);
    /// let series = report.memory_series().iter().find(|series| series.source() == MemorySource::PoolReserved(pool));
    /// assert_eq!(series.unwrap().peak(), 4_096);
    /// # Ok::<(), kernspan::Error>(())
    /// ```
    pub fn follow_pool(
        &self,
        pool: MemoryPool,
        read: impl Fn() -> Option<PoolUse> + Send + Sync + 'static,
    ) -> FollowedPool {
        FollowedPool::new(Arc::clone(&self.host), pool, Arc::new(read))
    }

    /// Records that this thread has just launched the kernel of a collective: the one that its last call to the
    /// device's API launched. Several collectives reported after one launch share its kernel.
    ///
    /// `describe` is called only while something is recorded. While nothing is, it costs one load.
    #[inline]
    pub fn collective(&self, describe: impl FnOnce() -> Arc<Collective>) {
        self.host.write_reported(|at| Record::Collective { at, collective: describe() });
    }

    /// The number of the current step, counted from 0.
    pub fn current_step(&self) -> u64 {
        self.host.steps()
    }

    /// Returns the spans that are open on this thread, outermost first, whether or not a window is open. It takes some
    /// hundred nanoseconds a span.
    pub fn open_spans(&self) -> Vec<MemoryFrame> {
        let Some(open) = self.host.open_spans() else { return Vec::new() };
        open.ids().iter().filter_map(|&id| self.host.describe(id)).collect()
    }

    /// Returns the spans that are open on each thread, for threads that have any.
    ///
    /// The threads are not stopped: a thread that enters or exits a span meanwhile is left out.
    pub fn open_spans_of_threads(&self) -> Vec<ThreadSpans> {
        self.host.open_spans_of_threads()
    }

    /// Attributes this thread's launches to its own spans again.
    #[inline]
    pub fn release(&self) {
        self.host.attribute_calls(None);
        self.host.adopt(None);
    }

    /// Returns an origin before any window, for work requested while nothing was recorded.
    pub fn before(&self) -> Origin {
        Origin::new(Ticks(0), this_thread())
    }

    /// Calls `watcher` when spans and windows change, until the [`Watch`] is dropped.
    ///
    /// ```
    /// use kernspan::{Profiler, framework::{Origin, Watcher}};
    /// use std::sync::Arc;
    ///
    /// struct Framework;
    ///
    /// impl Watcher for Framework {
    ///     fn changed(&self, origin: Origin) {
    ///         // Pass it on to where the work waits, in the order in which it was requested.
    ///     }
    /// }
    ///
    /// let (layer, profiler) = Profiler::builder().build()?;
    /// # drop(layer);
    /// let watch = profiler.hand_over().watch(Arc::new(Framework));
    /// # drop(watch);
    /// # profiler.finish()?;
    /// # Ok::<(), kernspan::Error>(())
    /// ```
    pub fn watch(&self, watcher: Arc<dyn Watcher>) -> Watch {
        Watch::new(Arc::clone(&self.host), watcher)
    }
}

/// The spans that are open on a thread at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ThreadSpans {
    /// The name of the thread, as in traces.
    pub thread: String,
    /// The spans, outermost first. Of a very deep stack, these are the outer ones.
    pub spans: Vec<MemoryFrame>,
}

impl ThreadSpans {
    pub(super) fn new(thread: &str, spans: Vec<MemoryFrame>) -> Self {
        Self { thread: thread.to_owned(), spans }
    }
}

impl fmt::Debug for HandOver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HandOver").finish_non_exhaustive()
    }
}
