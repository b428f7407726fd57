//! The handle for frameworks that launch GPU work on their own threads.

use super::{
    Host,
    call_attributor::{CallAttributor, DeviceWork},
    watcher::{Watch, Watcher},
};
use crate::{
    analysis::MemoryFrame,
    clock::Ticks,
    recording::{Origin, Record},
    thread::this_thread,
    trace::{Collective, Operation},
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
