//! Calls of the C library for which no safe function is known: `atexit`, and asking whether a signal is ignored.

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

/// Whether the process ignores a signal.
#[doc(alias = "sigaction")]
pub(super) fn is_ignored(signal: i32) -> bool {
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: with no new action, `sigaction` only writes the present one to `action`, which has room for it.
    let asked = unsafe { libc::sigaction(signal, ptr::null(), action.as_mut_ptr()) };
    // SAFETY: it is plain data, for which zeros are valid; and `sigaction` has written it if it returned 0.
    asked == 0 && unsafe { action.assume_init() }.sa_sigaction == libc::SIG_IGN
}
