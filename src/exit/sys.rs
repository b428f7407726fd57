//! C library calls without a known safe wrapper: exit handlers, fork handlers and signal actions.

#![allow(unsafe_code, reason = "these are functions of C")]

use std::{io, mem::MaybeUninit, panic::catch_unwind, ptr, sync::OnceLock};

/// Registers a function to be called when the process ends by `exit` or by returning from `main`. Only the first is
/// kept.
#[doc(alias = "atexit")]
pub(super) fn at_exit(function: fn()) -> io::Result<()> {
    static FUNCTION: OnceLock<fn()> = OnceLock::new();
    extern "C" fn call() {
        if let Some(function) = FUNCTION.get() {
            // A panic must not unwind into C.
            let _ = catch_unwind(function);
        }
    }
    if FUNCTION.set(function).is_err() {
        return Ok(());
    }
    // SAFETY: `call` takes and returns nothing, as `atexit` demands, does not unwind, and lives as long as the
    // program's code. A library's handlers are called before it is unloaded.
    match unsafe { libc::atexit(call) } {
        0 => Ok(()),
        _ => Err(io::Error::other("there are too many functions to call at exit")),
    }
}

/// Registers a function to be called in each process forked from this one. Only the first is kept. It may do no more
/// than a signal handler may: locks may be held by threads that the fork does not have.
#[doc(alias = "pthread_atfork")]
pub(super) fn in_forks(function: fn()) -> io::Result<()> {
    static FUNCTION: OnceLock<fn()> = OnceLock::new();
    extern "C" fn call() {
        if let Some(function) = FUNCTION.get() {
            // A panic must not unwind into C.
            let _ = catch_unwind(function);
        }
    }
    if FUNCTION.set(function).is_err() {
        return Ok(());
    }
    // SAFETY: as for `atexit`.
    match unsafe { libc::pthread_atfork(None, None, Some(call)) } {
        0 => Ok(()),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}

/// Whether a signal has its default action: it is neither ignored nor handled.
#[doc(alias = "sigaction")]
pub(crate) fn is_default(signal: i32) -> bool {
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: with no new action, `sigaction` only writes the current one to `action`, which has room for it.
    let asked = unsafe { libc::sigaction(signal, ptr::null(), action.as_mut_ptr()) };
    // SAFETY: it is plain data, for which zeros are valid; and `sigaction` has written it if it returned 0.
    asked != 0 || unsafe { action.assume_init() }.sa_sigaction == libc::SIG_DFL
}
