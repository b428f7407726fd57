//! Thread ids and names, and the profiler's own threads, which are never recorded.

use crate::trace::ThreadId;
use std::{
    cell::Cell,
    io,
    thread::{self, Builder, JoinHandle},
    time::{Duration, Instant},
};

/// A thread's id and name.
#[derive(Clone, Debug)]
pub(crate) struct ThreadInfo {
    pub(crate) id: ThreadId,
    pub(crate) name: String,
}

impl ThreadInfo {
    pub(crate) fn of_this_thread() -> Self {
        let id = this_thread();
        let name = std::thread::current().name().map_or_else(|| format!("thread {}", id.as_u64()), str::to_owned);
        Self { id, name }
    }
}

thread_local! {
    static ID: Cell<Option<ThreadId>> = const { Cell::new(None) };
    static MUTED: Cell<bool> = const { Cell::new(false) };
}

/// The id of the calling thread.
pub(crate) fn this_thread() -> ThreadId {
    ID.get().unwrap_or_else(|| {
        let id = system_thread_id();
        ID.set(Some(id));
        id
    })
}

#[cfg(all(target_os = "linux", not(miri)))]
fn system_thread_id() -> ThreadId {
    ThreadId::new(u64::from(rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs()))
}

#[cfg(not(all(target_os = "linux", not(miri))))]
fn system_thread_id() -> ThreadId {
    use std::sync::atomic::{AtomicU64, Ordering};
    static NEXT: AtomicU64 = AtomicU64::new(1);
    ThreadId::new(NEXT.fetch_add(1, Ordering::Relaxed))
}

/// Spawns one of the profiler's own threads. No profiler records its spans.
pub(crate) fn spawn<T: Send + 'static>(
    name: &str,
    run: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    Builder::new().name(name.to_owned()).spawn(move || {
        mute_this_thread();
        run()
    })
}

/// How long the program waits for one of our threads that makes no progress, before it goes on without that thread.
/// Some of them call libraries whose locks another tool may never release. The longest calls that were seen, NVML's
/// first initialization and CUPTI's setting up of counters, take a second on a busy machine.
pub(crate) const STUCK_AFTER: Duration = Duration::from_secs(10);

/// Waits for a thread to end. Returns `None` if it makes no progress for `limit`, and leaves it behind. `progress` is a
/// number that changes whenever it does.
pub(crate) fn join_unless_stuck<T>(
    thread: JoinHandle<T>,
    limit: Duration,
    progress: impl Fn() -> u64,
) -> Option<thread::Result<T>> {
    /// The pauses between two looks, which double: a thread that is about to end is hardly waited for.
    const PAUSES: (Duration, Duration) = (Duration::from_micros(20), Duration::from_millis(5));
    let (mut pause, longest) = PAUSES;
    let (mut seen, mut since) = (progress(), Instant::now());
    while !thread.is_finished() {
        let now = progress();
        if now != seen {
            (seen, since) = (now, Instant::now());
        } else if since.elapsed() >= limit {
            return None;
        }
        thread::sleep(pause);
        pause = (2 * pause).min(longest);
    }
    Some(thread.join())
}

/// Mutes the calling thread: from now on, no profiler records its spans. Intended for the threads of exporters.
///
/// ```
/// let sender = std::thread::spawn(|| {
///     kernspan::export::mute_this_thread();
///     tracing::info_span!("not recorded").in_scope(|| 7)
/// });
/// assert_eq!(sender.join().unwrap(), 7);
/// ```
pub fn mute_this_thread() {
    MUTED.set(true);
}

/// Whether the calling thread is muted.
pub(crate) fn is_muted() -> bool {
    MUTED.get()
}

#[cfg(test)]
mod tests {
    use super::{join_unless_stuck, spawn};
    use std::{cell::Cell, sync::mpsc, time::Duration};

    #[test]
    fn a_thread_is_waited_for_as_long_as_it_makes_progress() {
        let (ending, end) = mpsc::channel::<()>();
        let thread = spawn("at work", move || end.recv().is_err()).unwrap();
        let (ending, looks) = (Cell::new(Some(ending)), Cell::new(0));
        let progress = || {
            looks.set(looks.get() + 1);
            if looks.get() == 50 {
                drop(ending.take());
            }
            looks.get()
        };
        // Each look is late by this measure, and sees progress.
        assert!(join_unless_stuck(thread, Duration::ZERO, progress).unwrap().unwrap());
    }

    #[test]
    fn a_thread_that_is_stuck_is_left_behind() {
        let (_ending, end) = mpsc::channel::<()>();
        let thread = spawn("stuck", move || end.recv().is_err()).unwrap();
        assert!(join_unless_stuck(thread, Duration::from_millis(5), || 0).is_none());
        let panics = spawn("panics", || panic!("of its own")).unwrap();
        assert!(join_unless_stuck::<()>(panics, Duration::from_secs(600), || 0).unwrap().is_err());
    }
}
