//! Work that a thread does on behalf of another.

use super::{
    Host,
    deputy::{Deputy, DeviceWork},
    thread::this_thread,
    watcher::{Watch, Watcher},
};
use crate::{
    clock::Ticks,
    trace::{Operation, ThreadId},
};
use std::{fmt, num::NonZeroU32, sync::Arc};

/// Where work comes from: a moment on a thread, and so the innermost span that was open there then.
///
/// Made by [`HandOver::origin`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin {
    pub(crate) at: Ticks,
    thread: NonZeroU32,
    /// 0 for none.
    batch: u32,
}

impl Origin {
    pub(super) fn new(at: Ticks, thread: ThreadId) -> Self {
        let thread = u32::try_from(thread.as_u64()).unwrap_or(u32::MAX);
        Self { at, thread: NonZeroU32::new(thread).unwrap_or(NonZeroU32::MAX), batch: 0 }
    }

    /// The same origin, as part of a batch: what a thread tells of and launches once it has adopted it belongs to the batch, too.
    ///
    /// A framework that fuses operations adopts the origin of each in the batch that it is run in, tells of it (see
    /// [`HandOver::operation`]), and launches in that batch, on whichever thread: then [`Work::operations`](crate::Work::operations)
    /// are those of the batch, and [`Work::spans`](crate::Work::spans) all that asked for them.
    ///
    /// Batches that are told of in one window must have different numbers: a counter will do, also one that begins anew after four
    /// billion. 0 is no batch.
    #[must_use]
    pub fn in_batch(self, batch: u32) -> Self {
        Self { batch, ..self }
    }

    /// The same thread at the moment of another origin, and so the innermost span that was open there then.
    #[must_use]
    pub fn at_moment_of(self, other: Self) -> Self {
        Self { at: other.at, ..self }
    }

    /// Whether it is an earlier moment, on whichever thread.
    pub fn is_before(self, other: Self) -> bool {
        self.at < other.at
    }

    pub(crate) fn thread(self) -> ThreadId {
        ThreadId::new(self.thread.get().into())
    }

    /// The number of the batch, 0 for none.
    pub(crate) fn batch(self) -> u32 {
        self.batch
    }
}

/// Hands the attribution of GPU work over to threads that do it for others.
///
/// Some frameworks launch kernels on threads of their own, where none of the user's spans is open. Whoever passes work on to such
/// a thread takes an [`Origin`] along, and the thread adopts it before it launches: then what it launches belongs to the span that
/// the work came from, as [`Attribution::HandedOff`](crate::Attribution::HandedOff). A
/// launch is in the window it is made in; if its origin is from before the window, it is
/// [`Attribution::Before`](crate::Attribution::Before).
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

    /// Here and now: the innermost span open on this thread. It costs a reading of the clock.
    #[inline]
    pub fn origin(&self) -> Origin {
        Origin::new(self.host.clock().now(), this_thread())
    }

    /// From now on, this thread's launches are made on behalf of `origin`, whatever spans are open here.
    #[inline]
    pub fn adopt(&self, origin: Origin) {
        self.host.adopt(Some(origin));
    }

    /// From now on, `whose` says of each of this thread's launches on whose behalf it is made, or that it is the thread's own. It is asked
    /// while something is recorded, when the call returns. For threads that serve several others at once; `whose` may not enter spans.
    pub fn adopt_each(&self, whose: impl Fn(DeviceWork) -> Option<Origin> + Send + 'static) {
        self.host.ask_before_calls(Some(Deputy(Box::new(whose))));
    }

    /// Tells that this thread was asked for an operation: it belongs to what the thread has adopted, as a launch does, and to the
    /// batch of that, if there is one.
    ///
    /// While nothing is recorded it costs a look at whether anything is; while something is, a reading of the clock and one more owner
    /// of `operation`. So make each operation once.
    #[inline]
    pub fn operation(&self, operation: &Arc<Operation>) {
        self.host.write_operation(operation);
    }

    /// From now on, this thread's launches are its own again.
    #[inline]
    pub fn release(&self) {
        self.host.ask_before_calls(None);
        self.host.adopt(None);
    }

    /// An origin before any window: of what was asked for when nothing was recorded.
    pub fn before(&self) -> Origin {
        Origin::new(Ticks(0), this_thread())
    }

    /// Has `watcher` told of spans and windows until the [`Watch`] is dropped.
    ///
    /// ```
    /// use kernspan::{Origin, Profiler, Watcher};
    /// use std::sync::Arc;
    ///
    /// struct Framework;
    ///
    /// impl Watcher for Framework {
    ///     fn changed(&self, origin: Origin) {
    ///         // Pass it on to where the work waits, in the order in which it was asked for.
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

impl fmt::Debug for HandOver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HandOver").finish_non_exhaustive()
    }
}
