//! The call stacks of sampled allocations, each captured once in a run.
//!
//! The standard library captures and resolves backtraces under a lock of its own, and allocates meanwhile. So a thread
//! that is inside of that must not capture another one here, nor a fork, in which nobody may ever unlock it. Stacks are
//! told apart by their return addresses, which are walked without a lock: only a new one is captured.

use rustc_hash::FxHashMap;
use std::{
    backtrace::Backtrace,
    sync::{
        Arc, Mutex, PoisonError, TryLockError,
        atomic::{AtomicU32, Ordering},
    },
};

/// The most stacks of a run: some 4 KB each. Samples of other stacks have no line.
const MAX_STACKS: usize = 4096;
/// The number of innermost frames by which stacks are told apart: enough to leave the code of libraries.
const FRAMES: usize = 32;
/// How often an allocation tries to lock the stacks, which others hold for less than a microsecond.
const TRIES: u32 = 1000;

/// The process that captures stacks; 0 for none.
static PROCESS: AtomicU32 = AtomicU32::new(0);
static STACKS: Mutex<Option<FxHashMap<u64, Arc<Backtrace>>>> = Mutex::new(None);

/// Begins to capture stacks.
pub(super) fn begin() {
    *STACKS.lock().unwrap_or_else(PoisonError::into_inner) = Some(FxHashMap::default());
    // It reads the program's debug information, which may take long, and no thread should wait for that later.
    drop(Backtrace::force_capture().to_string());
    PROCESS.store(std::process::id(), Ordering::Relaxed);
}

/// Stops capturing stacks, and forgets those captured.
pub(super) fn end() {
    PROCESS.store(0, Ordering::Relaxed);
    STACKS.lock().unwrap_or_else(PoisonError::into_inner).take();
}

/// Returns the stack of this thread, if stacks are captured and this one can be. What this allocates must not be
/// counted.
pub(super) fn capture() -> Option<Arc<Backtrace>> {
    let process = PROCESS.load(Ordering::Relaxed);
    // While a thread panics, it may be printing a backtrace.
    if process == 0 || process != std::process::id() || std::thread::panicking() {
        return None;
    }
    let identity = unwind::identity()?;
    let is_full = with_stacks(|stacks| stacks.get(&identity).cloned().ok_or(stacks.len() >= MAX_STACKS))?;
    let is_full = match is_full {
        Ok(known) => return Some(known),
        Err(is_full) => is_full,
    };
    if is_full || unwind::is_in_backtrace() {
        return None;
    }
    // Not under our lock: this may wait for a thread that resolves a backtrace, and that thread may be sampled.
    let captured = Arc::new(Backtrace::force_capture());
    with_stacks(|stacks| Arc::clone(stacks.entry(identity).or_insert(captured)))
}

fn with_stacks<T>(with: impl FnOnce(&mut FxHashMap<u64, Arc<Backtrace>>) -> T) -> Option<T> {
    for _ in 0..TRIES {
        let mut stacks = match STACKS.try_lock() {
            Ok(stacks) => stacks,
            Err(TryLockError::Poisoned(stacks)) => stacks.into_inner(),
            Err(TryLockError::WouldBlock) => {
                std::thread::yield_now();
                continue;
            }
        };
        return stacks.as_mut().map(with);
    }
    None
}

/// Walks the stack by the unwinder that Rust's panics use.
#[cfg(all(unix, not(miri)))]
mod unwind {
    use super::FRAMES;
    use std::{
        backtrace::Backtrace,
        ffi::{c_int, c_void},
        fmt,
        ops::ControlFlow,
    };

    #[repr(C)]
    struct UnwindContext {
        _private: [u8; 0],
    }

    unsafe extern "C-unwind" {
        fn _Unwind_Backtrace(
            each: extern "C-unwind" fn(*mut UnwindContext, *mut c_void) -> c_int,
            argument: *mut c_void,
        ) -> c_int;
        fn _Unwind_GetIP(context: *mut UnwindContext) -> usize;
        fn _Unwind_FindEnclosingFunction(address: *mut c_void) -> *mut c_void;
    }

    /// Visits the return addresses of this thread's stack, innermost first.
    fn walk<F: FnMut(usize) -> ControlFlow<()>>(mut visit: F) {
        extern "C-unwind" fn each<F: FnMut(usize) -> ControlFlow<()>>(
            context: *mut UnwindContext,
            visit: *mut c_void,
        ) -> c_int {
            // `_URC_NO_REASON` goes on, and `_URC_END_OF_STACK` stops.
            const GO_ON: c_int = 0;
            const STOP: c_int = 5;
            // SAFETY: the unwinder passes its context, and the pointer given to it below, which nobody else uses.
            let (address, visit) = unsafe { (_Unwind_GetIP(context), &mut *visit.cast::<F>()) };
            if visit(address).is_continue() { GO_ON } else { STOP }
        }
        // SAFETY: the function has the type that the unwinder calls, and `visit` outlives the call.
        unsafe { _Unwind_Backtrace(each::<F>, (&raw mut visit).cast()) };
    }

    /// Returns a hash of the innermost return addresses.
    pub(super) fn identity() -> Option<u64> {
        let (mut hash, mut count) = (0_u64, 0);
        walk(|address| {
            hash = (hash.rotate_left(5) ^ address as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            count += 1;
            if count < FRAMES { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        });
        (count > 0).then_some(hash)
    }

    /// Whether this thread captures or resolves a backtrace of the standard library, and so may hold its lock. All ways
    /// into that are functions that cannot be inlined, or are called by pointers; panics are another way.
    pub(super) fn is_in_backtrace() -> bool {
        type Write = fn(&Backtrace, &mut fmt::Formatter<'_>) -> fmt::Result;
        let entries = [
            Backtrace::capture as fn() -> Backtrace as usize,
            Backtrace::force_capture as fn() -> Backtrace as usize,
            <Backtrace as fmt::Display>::fmt as Write as usize,
            <Backtrace as fmt::Debug>::fmt as Write as usize,
        ];
        let mut is_inside = false;
        walk(|address| {
            // A return address may be after the last instruction of its function.
            let call = std::ptr::without_provenance_mut(address.saturating_sub(1));
            // SAFETY: any address may be looked up.
            is_inside = entries.contains(&unsafe { _Unwind_FindEnclosingFunction(call) }.addr());
            if is_inside { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        is_inside
    }

    #[cfg(test)]
    mod tests {
        use super::super::{PROCESS, begin, capture, end};
        use super::{identity, is_in_backtrace};
        use std::{
            backtrace::Backtrace,
            fmt::Write,
            sync::{
                Arc,
                atomic::Ordering,
                mpsc::{Sender, channel},
            },
        };

        /// A text that looks at the stack whenever some of it is written.
        #[derive(Default)]
        struct Looking(usize, usize);

        impl Write for Looking {
            fn write_str(&mut self, _: &str) -> std::fmt::Result {
                self.0 += 1;
                self.1 += usize::from(is_in_backtrace());
                Ok(())
            }
        }

        #[test]
        fn a_thread_that_writes_a_backtrace_is_found() {
            let backtrace = Backtrace::force_capture();
            assert!(!is_in_backtrace());
            for debug in [false, true] {
                let mut looking = Looking::default();
                if debug { write!(looking, "{backtrace:?}") } else { write!(looking, "{backtrace}") }.unwrap();
                assert!(looking.0 > 5 && looking.1 >= looking.0 - 1, "{} of {}", looking.1, looking.0);
            }
        }

        /// A fork has another process id, and the lock of the standard library may be held in it forever.
        #[test]
        fn stacks_are_captured_once_and_never_in_a_fork_or_a_panic() {
            begin();
            let captured: Vec<_> = (0..2).map(|_| capture().unwrap()).collect();
            assert!(Arc::ptr_eq(&captured[0], &captured[1]));
            PROCESS.store(std::process::id() + 1, Ordering::Relaxed);
            assert!(capture().is_none());
            PROCESS.store(std::process::id(), Ordering::Relaxed);
            assert!(capture().is_some());
            struct AtDrop(Sender<bool>);
            impl Drop for AtDrop {
                fn drop(&mut self) {
                    self.0.send(capture().is_none()).unwrap();
                }
            }
            let (sender, receiver) = channel();
            let panics = move || {
                let _at_drop = AtDrop(sender);
                std::panic::resume_unwind(Box::new(()));
            };
            let _ = std::thread::spawn(panics).join();
            assert!(receiver.recv().unwrap());
            end();
            assert!(capture().is_none());
        }

        #[test]
        fn stacks_are_told_apart() {
            let of_line: Vec<_> = (0..2).map(|_| identity()).collect();
            assert_eq!(of_line[0], of_line[1]);
            assert_ne!(identity(), of_line[0]);
        }
    }
}

/// Other systems walk stacks in other ways.
#[cfg(not(all(unix, not(miri))))]
mod unwind {
    pub(super) fn identity() -> Option<u64> {
        None
    }

    pub(super) fn is_in_backtrace() -> bool {
        true
    }
}
