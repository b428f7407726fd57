//! Thread ids and names, and the profiler's own threads, which are never recorded.

use crate::trace::ThreadId;
use std::{
    cell::Cell,
    io,
    thread::{Builder, JoinHandle},
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
