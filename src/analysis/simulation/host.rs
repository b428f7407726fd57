//! The host in a simulation: items, which are stretches of a thread's time, and how threads are cut into them.

use super::{Times, nanos};
use crate::{
    analysis::{
        kinds::is_synchronization,
        sorted::{SortedMap, SortedSet},
    },
    trace::{ApiCall, ApiCallId, Span, SpanId, StepId, ThreadId, Timestamp, Trace},
};

/// A stretch of a thread's time: a call of the GPU's API, or time between calls in one innermost span.
#[derive(Clone, Debug)]
pub(in crate::analysis) struct Item {
    pub(in crate::analysis) thread: ThreadId,
    pub(in crate::analysis) start: Timestamp,
    pub(in crate::analysis) end: Timestamp,
    /// The call, if it is one. Calls inside it are not items of their own.
    pub(in crate::analysis) call: Option<ApiCallId>,
    /// The innermost span on the thread; the one that a call belongs to if it was made for another thread.
    pub(in crate::analysis) span: Option<SpanId>,
    /// The step in which it lies.
    pub(in crate::analysis) step: Option<StepId>,
    /// How many spans begin at its end or have ended at its start, which takes time if they are recorded.
    pub(super) edges: u8,
    /// The end of a task or call that it waited for.
    pub(super) wait: Option<WaitFor>,
    /// Whether it waited for work from before the window.
    pub(super) waited_before: bool,
}

impl Item {
    /// The time that a call needs if it has nothing to wait for.
    pub(super) const CALL: u64 = 2_000;

    pub(in crate::analysis) fn nanos(&self) -> u64 {
        nanos(self.start, self.end)
    }

    /// Whether it waited for something, so that its time is not its own.
    pub(in crate::analysis) fn waited(&self) -> bool {
        self.wait.is_some()
    }

    /// The nanoseconds that it takes without waiting.
    pub(in crate::analysis) fn own_nanos(&self) -> u64 {
        if self.waited() { self.nanos().min(Self::CALL) } else { self.nanos() }
    }
}

/// The end of something that an item waited for.
#[derive(Clone, Copy, Debug)]
pub(super) struct WaitFor {
    pub(super) on: WaitsOn,
    /// The nanoseconds from that until the item ended.
    pub(super) tail: i64,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum WaitsOn {
    /// A task begins.
    TaskStart(usize),
    /// A task ends.
    TaskEnd(usize),
    /// An item of another thread ends.
    Item(usize),
}

impl WaitFor {
    /// The nanoseconds by which recording makes the end of a wait for the GPU later, at the most by half. Measured with
    /// CUPTI 13.0 on an H200: see `benches/README.md`.
    const OVERHEAD: i64 = 7_000;

    /// Returns when that ends which is waited for, at these times of items and tasks.
    pub(super) fn end(self, items: &[Times], tasks: &[Times]) -> i64 {
        match self.on {
            WaitsOn::TaskStart(task) => tasks[task].start,
            WaitsOn::TaskEnd(task) => tasks[task].end,
            WaitsOn::Item(item) => items[item].end,
        }
    }

    /// The tail without the cost of recording.
    pub(super) fn own_tail(self) -> i64 {
        match self.on {
            WaitsOn::TaskEnd(_) => (self.tail / 2).max(self.tail - Self::OVERHEAD),
            WaitsOn::TaskStart(_) | WaitsOn::Item(_) => self.tail,
        }
    }
}

/// The items of all threads that call the GPU's API, and of the steps' thread, thread by thread in order of time.
#[derive(Debug, Default)]
pub(super) struct Host {
    pub(super) items: Vec<Item>,
    /// The item of each call of the trace.
    pub(super) item_of_call: Vec<Option<usize>>,
}

/// A moment at which something on a thread changes. In this order at the same moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Edge {
    SpanEnd(SpanId),
    Step(Option<StepId>),
    SpanStart(SpanId),
    /// Another thread begins or ends a wait for the GPU on behalf of this one.
    Wait,
    Call(ApiCallId),
}

impl Host {
    /// Returns the items up to a moment.
    pub(super) fn of(trace: &Trace, until: Timestamp) -> Self {
        let mut threads: SortedMap<ThreadId, Vec<(Timestamp, Edge)>> = SortedMap::default();
        for call in trace.api_calls().filter(|call| call.start() < until) {
            threads.or_default(call.thread()).push((call.start(), Edge::Call(call.id())));
        }
        for step in trace.steps() {
            threads.or_default(trace.track(step.track_id()).thread());
        }
        // A span that takes no time would end before it begins, as ends are sorted first, and stay open.
        for span in trace.spans().filter(|span| span.start() < until && span.start() < span.end()) {
            if let Some(edges) = threads.get_mut(&span.track().thread()) {
                edges.extend([(span.start(), Edge::SpanStart(span.id())), (span.end(), Edge::SpanEnd(span.id()))]);
            }
        }
        for (thread, at) in waits_for_others(trace) {
            if let Some(edges) = threads.get_mut(&thread) {
                edges.push((at, Edge::Wait));
            }
        }
        let mut host = Self { item_of_call: vec![None; trace.api_calls().len()], ..Self::default() };
        for (thread, mut edges) in threads {
            // There may be many more steps than are looked at.
            let steps = trace.step_ids().zip(trace.steps());
            for (id, step) in steps.take_while(|(_, step)| step.start() <= until) {
                edges.extend([(step.start(), Edge::Step(Some(id))), (step.end(), Edge::Step(None))]);
            }
            edges.retain(|(at, _)| *at <= until);
            edges.sort_unstable();
            host.add_thread(trace, thread, &edges);
        }
        host
    }

    fn add_thread(&mut self, trace: &Trace, thread: ThreadId, edges: &[(Timestamp, Edge)]) {
        let mut open: Vec<SpanId> = Vec::new();
        let (mut now, mut step) = (trace.start(), None);
        let push = |this: &mut Self, start, end, call, span, step, edges| {
            this.items.push(Item { thread, start, end, call, span, step, edges, wait: None, waited_before: false });
        };
        // Spans that have ended at the end of the last item, or begin at that of the next.
        let mut edges_between = 0_u8;
        for &(at, edge) in edges {
            if at > now {
                let begins = u8::from(matches!(edge, Edge::SpanStart(_)));
                push(self, now, at, None, open.last().copied(), step, edges_between + begins);
                (now, edges_between) = (at, 0);
            }
            match edge {
                Edge::SpanStart(span) => open.push(span),
                Edge::SpanEnd(span) => {
                    edges_between = edges_between.saturating_add(1).min(8);
                    if let Some(place) = open.iter().rposition(|other| *other == span) {
                        open.remove(place);
                    }
                }
                Edge::Step(next) => step = next,
                Edge::Wait => {}
                Edge::Call(id) => {
                    let call = trace.api_call(id);
                    // A call that began inside another, as the driver's inside the runtime's, is part of that.
                    if at >= now {
                        let span = call.span().map(Span::id).or(open.last().copied());
                        push(self, at, call.end().max(at), Some(id), span, step, 0);
                        now = call.end().max(at);
                    }
                    self.item_of_call[id.index()] = self.items.len().checked_sub(1);
                }
            }
        }
        if trace.end() > now {
            push(self, now, trace.end(), None, open.last().copied(), step, edges_between);
        }
    }
}

/// Returns the starts and ends of waits for the GPU that one thread makes for another, with that other thread.
///
/// In Burn, `Device::sync` has a thread of CubeCL wait, which does nothing else, while the caller waits for its answer.
/// A thread that launches work does not count: others put work into its queue, and go on.
///
/// The caller asks a nanosecond before the wait begins and goes on a nanosecond after it ends, because the simulation
/// needs an order in which each item comes after the one it depends on.
fn waits_for_others(trace: &Trace) -> Vec<(ThreadId, Timestamp)> {
    let working: SortedSet<ThreadId> = trace.work().filter_map(|work| Some(work.call()?.thread())).collect();
    // Before a window closes, the profiler itself has the device synchronized.
    let last = trace.api_calls().max_by_key(|call| call.end()).map(ApiCall::id);
    let is_wait = |call: ApiCall<'_>| is_synchronization(call) && !working.contains(&call.thread());
    let waits = trace.api_calls().filter(|&call| is_wait(call) && Some(call.id()) != last);
    let with_owner = waits.filter_map(|call| Some((call.span()?.track().thread(), call)));
    let for_others = with_owner.filter(|(owner, call)| *owner != call.thread());
    let before = |at: Timestamp| Timestamp::from_unix_nanos(at.as_unix_nanos().saturating_sub(1));
    let after = |at: Timestamp| Timestamp::from_unix_nanos(at.as_unix_nanos().saturating_add(1));
    for_others.flat_map(|(owner, call)| [(owner, before(call.start())), (owner, after(call.end()))]).collect()
}
