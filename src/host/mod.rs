//! The host side of capture: spans, events and calls of the program's threads, as records.
//!
//! [`ProfilerLayer`] is called by `tracing` and writes into the calling thread's [`lane`] without a lock; the collector
//! reads the lanes. [`live`] keeps the fields of spans as long as they live. CUPTI's callbacks and frameworks write
//! into the same lanes, so the order of a thread's records shows which span a kernel launch belongs to.

mod call_attributor;
mod callsite_cache;
mod control;
mod counters;
mod fields;
mod hand_over;
mod lane;
mod lanes;
mod layer;
mod live;
mod memory_pools;
mod none_layer;
#[cfg(all(feature = "nvtx", unix))]
mod nvtx;
mod otel_contexts;
mod reached_spans;
#[cfg(feature = "serving")]
mod requests;
mod span_lookup;
mod stack;
#[cfg(test)]
mod tests;
mod until_finished;
mod watcher;

pub use self::{
    call_attributor::DeviceWork,
    hand_over::{HandOver, ThreadSpans},
    layer::ProfilerLayer,
    memory_pools::{FollowedPool, PoolUse},
    watcher::{Watch, Watcher},
};
pub(crate) use self::{control::Control, counters::Counters, lane::LaneReader, layer::StepOn, stack::OpenSpans};

use self::{
    call_attributor::CallAttributor,
    lane::{Lane, Resolve, Sources},
    lanes::Lanes,
    live::Live,
    memory_pools::MemoryPools,
    otel_contexts::OtelContexts,
    span_lookup::SpanLookup,
    stack::SharedStack,
    watcher::Watchers,
};
#[cfg(feature = "serving")]
use crate::serving::RequestRecorder;
use crate::{
    analysis::{MemoryFrame, MemoryPool},
    clock::{Clock, Ticks},
    hint::DisabledSpans,
    recording::{Callsite, DeviceCall, MemoryCall, Origin, Record, RegistryId},
    trace::{Losses, convention},
};
use std::{
    borrow::Cow,
    sync::{
        Arc, MutexGuard,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
    },
};

/// The state of one profiler that the layer, the session and the collector share.
#[derive(Debug)]
pub(crate) struct Host {
    lanes: Lanes,
    clock: Clock,
    live: Live,
    lookup: SpanLookup,
    contexts: OtelContexts,
    watchers: Watchers,
    /// The memory pools of frameworks.
    pools: MemoryPools,
    /// The counters of the current step, if an exporter takes every step.
    counters: Option<Counters>,
    /// The number of windows that the collector has passed on.
    collected: AtomicU32,
    /// Records that came after their window had closed.
    late: AtomicU64,
    /// Whether the layer is in a subscriber.
    installed: AtomicBool,
    /// The number of the current step.
    steps: AtomicU64,
    /// The ranges of spans for another tool, if they are wanted.
    #[cfg(all(feature = "nvtx", unix))]
    nvtx: Option<nvtx::NvtxRanges>,
    /// The requests that spans are, if they are counted.
    #[cfg(feature = "serving")]
    requests: Option<Arc<RequestRecorder>>,
}

impl Host {
    pub(crate) fn new(clock: Clock, lane_capacity: usize, live_spans: usize, counters: bool) -> Self {
        Self {
            lanes: Lanes::new(lane_capacity),
            clock,
            live: Live::new(live_spans),
            lookup: SpanLookup::default(),
            contexts: OtelContexts::default(),
            watchers: Watchers::default(),
            pools: MemoryPools::default(),
            counters: counters.then(Counters::new),
            collected: AtomicU32::new(0),
            late: AtomicU64::new(0),
            installed: AtomicBool::new(false),
            steps: AtomicU64::new(0),
            #[cfg(all(feature = "nvtx", unix))]
            nvtx: None,
            #[cfg(feature = "serving")]
            requests: None,
        }
    }

    /// Has threads write what they allocate on the heap.
    pub(crate) fn count_heap(&mut self) {
        self.lanes.mark(Control::HEAP);
    }

    /// Has threads write their CPU time at the enters and exits of spans.
    pub(crate) fn time_cpu(&mut self) {
        self.lanes.mark(Control::CPU_TIME);
    }

    pub(crate) fn clock(&self) -> &Clock {
        &self.clock
    }

    /// The counters of the current step, if an exporter takes every step.
    pub(crate) fn counters(&self) -> Option<&Counters> {
        self.counters.as_ref()
    }

    /// The number of the current step.
    pub(crate) fn steps(&self) -> u64 {
        self.steps.load(Ordering::Relaxed)
    }

    #[inline]
    pub(crate) fn set_steps(&self, steps: u64) {
        self.steps.store(steps, Ordering::Relaxed);
    }

    /// Reads the memory pools of frameworks.
    pub(crate) fn read_pools(&self) -> Vec<(MemoryPool, PoolUse)> {
        self.pools.read()
    }

    /// Whether a window is open.
    pub(crate) fn is_recording(&self) -> bool {
        self.control().is_recording()
    }

    #[inline]
    fn control(&self) -> Control {
        self.lanes.control()
    }

    pub(crate) fn set_control(&self, control: Control) {
        self.lanes.set_control(control);
    }

    // For the end of the run.

    /// Whether the layer is in a subscriber.
    pub(crate) fn is_installed(&self) -> bool {
        self.installed.load(Ordering::Relaxed)
    }

    /// Whether the layer's subscriber has not been dropped.
    pub(crate) fn is_in_use(&self) -> bool {
        self.lookup.dispatch().is_some()
    }

    /// The spans that the program has reached but filters disable, if there are any and the subscriber is in use.
    pub(crate) fn disabled_spans(&self) -> Option<DisabledSpans> {
        reached_spans::disabled(self.lanes.profiler(), &self.lookup.dispatch()?)
    }

    /// Turns off the layer for good, along with levels and spans that no other layer wants.
    pub(crate) fn turn_off(&self) {
        self.set_control(Control::OFF);
        if self.is_installed() {
            reached_spans::rebuild_interest();
        }
    }

    // For the collector.

    /// Marks this window as passed on by the collector.
    pub(crate) fn set_collected(&self, window: u32) {
        self.collected.store(window + 1, Ordering::Relaxed);
    }

    /// The readers of lanes made since the last call.
    pub(crate) fn take_new_lanes(&self) -> Vec<LaneReader> {
        self.lanes.take_new()
    }

    /// Keeps the ring of a thread that has ended, for reuse by a new one.
    pub(crate) fn reuse(&self, lane: LaneReader) {
        self.lanes.reuse(lane);
    }

    /// Losses outside lanes since the last call.
    pub(crate) fn take_losses(&self) -> Losses {
        Losses {
            fields: self.live.take_lost(),
            late: self.late.swap(0, Ordering::Relaxed),
            unreachable: self.lanes.take_unreachable(),
            steps: self.counters.as_ref().map_or(0, Counters::take_lost),
            counters: self.counters.as_ref().map_or(0, Counters::take_no_numbers),
            ..Losses::default()
        }
    }

    /// The spans open on a thread that did nothing during a whole window, as records.
    pub(crate) fn open_on(&self, lane: &LaneReader) -> Vec<Record> {
        lane.open_spans(|id| self.lookup.find(id), &self.live)
    }

    // For threads, outside `tracing`: device API calls and framework operations.

    /// The sources that a lane needs to write about spans.
    fn sources(&self) -> Sources<'_, impl Resolve + '_> {
        self.sources_with(|id| self.lookup.find(id))
    }

    #[inline]
    fn sources_with<F: Resolve>(&self, find: F) -> Sources<'_, F> {
        let Self { clock, live, collected, lanes, .. } = self;
        Sources { clock, live, collected, control: lanes.control_word(), find }
    }

    /// Begins a call on this thread. Returns the moment if the call is to be recorded. Then the thread has joined the
    /// window, and the call belongs to it even if it returns after the window has closed.
    #[inline]
    pub(crate) fn enter_call(&self) -> Option<Ticks> {
        let mut control = self.control();
        while control.is_recording() {
            let mut joined = false;
            self.lanes.with_or_count(control, |lane| joined = lane.enter_call(control, &self.sources()));
            let now = self.clock.now();
            let before = std::mem::replace(&mut control, self.control());
            // If the next window has opened meanwhile, the call belongs there. If this one has closed, `now` says
            // whether that was before the call.
            if control == before || !control.is_recording() {
                return joined.then_some(now);
            }
            if joined {
                self.leave_call();
            }
        }
        None
    }

    /// Writes a call that has returned, for which [`enter_call`](Self::enter_call) returned a moment.
    #[inline]
    pub(crate) fn exit_call(&self, work: DeviceWork, call: DeviceCall) {
        self.write_call(work, Record::Call(call));
    }

    /// Writes a change in memory by a call, as [`exit_call`](Self::exit_call) writes the call.
    #[inline]
    pub(crate) fn write_memory(&self, call: MemoryCall) {
        self.write_call(DeviceWork::Memory, Record::Memory(call));
    }

    /// Ends a call for which [`enter_call`](Self::enter_call) returned a moment, after all its records have been
    /// written.
    #[inline]
    pub(crate) fn leave_call(&self) {
        self.lanes.with(Lane::leave_call);
    }

    /// Writes a call that has returned, and that was made before the open window. Returns false if none is open.
    #[inline]
    pub(crate) fn exit_earlier_call(&self, correlation: u32) -> bool {
        let is_open = self.enter_call().is_some();
        if is_open {
            self.write_call(DeviceWork::Other, Record::Call(DeviceCall::before_window(correlation)));
            self.leave_call();
        }
        is_open
    }

    #[inline]
    fn write_call(&self, work: DeviceWork, record: Record) {
        self.lanes.with_or_count_always(|lane| lane.write_call(work, record));
    }

    /// Returns the spans that are open on this thread, whether or not a window is open; `None` if there are none, or
    /// they cannot be reached.
    pub(crate) fn open_spans(&self) -> Option<OpenSpans> {
        let mut open = None;
        self.lanes.with(|lane| open = Some(lane.open_spans()));
        open.filter(|open| !open.ids().is_empty())
    }

    /// Returns the spans that are open on each thread, for threads that have any.
    fn open_spans_of_threads(&self) -> Vec<ThreadSpans> {
        let open = |(name, stack): (String, Arc<SharedStack>)| {
            let ids = stack.ids();
            let spans: Vec<_> = ids.iter().filter_map(|&id| self.describe(id)).collect();
            // Spans that both readings show were alive in between, and their ids were not reused.
            (!spans.is_empty() && ids == stack.ids()).then(|| ThreadSpans::new(&name, spans))
        };
        self.lanes.stacks().into_iter().filter_map(open).collect()
    }

    /// Returns the spans that are open on each thread, outermost first, for threads that have any. If a thread enters
    /// or exits spans meanwhile, these are the ones that stay open.
    #[cfg(all(feature = "control", unix))]
    pub(crate) fn sample_open_spans(&self) -> Vec<Vec<MemoryFrame>> {
        let open = |(_, stack): (String, Arc<SharedStack>)| {
            let ids = stack.ids();
            let mut spans: Vec<_> = ids.iter().map_while(|&id| self.describe(id)).collect();
            // As above: spans that both readings show were alive in between.
            spans.truncate(ids.iter().zip(stack.ids()).take_while(|(before, after)| *before == after).count());
            (!spans.is_empty()).then_some(spans)
        };
        self.lanes.stacks().into_iter().filter_map(open).collect()
    }

    /// Describes a live span.
    pub(crate) fn describe(&self, id: RegistryId) -> Option<MemoryFrame> {
        let callsite = self.lookup.find(id)?.callsite;
        Some(MemoryFrame { name: self.name_of(id, callsite), file: callsite.file(), line: callsite.line() })
    }

    /// Returns the name of a live span: that in the source, or the one that a field gives it.
    fn name_of(&self, id: RegistryId, callsite: Callsite) -> Cow<'static, str> {
        let named = callsite.fields().field(convention::NAME).and_then(|field| {
            self.live.with(id, |entry| {
                let field = entry.fields.iter().find(|kept| kept.index as usize == field.index())?;
                field.value.as_str().map(|name| Cow::Owned(name.to_owned()))
            })
        });
        named.flatten().unwrap_or(Cow::Borrowed(callsite.name()))
    }

    /// Sets the origin of this thread's calls from now on; `None` for the thread's own spans.
    #[inline]
    fn adopt(&self, origin: Option<Origin>) {
        let control = self.control();
        if !control.is_off() {
            self.lanes.with_or_count(control, |lane| lane.adopt(control, origin, &self.sources()));
        }
    }

    /// Sets the callback that decides the origin of each of this thread's calls from now on.
    fn attribute_calls(&self, attributor: Option<CallAttributor>) {
        let control = self.control();
        if !control.is_off() {
            self.lanes.with_or_count(control, |lane| lane.attribute_calls(attributor));
        }
    }

    /// Writes what a framework reports on this thread: an operation, or memory of its tensors.
    #[inline]
    fn write_reported(&self, record: impl FnOnce(Ticks) -> Record) {
        let control = self.control();
        if control.is_recording() {
            self.lanes.with_or_count(control, |lane| lane.write_reported(control, record, &self.sources()));
        }
    }

    // For the session, when a window opens or closes.

    /// Looks up the OpenTelemetry contexts of the spans open on this thread, now that the program has opened a window.
    pub(crate) fn look_up_contexts(&self) {
        let control = self.control();
        if control.is_recording() {
            self.contexts.look_up_open(control, &self.lanes, &self.lookup);
        }
    }

    /// Returns a guard to be held from before a window opens or closes until the watchers have been called for it.
    pub(crate) fn edge(&self) -> MutexGuard<'_, ()> {
        self.watchers.edge()
    }

    /// Asks frameworks to launch the work that this thread has requested, and writes what it has allocated, before a
    /// window opens or closes.
    pub(crate) fn settle(&self) {
        let control = self.control();
        if control.is_recording() && control.counts_heap() {
            self.lanes.with(|lane| lane.note_heap(control, &self.sources()));
        }
        self.watchers.settle();
    }

    pub(crate) fn notify_opened(&self) {
        self.watchers.notify_opened(&self.clock);
    }

    pub(crate) fn notify_closed(&self) {
        self.watchers.notify_closed();
    }
}
