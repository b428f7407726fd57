//! The CUPTI switch, which attaches CUPTI, turns it on and off, flushes it and detaches it.
//!
//! | state | CUPTI |
//! |---|---|
//! | detached | is not in the process: a launch takes as long as without kernspan |
//! | off | calls back on entering and leaving functions, and records nothing |
//! | on | calls back, and records activity |
//!
//! # Who may call what
//!
//! Every CUPTI function that changes its state is called here, through `&mut self`, and the [`Switch`] lives behind the
//! lock of [`Source`](super::source::Source), so no two of them run at once, whichever threads request them. The reader
//! flushes. The stepping thread switches CUPTI on and off and detaches it, between two steps, when it is not in a
//! driver call itself; the [`Gate`] keeps all others out of the functions that matter. CUPTI's callbacks come on any
//! thread at any time: they take no lock that is held while CUPTI is called, and do not call CUPTI.
//!
//! # CUPTI bugs that this avoids
//!
//! Seen with CUPTI 13.0.1 on an H200, alongside threads that launch without pause, each of which is nearly always
//! inside a call:
//!
//! - CUPTI pushes each call that it calls back for onto a stack of the thread, and pops it when the call returns, if
//!   the callback is still enabled then. If `cuptiEnableCallback` disables it in between, the call stays there forever,
//!   and all later launches of that thread get its correlation id. `cuptiUnsubscribe` has no such effect, so callbacks
//!   end only that way.
//! - CUPTI keeps its subscribers in a list, and walks it for each callback without a lock. `cuptiUnsubscribe` frees a
//!   list element even if a thread is in its callback. If there is a subscriber again when that thread returns, as on a
//!   busy machine where it was suspended meanwhile, it continues from the freed element and crashes. So CUPTI calls
//!   back as long as it is attached, and afterwards there is no subscriber until threads have had time to return.
//! - If kinds of activity are disabled in the middle of an operation, CUPTI crashes in a later `cuLaunchKernelEx` of
//!   the same thread, writing through a pointer that an earlier part of the operation would have set.
//! - `cuptiFinalize` while subscribed also leaves calls on that stack. After `cuptiUnsubscribe` it does not.
//!
//! `benches/gpu/src/bin/switching.rs` shows the first and the last with CUPTI alone.

use super::{
    calls::{self, CallbackState},
    gate::Gate,
    sink,
};
use crate::{
    activity::{Activities, Activity},
    gpu::DetachPolicy,
};
use cupti_sys::{Cupti, Error, Subscriber, domain, kind, thread_id_type};
use std::{
    ops::Range,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

/// When this process last unsubscribed.
static UNSUBSCRIBED: Mutex<Option<Instant>> = Mutex::new(None);

/// The owner of CUPTI's state: every call that changes it goes through here.
#[derive(Debug)]
pub(super) struct Switch {
    cupti: &'static Cupti,
    /// The state of the callback. It is never freed, nor is the host it holds, since a callback may be in progress when
    /// the profiler ends.
    callbacks: &'static CallbackState,
    activities: Activities,
    state: State,
}

#[derive(Clone, Copy, Debug)]
enum State {
    Detached,
    Off(Subscriber),
    On(Subscriber),
}

impl Switch {
    /// The minimum and maximum wait for calls of other threads that were made before callbacks began, and that the gate
    /// does not count.
    const SETTLING: Range<Duration> = Duration::from_millis(2)..Duration::from_millis(10);
    /// The number of attempts to close the gate before CUPTI is switched on regardless, since a copy to the host keeps
    /// a thread inside until it is done.
    const TRIES: u32 = 4;

    pub(super) fn new(cupti: &'static Cupti, callbacks: &'static CallbackState, activities: Activities) -> Self {
        Self { cupti, callbacks, activities, state: State::Detached }
    }

    pub(super) fn is_on(&self) -> bool {
        matches!(self.state, State::On(_))
    }

    pub(super) fn is_detached(&self) -> bool {
        matches!(self.state, State::Detached)
    }

    fn gate(&self) -> &'static Gate {
        &self.callbacks.gate
    }

    /// Attaches CUPTI, unless it is attached. `alone` says that no other thread launches. If this fails, there are no
    /// callbacks. CUPTI is not detached then, since counters may be in use.
    pub(super) fn attach(&mut self, alone: bool) -> Result<(), Error> {
        if !self.is_detached() {
            return Ok(());
        }
        let unsubscribed = *UNSUBSCRIBED.lock().unwrap_or_else(PoisonError::into_inner);
        std::thread::sleep(
            unsubscribed.map_or(Duration::ZERO, |at| DetachPolicy::REATTACH_DELAY.saturating_sub(at.elapsed())),
        );
        let threads = self.callbacks.reset();
        let callbacks = std::ptr::from_ref(self.callbacks).cast_mut().cast();
        // SAFETY: the state is never freed, and the callback does not unwind.
        let subscriber = unsafe { self.cupti.subscribe(calls::on_api_call, callbacks) }?;
        self.state = State::Off(subscriber);
        self.enable_callbacks(subscriber).inspect_err(|_| _ = self.unsubscribe())?;
        if !alone {
            self.settle(threads);
        }
        Ok(())
    }

    /// Waits for calls made before callbacks began. A thread that enters a function has left its earlier call; a thread
    /// that was suspended inside one may need longer than others. `threads` is the number of threads expected to enter
    /// one. If fewer launch than before, the wait takes its full time.
    fn settle(&self, threads: u32) {
        let start = Instant::now();
        std::thread::sleep(Self::SETTLING.start);
        while self.gate().threads() < threads && start.elapsed() < Self::SETTLING.end {
            std::thread::sleep(Duration::from_micros(100));
        }
    }

    fn enable_callbacks(&self, subscriber: Subscriber) -> Result<(), Error> {
        let cupti = self.cupti;
        cupti.set_thread_id_type(thread_id_type::SYSTEM)?;
        // SAFETY: both are functions that remain, do not unwind, and provide buffers that stay until they are taken
        // back.
        unsafe { cupti.activity_register_callbacks(sink::requested, sink::completed) }?;
        if self.activities.has(Activity::ApiCalls) {
            for domain in [domain::DRIVER_API, domain::RUNTIME_API] {
                let _ = cupti.enable_domain(subscriber, domain, true);
            }
        }
        for function in calls::functions(self.activities) {
            // An error is ignored: a release of CUPTI that does not know a function makes no callback for it.
            let _ = cupti.enable_callback(subscriber, domain::DRIVER_API, function, true);
        }
        Ok(())
    }

    /// Starts recording, if CUPTI is attached. If this fails, CUPTI is off.
    pub(super) fn turn_on(&mut self) -> Result<(), Error> {
        let State::Off(subscriber) = self.state else { return Ok(()) };
        let _closed = (0..Self::TRIES).find_map(|tries| {
            // Threads waiting at the gate continue meanwhile.
            std::thread::sleep(Gate::CLOSE_TIMEOUT * tries);
            self.gate().close()
        });
        self.state = State::On(subscriber);
        self.callbacks.set_on(true);
        let enabled = self.kinds().try_for_each(|kind| self.cupti.activity_enable(kind));
        enabled.inspect_err(|_| self.disable(subscriber))
    }

    /// Stops recording. Returns false if that is not possible now because a thread stays inside a call.
    pub(super) fn turn_off(&mut self) -> bool {
        let State::On(subscriber) = self.state else { return true };
        let Some(_closed) = self.gate().close() else { return false };
        self.disable(subscriber);
        true
    }

    fn disable(&mut self, subscriber: Subscriber) {
        for kind in self.kinds() {
            let _ = self.cupti.activity_disable(kind);
        }
        self.callbacks.set_on(false);
        self.state = State::Off(subscriber);
    }

    /// Ends recording and callbacks. Returns false if that is not possible now.
    pub(super) fn unsubscribe(&mut self) -> bool {
        let (State::Off(subscriber) | State::On(subscriber)) = self.state else { return true };
        let Some(_closed) = self.gate().close_to_all() else { return false };
        if self.is_on() {
            self.disable(subscriber);
        }
        let _ = self.cupti.unsubscribe(subscriber);
        *UNSUBSCRIBED.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
        self.state = State::Detached;
        true
    }

    /// Detaches CUPTI from the process. Returns false if that is not possible now.
    pub(super) fn detach(&mut self) -> bool {
        if self.is_detached() {
            return true;
        }
        if !self.unsubscribe() {
            return false;
        }
        // If a thread is still waiting, CUPTI stays in the process, without callbacks.
        if self.gate().drain_waiting() {
            // SAFETY: every CUPTI call that changes its state is made through `&mut self`, and buffers are read by the
            // reader, which has nothing to read for: no window is open, and all closed ones are complete.
            let _ = unsafe { self.cupti.finalize() };
        }
        true
    }

    /// Asks CUPTI to return its buffers.
    pub(super) fn flush(&mut self, flags: u32) {
        if !self.is_detached() {
            let _ = self.cupti.activity_flush_all(flags);
        }
    }

    /// How many records CUPTI has dropped since the last call.
    pub(super) fn dropped_records(&mut self) -> u64 {
        if self.is_detached() { 0 } else { self.cupti.activity_dropped_records().unwrap_or(0) as u64 }
    }

    fn kinds(&self) -> impl Iterator<Item = u32> {
        let asked = |activity, kinds: &'static [u32]| if self.activities.has(activity) { kinds } else { &[] };
        let kernels = asked(Activity::Kernels, &[kind::CONCURRENT_KERNEL, kind::OVERHEAD]);
        let copies = asked(Activity::Copies, &[kind::MEMCPY, kind::MEMCPY2, kind::MEMSET]);
        let waits = asked(Activity::Sync, &[kind::SYNCHRONIZATION]);
        kernels.iter().chain(copies).chain(waits).copied()
    }
}
