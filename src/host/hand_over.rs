use super::{
    Host,
    call_attributor::{CallAttributor, DeviceWork},
    watcher::{Watch, Watcher},
};
use crate::{clock::Ticks, recording::Origin, thread::this_thread, trace::Operation};
use std::{fmt, sync::Arc};

/// Hands the attribution of GPU work over to threads that do it for others.
///
/// Some frameworks launch kernels on threads of their own, where none of the user's spans is open. Whoever passes work on to such
/// a thread takes an [`Origin`] along, and the thread adopts it before it launches: then what it launches belongs to the span that
/// the work came from, as [`Attribution::HandedOff`](crate::trace::Attribution::HandedOff). A
/// launch is in the window it is made in; if its origin is from before the window, it is
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
        self.host.attribute_calls(Some(CallAttributor(Box::new(whose))));
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
        self.host.attribute_calls(None);
        self.host.adopt(None);
    }

    /// An origin before any window: of what was asked for when nothing was recorded.
    pub fn before(&self) -> Origin {
        Origin::new(Ticks(0), this_thread())
    }

    /// Has `watcher` told of spans and windows until the [`Watch`] is dropped.
    ///
    /// ```
    /// use kernspan::{Profiler, framework::{Origin, Watcher}};
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
