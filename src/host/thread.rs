use crate::trace::ThreadId;
use std::cell::Cell;

/// Who a lane belongs to.
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
        let id = ask_the_system();
        ID.set(Some(id));
        id
    })
}

#[cfg(all(target_os = "linux", not(miri)))]
fn ask_the_system() -> ThreadId {
    ThreadId::new(u64::from(rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs()))
}

#[cfg(not(all(target_os = "linux", not(miri))))]
fn ask_the_system() -> ThreadId {
    use std::sync::atomic::{AtomicU64, Ordering};
    static NEXT: AtomicU64 = AtomicU64::new(1);
    ThreadId::new(NEXT.fetch_add(1, Ordering::Relaxed))
}

/// From now on, no profiler records spans of the calling thread: it is one of ours.
pub(crate) fn mute_this_thread() {
    MUTED.set(true);
}

pub(super) fn is_muted() -> bool {
    MUTED.get()
}
