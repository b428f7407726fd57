//! Saves recordings when a signal or a call to `exit` ends the process.

mod sys;

#[cfg(feature = "control")]
pub(crate) use self::sys::is_default;

use crate::{
    ending::Ending,
    thread::{is_muted, spawn},
};
use signal_hook::{
    consts::{SIGINT, SIGTERM},
    flag,
    low_level::{emulate_default_handler, pipe},
};
use std::{
    io::{self, Read, Write},
    os::unix::net::UnixStream,
    sync::{
        Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, Weak,
        atomic::{AtomicBool, AtomicUsize, Ordering},
        mpsc::{self, RecvTimeoutError},
    },
    time::Duration,
};

/// The saver of this process, created by the first profiler that needs it. It is never removed, since a handler cannot
/// be taken out of a chain of handlers.
static SAVER: Mutex<Option<Arc<Saver>>> = Mutex::new(None);

/// Whether a signal ends the process at once: if nothing is recorded, after a first signal, or in a fork.
static AT_ONCE: OnceLock<Arc<AtomicBool>> = OnceLock::new();

/// A thread that saves recordings, and the handlers that wake it.
#[derive(Debug)]
struct Saver {
    recordings: Mutex<Vec<Recording>>,
    wake: UnixStream,
    /// Whether the process is in `exit`.
    exiting: AtomicBool,
    /// Whether recordings have been saved, for the thread that is in `exit`.
    saved: Mutex<bool>,
    changed: Condvar,
    /// The process id, used to detect a fork.
    process: u32,
}

/// A recording to save, and the time allowed for it.
#[derive(Clone, Debug)]
struct Recording {
    ending: Weak<Ending>,
    within: Duration,
}

/// A guard for a recording that is saved at the end of the process. Dropping it restores the usual effect of signals.
#[derive(Debug)]
pub(crate) struct SavedOnExit {
    saver: Arc<Saver>,
    ending: Weak<Ending>,
}

impl SavedOnExit {
    /// Arranges for a recording to be saved at the end of the process, within this time.
    pub(crate) fn new(ending: &Arc<Ending>, within: Duration) -> io::Result<Self> {
        let mut saver = lock(&SAVER);
        let saver = match &*saver {
            Some(saver) => Arc::clone(saver),
            None => Arc::clone(saver.insert(Saver::start()?)),
        };
        if saver.is_forked() {
            return Err(io::Error::other("this process is a fork of one that is saved at its exit"));
        }
        let ending = Arc::downgrade(ending);
        let mut recordings = lock(&saver.recordings);
        recordings.push(Recording { ending: Weak::clone(&ending), within });
        end_at_once(false);
        drop(recordings);
        Ok(Self { saver, ending })
    }
}

impl Drop for SavedOnExit {
    fn drop(&mut self) {
        // In a fork, the lock may be held by a thread that does not exist there.
        if self.saver.is_forked() {
            return;
        }
        let mut recordings = lock(&self.saver.recordings);
        recordings.retain(|recording| !Weak::ptr_eq(&recording.ending, &self.ending));
        if recordings.is_empty() {
            end_at_once(true);
        }
    }
}

impl Saver {
    fn start() -> io::Result<Arc<Self>> {
        let (woken, wake) = UnixStream::pair()?;
        let at_once = AT_ONCE.get_or_init(Arc::default);
        let caught = Arc::new(AtomicUsize::new(0));
        for signal in [SIGINT, SIGTERM] {
            // The parent may have had a signal ignored, as a shell does for background jobs. And if the program has a
            // handler, that handler decides how the program ends.
            if !sys::is_default(signal) {
                continue;
            }
            // Handlers run in this order: the first signal passes the first one and sets the flag for the next signal.
            flag::register_conditional_default(signal, Arc::clone(at_once))?;
            flag::register(signal, Arc::clone(at_once))?;
            flag::register_usize(signal, Arc::clone(&caught), signal.unsigned_abs() as usize)?;
            pipe::register(signal, wake.try_clone()?)?;
        }
        sys::at_exit(save_at_exit)?;
        // A fork inherits the handlers, but not the thread.
        sys::in_forks(|| end_at_once(true))?;
        let saver = Arc::new(Self {
            recordings: Mutex::default(),
            wake,
            exiting: AtomicBool::new(false),
            saved: Mutex::new(false),
            changed: Condvar::new(),
            process: std::process::id(),
        });
        let of_thread = Arc::clone(&saver);
        spawn("kernspan-exit", move || of_thread.run(woken, &caught))?;
        Ok(saver)
    }

    /// Waits for a signal or an exit, then saves the recordings.
    fn run(&self, mut woken: UnixStream, caught: &AtomicUsize) {
        while woken.read_exact(&mut [0]).is_ok() {
            let signal = caught.swap(0, Ordering::SeqCst);
            // A signal to a fork also wakes its parent.
            if signal == 0 && !self.exiting.load(Ordering::SeqCst) {
                continue;
            }
            self.save();
            if let Some(signal) = i32::try_from(signal).ok().filter(|signal| *signal != 0) {
                let _ = emulate_default_handler(signal);
            }
            *lock(&self.saved) = true;
            self.changed.notify_all();
        }
    }

    /// Saves the recordings, within the longest of their times.
    fn save(&self) {
        let recordings = lock(&self.recordings).clone();
        let Some(within) = recordings.iter().map(|recording| recording.within).max() else { return };
        // Exporters may hang, so another thread waits for them.
        let (done, is_done) = mpsc::channel::<()>();
        let saving = spawn("kernspan-save", move || {
            recordings.iter().filter_map(|recording| recording.ending.upgrade()).for_each(|it| it.end_and_print(true));
            drop(done);
        });
        let problem = match saving {
            Err(error) => error.to_string(),
            Ok(_) if is_done.recv_timeout(within) == Err(RecvTimeoutError::Timeout) => {
                format!("exporters took longer than {within:?}")
            }
            Ok(_) => return,
        };
        let _ = writeln!(io::stderr(), "kernspan: cannot save the end of the recording: {problem}");
    }

    /// Makes the thread save the recordings, and waits for it. The process is in `exit`.
    fn save_at_exit(&self) {
        let Some(within) = lock(&self.recordings).iter().map(|recording| recording.within).max() else { return };
        self.exiting.store(true, Ordering::SeqCst);
        if (&self.wake).write_all(&[0]).is_ok() {
            // The thread ends in time by itself, except for the moment it takes to report that.
            let limit = within.saturating_add(Duration::from_secs(1));
            let saved = self.changed.wait_timeout_while(lock(&self.saved), limit, |saved| !*saved);
            drop(saved.unwrap_or_else(PoisonError::into_inner));
        }
    }

    /// Whether this process is a fork of the one that records, without its threads.
    fn is_forked(&self) -> bool {
        self.process != std::process::id()
    }
}

fn save_at_exit() {
    // An exporter that ends the process would wait for itself.
    if is_muted() {
        return;
    }
    let saver = lock(&SAVER).clone();
    if let Some(saver) = saver.filter(|saver| !saver.is_forked()) {
        saver.save_at_exit();
    }
}

fn end_at_once(at_once: bool) {
    if let Some(flag) = AT_ONCE.get() {
        flag.store(at_once, Ordering::SeqCst);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
