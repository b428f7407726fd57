//! Wakes the thread of a `Watch` when the process ends: by `exit`, by returning from `main` while the plugin still
//! lives, or by `SIGTERM`.

#![allow(unsafe_code, reason = "exit and fork handlers are functions of C")]

use signal_hook::{
    SigId,
    consts::SIGTERM,
    flag,
    low_level::{emulate_default_handler, pipe, unregister},
};
use std::{
    fs,
    io::{self, Read, Write},
    os::unix::net::UnixStream,
    panic::catch_unwind,
    process,
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError, TryLockError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

/// The longest time that `exit` waits for the file of a rank.
const LONGEST: Duration = Duration::from_secs(5);

/// The handlers of this process, once there are any. Handlers cannot be removed.
static HANDLERS: Mutex<Option<Arc<Handlers>>> = Mutex::new(None);

/// The flags that the handlers of signals and of `exit` set.
#[derive(Debug)]
struct Handlers {
    /// Whether `SIGTERM` ends the process at once: if nothing is to be written, after a first one, and in a fork.
    at_once: Arc<AtomicBool>,
    terminated: Arc<AtomicBool>,
    /// Whether `SIGTERM` ended the process before the first handler. If not, the program's handler decides.
    ends: bool,
    alarms: Mutex<Vec<Arc<Alarm>>>,
    process: u32,
}

/// Wakes a thread: when the process ends, on a signal, or when there is nothing more to do.
#[derive(Debug)]
pub(crate) struct Alarm {
    handlers: Arc<Handlers>,
    wake: UnixStream,
    woken: UnixStream,
    signals: Mutex<Vec<SigId>>,
    exiting: AtomicBool,
    /// Whether the thread has answered to `exiting`.
    answered: Mutex<bool>,
    changed: Condvar,
}

/// How the process ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProcessEnd {
    Exit,
    Terminated,
}

impl Alarm {
    /// Returns an alarm that is set off when the process ends, and by one more signal, which sets a flag.
    pub(crate) fn new(signal: Option<(i32, &Arc<AtomicBool>)>) -> io::Result<Arc<Self>> {
        let mut all = lock(&HANDLERS);
        let handlers = match &*all {
            Some(handlers) => Arc::clone(handlers),
            None => Arc::clone(all.insert(Arc::new(Handlers::register()?))),
        };
        let (wake, woken) = UnixStream::pair()?;
        // A handler must not wait if nobody reads, nor the thread for longer than its interval.
        wake.set_nonblocking(true)?;
        let mut signals = vec![pipe::register(SIGTERM, wake.try_clone()?)?];
        if let Some((signal, flag)) = signal {
            signals.push(flag::register(signal, Arc::clone(flag))?);
            signals.push(pipe::register(signal, wake.try_clone()?)?);
        }
        let alarm = Arc::new(Self {
            handlers,
            wake,
            woken,
            signals: Mutex::new(signals),
            exiting: AtomicBool::new(false),
            answered: Mutex::new(false),
            changed: Condvar::new(),
        });
        lock(&alarm.handlers.alarms).push(Arc::clone(&alarm));
        alarm.handlers.at_once.store(false, Ordering::SeqCst);
        Ok(alarm)
    }

    /// Waits until the alarm is set off, or for this time.
    pub(crate) fn wait(&self, time: Duration) {
        if self.woken.set_read_timeout(Some(time)).is_ok() {
            let _ = (&self.woken).read(&mut [0; 64]);
        }
    }

    /// Wakes the thread.
    pub(crate) fn wake(&self) {
        let _ = (&self.wake).write(&[0]);
    }

    /// Returns how the process ends, if it does.
    pub(crate) fn process_end(&self) -> Option<ProcessEnd> {
        if self.handlers.terminated.load(Ordering::SeqCst) {
            return Some(ProcessEnd::Terminated);
        }
        self.exiting.load(Ordering::SeqCst).then_some(ProcessEnd::Exit)
    }

    /// Lets the process end. Does not return if a signal ends it.
    pub(crate) fn answer(&self, end: ProcessEnd) {
        if end == ProcessEnd::Terminated && self.handlers.terminated.swap(false, Ordering::SeqCst) && self.handlers.ends
        {
            let _ = emulate_default_handler(SIGTERM);
        }
        self.exiting.store(false, Ordering::SeqCst);
        *lock(&self.answered) = true;
        self.changed.notify_all();
    }

    /// Ends the alarm: signals have the effect that they had before.
    pub(crate) fn end(self: &Arc<Self>) {
        if self.handlers.process != process::id() {
            return;
        }
        for signal in lock(&self.signals).drain(..) {
            unregister(signal);
        }
        let mut alarms = lock(&self.handlers.alarms);
        alarms.retain(|alarm| !Arc::ptr_eq(alarm, self));
        if alarms.is_empty() {
            self.handlers.at_once.store(true, Ordering::SeqCst);
        }
    }

    /// Sets it off because of `exit`, and waits for the answer.
    fn exit(&self) {
        self.exiting.store(true, Ordering::SeqCst);
        self.wake();
        let answered = self.changed.wait_timeout_while(lock(&self.answered), LONGEST, |answered| !*answered);
        drop(answered.unwrap_or_else(PoisonError::into_inner));
    }
}

impl Handlers {
    fn register() -> io::Result<Self> {
        let (at_once, terminated) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let ends = is_default(SIGTERM);
        if ends {
            // Handlers run in this order: the first signal passes the first one and sets the flag for the next signal.
            flag::register_conditional_default(SIGTERM, Arc::clone(&at_once))?;
            flag::register(SIGTERM, Arc::clone(&at_once))?;
        }
        flag::register(SIGTERM, Arc::clone(&terminated))?;
        // SAFETY: the functions take and return nothing, do not unwind, and live as long as the program's code.
        let registered = unsafe { (libc::atexit(at_exit), libc::pthread_atfork(None, None, Some(in_fork))) };
        if registered != (0, 0) {
            return Err(io::Error::other("there are too many functions to call at exit"));
        }
        Ok(Self { at_once, terminated, ends, alarms: Mutex::default(), process: process::id() })
    }
}

/// Called by C when the process ends by `exit` or by returning from `main`.
extern "C" fn at_exit() {
    // A panic must not unwind into C.
    let _ = catch_unwind(|| {
        let Some(handlers) = lock(&HANDLERS).clone() else { return };
        if handlers.process == process::id() {
            let alarms = lock(&handlers.alarms).clone();
            alarms.iter().for_each(|alarm| alarm.exit());
        }
    });
}

/// Called by C in a forked process, which has the handlers, but no thread that answers. The lock may be held by a
/// thread that the fork does not have.
extern "C" fn in_fork() {
    let handlers = match HANDLERS.try_lock() {
        Ok(handlers) => handlers,
        Err(TryLockError::Poisoned(handlers)) => handlers.into_inner(),
        Err(TryLockError::WouldBlock) => return,
    };
    handlers.iter().for_each(|handlers| handlers.at_once.store(true, Ordering::SeqCst));
}

/// Whether a signal has its default action: it is neither ignored nor handled. If that cannot be read, the program is
/// taken to have a handler.
fn is_default(signal: i32) -> bool {
    let Ok(status) = fs::read_to_string("/proc/self/status") else { return false };
    let has = |set: &str| {
        let mask = status.lines().find_map(|line| line.strip_prefix(set));
        let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
        mask.is_none_or(|mask| mask & 1 << (signal - 1) != 0)
    };
    !has("SigIgn:") && !has("SigCgt:")
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
