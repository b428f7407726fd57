//! Calls of the C library for which no safe function is known: at the exit, in forks, and the actions of signals.

#![allow(unsafe_code, reason = "these are functions of C")]

use std::{io, mem::MaybeUninit, panic::catch_unwind, ptr, sync::OnceLock};

/// Has a function called when the process ends by `exit`, or by the return of `main`. Only the first one is kept.
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
    // SAFETY: `call` takes and returns nothing, as `atexit` demands, does not unwind, and is there as long as the
    // program's code. A library that is unloaded has its handlers called first.
    match unsafe { libc::atexit(call) } {
        0 => Ok(()),
        _ => Err(io::Error::other("there are too many functions to call at exit")),
    }
}

/// Has a function called in each process that is forked from this one. Only the first one is kept. It may do no more
/// than a handler of signals may: locks may be held by threads that the fork does not have.
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

/// Whether a signal has its default action: it is neither ignored, nor is there a handler.
#[doc(alias = "sigaction")]
pub(super) fn is_default(signal: i32) -> bool {
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: with no new action, `sigaction` only writes the present one to `action`, which has room for it.
    let asked = unsafe { libc::sigaction(signal, ptr::null(), action.as_mut_ptr()) };
    // SAFETY: it is plain data, for which zeros are valid; and `sigaction` has written it if it returned 0.
    asked != 0 || unsafe { action.assume_init() }.sa_sigaction == libc::SIG_DFL
}
