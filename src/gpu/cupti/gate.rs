//! A gate that keeps threads out of the driver's functions while CUPTI's state changes.
//!
//! CUPTI calls back when a thread enters and leaves a function that gives the GPU work. In between, the thread is
//! *inside*, and CUPTI must not begin or end recording: it follows each operation through several places in the driver,
//! and expects the same state at all of them. So the thread that switches CUPTI closes the gate. Other threads wait
//! where they enter, those inside continue until they leave, and when no thread is inside, CUPTI can be switched.
//!
//! It also calls back for functions in which the host waits for the GPU, perhaps for long. They give the GPU no work,
//! so recording can begin and end meanwhile; only to detach CUPTI must threads have left these as well.

use std::{
    cell::Cell,
    sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
    time::{Duration, Instant},
};

/// The gate, and the counts of the threads inside.
#[derive(Debug, Default)]
pub(super) struct Gate {
    is_closed: AtomicBool,
    /// The number of threads that arrived while the gate was closed and are still in that callback.
    waiting: AtomicU32,
    /// The number of times CUPTI was attached in this process.
    epoch: AtomicU32,
    /// The number of threads that have entered a function in this epoch.
    threads: AtomicU32,
    /// The counts of threads inside functions that give the GPU work. Threads are spread over slots, so that they do
    /// not contend for cache lines.
    slots: [Slot; 16],
    /// The counts of threads inside functions that wait for the GPU.
    waits: [Slot; 16],
}

/// The kinds of functions that a thread can be inside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Function {
    /// It gives the GPU work, or may do so.
    Work,
    /// It waits for the GPU, or does something else that takes long, and gives it no work.
    Wait,
}

/// A count of threads inside: the epoch in the upper half, the count in the lower. A thread that entered in an earlier
/// epoch gets no callback for leaving, and no longer counts.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Slot(AtomicU64);

impl Slot {
    /// Changes the count if it is still this epoch. Returns false if it is not.
    #[inline]
    fn change(&self, epoch: u32, change: impl Fn(u64) -> u64) -> bool {
        let changed = |slot| (slot >> 32 == u64::from(epoch)).then(|| change(slot));
        self.0.fetch_update(Ordering::SeqCst, Ordering::SeqCst, changed).is_ok()
    }

    fn inside(&self) -> u32 {
        self.0.load(Ordering::SeqCst) as u32
    }
}

/// The number of nested calls a thread is in: the runtime's functions call the driver's.
#[derive(Clone, Copy)]
struct Depth {
    epoch: u32,
    calls: u32,
    /// The kind of the outermost call.
    function: Function,
}

impl Depth {
    const OUTSIDE: Self = Self { epoch: 0, calls: 0, function: Function::Work };
}

thread_local! {
    static DEPTH: Cell<Depth> = const { Cell::new(Depth::OUTSIDE) };
    static SLOT: Cell<Option<usize>> = const { Cell::new(None) };
}

impl Gate {
    /// How long a thread waits at a closed gate, since the thread that closed it may be suspended. In tests, long
    /// enough for any machine.
    const ENTER_TIMEOUT: Duration = Duration::from_secs(if cfg!(test) { 3600 } else { 2 });
    /// How long to wait, after opening the gate, for waiting threads to go inside.
    const DRAIN_TIMEOUT: Duration = Duration::from_millis(if cfg!(test) { 3_600_000 } else { 100 });
    /// How long to wait, after closing the gate, for the threads inside.
    pub(super) const CLOSE_TIMEOUT: Duration = Duration::from_millis(if cfg!(miri) { 1000 } else { 1 });

    /// Begins an epoch with no thread inside, and returns the number of other threads that entered in the last one. It
    /// must be called before callbacks begin.
    pub(super) fn reset(&self) -> u32 {
        // One counter for all gates of the process, since threads remember the epoch.
        static EPOCHS: AtomicU32 = AtomicU32::new(0);
        let epoch = EPOCHS.fetch_add(1, Ordering::SeqCst).wrapping_add(1);
        self.slots.iter().chain(&self.waits).for_each(|slot| slot.0.store(u64::from(epoch) << 32, Ordering::SeqCst));
        let last = self.epoch.swap(epoch, Ordering::SeqCst);
        let own = u32::from(DEPTH.get().epoch == last);
        self.threads.swap(0, Ordering::SeqCst).saturating_sub(own)
    }

    /// The number of threads that have entered a function since the last [reset](Self::reset).
    pub(super) fn threads(&self) -> u32 {
        self.threads.load(Ordering::SeqCst)
    }

    /// Goes inside, waiting if the gate is closed. Drop the guard when the callback returns.
    #[inline]
    pub(super) fn enter(&self, function: Function) -> Entered<'_> {
        let (mut depth, epoch) = (DEPTH.get(), self.epoch.load(Ordering::SeqCst));
        if depth.epoch != epoch {
            depth = Depth { epoch, ..Depth::OUTSIDE };
            self.threads.fetch_add(1, Ordering::SeqCst);
        }
        let mut entered = Entered(None);
        if depth.calls > 0 {
            depth.calls += 1;
        } else if self.pass(epoch, function, &mut entered) {
            (depth.calls, depth.function) = (1, function);
        }
        DEPTH.set(depth);
        entered
    }

    /// Counts the thread as inside. Returns false if the epoch is over.
    #[inline]
    fn pass<'a>(&'a self, epoch: u32, function: Function, entered: &mut Entered<'a>) -> bool {
        let slot = self.slot(function);
        let counted = slot.change(epoch, |inside| inside + 1);
        if counted && self.is_closed.load(Ordering::SeqCst) {
            self.waiting.fetch_add(1, Ordering::SeqCst);
            *entered = Entered(Some(self));
            return self.wait(slot, epoch);
        }
        counted
    }

    #[cold]
    fn wait(&self, slot: &Slot, epoch: u32) -> bool {
        let until = Instant::now() + Self::ENTER_TIMEOUT;
        let mut counted = true;
        while counted && self.is_closed.load(Ordering::SeqCst) && Instant::now() < until {
            slot.change(epoch, |inside| inside - 1);
            while self.is_closed.load(Ordering::SeqCst) && Instant::now() < until {
                std::thread::yield_now();
            }
            counted = slot.change(epoch, |inside| inside + 1);
        }
        counted
    }

    /// Waits until the threads that waited at the gate have gone inside. Returns false if one of them is suspended for
    /// long.
    pub(super) fn drain_waiting(&self) -> bool {
        let until = Instant::now() + Self::DRAIN_TIMEOUT;
        while self.waiting.load(Ordering::SeqCst) > 0 {
            if Instant::now() >= until {
                return false;
            }
            std::thread::yield_now();
        }
        true
    }

    /// Leaves a function that the thread [entered](Self::enter), after its records have been written.
    #[inline]
    pub(super) fn leave(&self) {
        let mut depth = DEPTH.get();
        let Some(calls) = depth.calls.checked_sub(1) else { return };
        depth.calls = calls;
        DEPTH.set(depth);
        if calls == 0 {
            self.slot(depth.function).change(depth.epoch, |inside| inside - 1);
        }
    }

    /// Whether this thread is inside.
    #[inline]
    pub(super) fn is_inside(&self) -> bool {
        let depth = DEPTH.get();
        depth.calls > 0 && depth.epoch == self.epoch.load(Ordering::Relaxed)
    }

    #[inline]
    fn slot(&self, function: Function) -> &Slot {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let slot = SLOT.get().unwrap_or_else(|| {
            let slot = NEXT.fetch_add(1, Ordering::Relaxed) as usize;
            SLOT.set(Some(slot));
            slot
        });
        let slots = if function == Function::Work { &self.slots } else { &self.waits };
        &slots[slot % slots.len()]
    }

    /// Closes the gate and waits until no thread is inside a function that gives the GPU work. Returns `None`, with the
    /// gate open, if a thread stays inside: a launch waits while the GPU's queue is full.
    pub(super) fn close(&self) -> Option<Closed<'_>> {
        self.close_while(|| self.slots.iter().any(|slot| slot.inside() > 0))
    }

    /// Closes the gate and waits until no thread is inside any function. Returns `None`, with the gate open, if a
    /// thread stays inside.
    pub(super) fn close_to_all(&self) -> Option<Closed<'_>> {
        self.close_while(|| self.slots.iter().chain(&self.waits).any(|slot| slot.inside() > 0))
    }

    /// Closes the gate, and waits while a thread is inside.
    fn close_while(&self, is_inside: impl Fn() -> bool) -> Option<Closed<'_>> {
        self.is_closed.store(true, Ordering::SeqCst);
        let closed = Closed(self);
        let until = Instant::now() + Self::CLOSE_TIMEOUT;
        while is_inside() {
            if Instant::now() >= until {
                return None;
            }
            std::thread::yield_now();
        }
        Some(closed)
    }
}

/// A guard for a callback in which a thread went inside. It holds the gate if the thread had to wait there.
#[must_use]
#[derive(Debug)]
pub(super) struct Entered<'a>(Option<&'a Gate>);

impl Drop for Entered<'_> {
    #[inline]
    fn drop(&mut self) {
        if let Some(gate) = self.0 {
            gate.waiting.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

/// A guard that keeps the gate closed until it is dropped.
#[derive(Debug)]
pub(super) struct Closed<'a>(&'a Gate);

impl Drop for Closed<'_> {
    fn drop(&mut self) {
        self.0.is_closed.store(false, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::{Function, Gate};
    use std::{
        sync::atomic::{AtomicBool, AtomicU32, Ordering},
        time::{Duration, Instant},
    };

    #[test]
    fn nobody_is_inside_while_the_gate_is_closed() {
        let (gate, over) = (Gate::default(), AtomicBool::new(false));
        // Read and written without a lock: only the gate keeps the threads apart.
        let state = AtomicU32::new(0);
        gate.reset();
        let rounds = if cfg!(miri) { 20 } else { 2000 };
        let closed = std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    while !over.load(Ordering::Relaxed) {
                        let _ = gate.enter(Function::Work);
                        let _ = gate.enter(Function::Work);
                        let before = state.load(Ordering::Relaxed);
                        gate.leave();
                        std::thread::yield_now();
                        assert_eq!(
                            state.load(Ordering::Relaxed),
                            before,
                            "the state changed while a thread was inside"
                        );
                        gate.leave();
                    }
                });
            }
            let (until, mut tries, mut closed) = (Instant::now() + Duration::from_secs(120), 0, 0);
            // On a busy machine a thread is nearly always inside, since threads are suspended there.
            while tries < rounds || closed == 0 && Instant::now() < until {
                if let Some(_closed) = gate.close() {
                    state.fetch_add(1, Ordering::Relaxed);
                    std::thread::yield_now();
                    state.fetch_add(1, Ordering::Relaxed);
                    closed += 1;
                }
                tries += 1;
            }
            over.store(true, Ordering::Relaxed);
            closed
        });
        assert!(closed > 0);
        assert_eq!(state.into_inner(), 2 * closed);
    }

    #[test]
    fn the_gate_does_not_close_while_a_thread_stays_inside() {
        let gate = Gate::default();
        gate.reset();
        let _ = gate.enter(Function::Work);
        assert!(gate.close().is_none());
        gate.leave();
        assert!(gate.close().is_some());
        // Callbacks ended and began again while the thread was inside.
        let _ = gate.enter(Function::Work);
        gate.reset();
        gate.leave();
        assert!(gate.close().is_some());
        let _ = gate.enter(Function::Work);
        gate.leave();
        gate.leave();
        assert!(gate.close().is_some());
    }

    #[test]
    fn recording_begins_and_ends_while_threads_wait_for_the_gpu() {
        let gate = Gate::default();
        gate.reset();
        let _ = gate.enter(Function::Wait);
        assert!(gate.close().is_some() && gate.close_to_all().is_none());
        // A function called by another is part of it.
        let _ = gate.enter(Function::Work);
        assert!(gate.close().is_some());
        gate.leave();
        gate.leave();
        assert!(gate.close_to_all().is_some());
        let _ = gate.enter(Function::Work);
        assert!(gate.close().is_none() && gate.close_to_all().is_none());
        gate.leave();
        assert!(gate.close().is_some() && gate.close_to_all().is_some());
    }

    #[test]
    fn threads_are_counted_once_each_time_that_cupti_is_attached() {
        let gate = Gate::default();
        gate.reset();
        let enter_twice = || (0..2).for_each(|_| drop((gate.enter(Function::Work), gate.leave())));
        enter_twice();
        std::thread::scope(|scope| (0..3).for_each(|_| drop(scope.spawn(enter_twice))));
        assert_eq!(gate.threads(), 4);
        // The thread that attaches it does not wait for itself.
        assert_eq!((gate.reset(), gate.threads()), (3, 0));
        enter_twice();
        assert_eq!((gate.threads(), gate.reset()), (1, 0));
        assert_eq!(gate.reset(), 0);
    }

    #[test]
    fn threads_that_waited_at_the_gate_are_waited_for() {
        let (gate, over) = (Gate::default(), AtomicBool::new(false));
        gate.reset();
        std::thread::scope(|scope| {
            let closed = gate.close().unwrap();
            scope.spawn(|| {
                let entered = gate.enter(Function::Work);
                assert!(gate.is_inside());
                over.store(true, Ordering::SeqCst);
                drop(entered);
                gate.leave();
                assert!(!gate.is_inside());
            });
            while gate.waiting.load(Ordering::SeqCst) == 0 {
                std::thread::yield_now();
            }
            drop(closed);
            assert!(gate.drain_waiting() && over.load(Ordering::SeqCst));
        });
        let _entered = gate.enter(Function::Work);
        assert!(gate.drain_waiting());
    }
}
