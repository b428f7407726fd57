//! Work that a thread does on behalf of another.

use super::{Host, thread::this_thread};
use crate::{clock::Ticks, trace::ThreadId};
use std::{fmt, num::NonZeroU32, sync::Arc};

/// Where work comes from: a moment on a thread, and so the innermost span that was open there then.
///
/// Made by [`HandOver::origin`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin {
    pub(crate) at: Ticks,
    thread: NonZeroU32,
}

impl Origin {
    pub(super) fn new(at: Ticks, thread: ThreadId) -> Self {
        let thread = u32::try_from(thread.as_u64()).unwrap_or(u32::MAX);
        Self { at, thread: NonZeroU32::new(thread).unwrap_or(NonZeroU32::MAX) }
    }

    pub(crate) fn thread(self) -> ThreadId {
        ThreadId::new(self.thread.get().into())
    }
}

/// Hands the attribution of GPU work over to threads that do it for others.
///
/// Some frameworks launch kernels on threads of their own, where none of the user's spans is open. Whoever passes work on to such
/// a thread takes an [`Origin`] along, and the thread adopts it before it launches: then what it launches belongs to the span that
/// the work came from, as [`Attribution::HandedOff`](crate::Attribution::HandedOff). A
/// launch is in the window it is made in; if its origin is from before the window, it is unattributed.
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

    /// From now on, this thread's launches are its own again.
    #[inline]
    pub fn release(&self) {
        self.host.adopt(None);
    }
}

impl fmt::Debug for HandOver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HandOver").finish_non_exhaustive()
    }
}
