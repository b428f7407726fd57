//! The host side of capture: what threads do, span by span.
//!
//! [`ProfilerLayer`] is called by `tracing` and writes into the calling thread's [`lane`]; the collector reads the lanes. What
//! must be remembered of a span for as long as it lives (its fields) is in [`live`].

mod call_attributor;
mod callsite_cache;
mod control;
mod counters;
mod device_call;
mod fields;
mod foreign;
mod lane;
mod layer;
mod live;
mod operation;
mod origin;
mod stack;
mod watcher;

pub use self::{
    call_attributor::DeviceWork,
    layer::ProfilerLayer,
    origin::HandOver,
    watcher::{Watch, Watcher},
};
pub(crate) use self::{control::Control, counters::Counters, lane::LaneReader, layer::StepOn};

use self::{lane::Lane, live::Live, watcher::Watchers};
use crate::{
    clock::Clock,
    recording::{Callsite, Record, RegistryId},
    thread::{self, ThreadInfo},
    trace::Losses,
};
use std::{
    cell::RefCell,
    sync::{
        Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
    },
};

/// Everything the layer and the collector share.
#[derive(Debug)]
pub(crate) struct Host {
    /// Tells the lanes of several profilers on one thread apart.
    id: u64,
    control: AtomicU64,
    clock: Clock,
    live: Live,
    lane_capacity: usize,
    /// How many windows the collector has handed on.
    collected: AtomicU32,
    /// Readers of lanes that the collector has not taken over yet.
    new_lanes: Mutex<Vec<LaneReader>>,
    resolver: OnceLock<Resolver>,
    /// Whether a lane may remember callsites by id. `Registry` gives an id out again only on the thread that made it first,
    /// so that thread sees its own knowledge go stale; another registry may do otherwise.
    remembers: AtomicBool,
    /// Whether a span was one of OpenTelemetry's.
    #[cfg(feature = "tracing-opentelemetry")]
    has_contexts: AtomicBool,
    /// Whether spans are not asked about any more.
    #[cfg(feature = "tracing-opentelemetry")]
    no_contexts: AtomicBool,
    unreachable: AtomicU64,
    late: AtomicU64,
    watchers: Watchers,
    /// If anybody wants to know of every step.
    counters: Option<Counters>,
}

/// Finds the callsite of a span that is open on another thread.
#[derive(Debug)]
struct Resolver {
    dispatch: tracing::dispatcher::WeakDispatch,
    callsite: fn(&tracing::Dispatch, &tracing::span::Id) -> Option<Callsite>,
}

thread_local! {
    /// This thread's lanes, one for each profiler that saw a span here.
    static LANES: RefCell<Vec<Lane>> = const { RefCell::new(Vec::new()) };
}

impl Host {
    pub(crate) fn new(clock: Clock, lane_capacity: usize, live_spans: usize, counters: bool) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Self {
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            control: AtomicU64::new(Control::waiting(0).as_u64()),
            clock,
            live: Live::new(live_spans),
            lane_capacity,
            collected: AtomicU32::new(0),
            new_lanes: Mutex::default(),
            resolver: OnceLock::new(),
            remembers: AtomicBool::new(false),
            #[cfg(feature = "tracing-opentelemetry")]
            has_contexts: AtomicBool::new(false),
            #[cfg(feature = "tracing-opentelemetry")]
            no_contexts: AtomicBool::new(false),
            unreachable: AtomicU64::new(0),
            late: AtomicU64::new(0),
            watchers: Watchers::default(),
            counters: counters.then(Counters::new),
        }
    }

    pub(crate) fn clock(&self) -> &Clock {
        &self.clock
    }

    /// The counters of the current step, if anybody wants to know of every step.
    pub(crate) fn counters(&self) -> Option<&Counters> {
        self.counters.as_ref()
    }

    #[inline]
    fn control(&self) -> Control {
        // Relaxed: a thread that sees a window's edge a little late is put right by time stamps.
        Control::from_u64(self.control.load(Ordering::Relaxed))
    }

    pub(crate) fn set_control(&self, control: Control) {
        self.control.store(control.as_u64(), Ordering::Relaxed);
    }

    /// Says that the collector has come to this window.
    pub(crate) fn set_collected(&self, window: u32) {
        self.collected.store(window + 1, Ordering::Relaxed);
    }

    /// The readers of lanes made since the last call.
    pub(crate) fn take_new_lanes(&self) -> Vec<LaneReader> {
        std::mem::take(&mut *self.lock_new_lanes())
    }

    fn lock_new_lanes(&self) -> MutexGuard<'_, Vec<LaneReader>> {
        self.new_lanes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What was lost outside of lanes since the last call.
    pub(crate) fn take_losses(&self) -> Losses {
        Losses {
            fields: self.live.take_lost(),
            late: self.late.swap(0, Ordering::Relaxed),
            unreachable: self.unreachable.swap(0, Ordering::Relaxed),
            steps: self.counters.as_ref().map_or(0, Counters::take_lost),
            ..Losses::default()
        }
    }

    /// What is open on a thread that did nothing during a whole window, as records.
    pub(crate) fn open_on(&self, lane: &LaneReader) -> Vec<Record> {
        lane.open_spans(|id| self.resolve(id), &self.live)
    }

    /// The callsite of a span that is alive.
    fn resolve(&self, id: RegistryId) -> Option<Callsite> {
        let Resolver { dispatch, callsite } = self.resolver.get()?;
        callsite(&dispatch.upgrade()?, &tracing::span::Id::from_u64(id))
    }

    /// Runs `f` on this thread's lane if it is at hand, which it is but for the first time on a thread; otherwise, false.
    #[inline]
    fn with_lane_at_hand(&self, f: impl FnOnce(&mut Lane) -> bool) -> bool {
        let done = LANES.try_with(|lanes| match lanes.try_borrow_mut() {
            Ok(mut lanes) => lanes.first_mut().filter(|lane| lane.profiler() == self.id).is_some_and(f),
            Err(_) => false,
        });
        done.unwrap_or(false)
    }

    /// Runs `f` on this thread's lane, which is made if it is not there. Returns false if it cannot be had.
    #[inline]
    fn with_lane(&self, f: impl FnOnce(&mut Lane)) -> bool {
        let reached = LANES.try_with(|lanes| {
            // Borrowed already only if the registry ran a user's destructor under us: not worth a panic.
            let Ok(mut lanes) = lanes.try_borrow_mut() else { return false };
            let place = match lanes.iter().position(|lane| lane.profiler() == self.id) {
                Some(place) => place,
                None if thread::is_muted() => return true,
                None => self.open_lane(&mut lanes),
            };
            f(&mut lanes[place]);
            true
        });
        reached.unwrap_or(false)
    }

    /// As [`with_lane`](Self::with_lane), for what is a loss if the lane cannot be had.
    #[inline]
    fn with_lane_or_count(&self, control: Control, f: impl FnOnce(&mut Lane)) {
        if !self.with_lane(f) && control.is_recording() {
            self.unreachable.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[cold]
    fn open_lane(&self, lanes: &mut Vec<Lane>) -> usize {
        lanes.retain(|lane| !lane.is_abandoned());
        let (lane, reader) = Lane::new(self.id, self.control(), ThreadInfo::of_this_thread(), self.lane_capacity);
        let mut new_lanes = self.lock_new_lanes();
        // While nothing is recorded the collector does not come by, and threads may come and go.
        if new_lanes.len() >= 32 && new_lanes.len().is_power_of_two() {
            new_lanes.retain(|reader| !reader.is_done());
        }
        new_lanes.push(reader);
        drop(new_lanes);
        lanes.push(lane);
        lanes.len() - 1
    }
}
