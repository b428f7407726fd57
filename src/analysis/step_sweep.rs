//! A sweep over the time of a thread's steps, which adds up what GPUs did, and what that thread and those that work for
//! it did.

use super::{
    intervals::{Gap, GapCause, Interval, Intervals},
    kinds::{CallKind, WorkKind, is_launch},
    sorted::{SortedMap, SortedSet},
    step_time::StepInterval,
};
use crate::trace::{ApiCall, DeviceId, SpanId, ThreadId, Timestamp, Trace};
use std::time::Duration;

/// A part of the host's time that is known without the innermost span. If several apply, the first one counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HostPart {
    /// In a span of the input pipeline.
    Input,
    /// In a call that waits for the GPU.
    Synchronizing,
    /// In a call that asks for work.
    Launching,
}

/// The time of one step on one GPU.
#[derive(Clone, Debug, Default)]
pub(super) struct StepSums<'a> {
    /// The time in which the GPU was busy, by [`WorkKind`].
    pub(super) gpu: [Duration; 3],
    /// The idle time in which the GPU had been asked for its next work.
    pub(super) queued: Duration,
    /// The idle time by [`HostPart`].
    pub(super) host: [Duration; 3],
    /// All other idle time in a span, by the name of the innermost span.
    pub(super) by_span: SortedMap<&'a str, Duration>,
    /// The idle time in which no span was open.
    pub(super) other: Duration,
}

/// A sweep over the steps of one thread, and over all GPUs at once.
pub(super) struct StepSweep<'a> {
    trace: &'a Trace,
    /// A beginning or an end. A window may have a million of each, so they are small.
    begins: Vec<(Timestamp, Subject)>,
    ends: Vec<(Timestamp, Subject)>,
    /// The sums of each step and GPU. There is one GPU that does nothing if there is none.
    sums: Vec<Vec<StepSums<'a>>>,
    /// The number of pieces of work of each kind that run on each GPU.
    working: Vec<[usize; 3]>,
    /// Whether each GPU is in a gap before work that it has been asked for, if it is above zero.
    queued: Vec<usize>,
    /// The thread of the steps first, then those that work for it.
    lanes: Vec<SweepLane>,
    /// The steps that have begun and not ended: one, unless steps overlap.
    steps: Vec<usize>,
}

/// What one thread does at a moment.
#[derive(Default)]
struct SweepLane {
    /// The number of spans or calls of each part that the thread is in.
    doing: [usize; 3],
    /// The open spans of the thread, in the order in which they were entered.
    open: SortedSet<(Timestamp, SpanId)>,
    /// Whether the thread of the steps waits for this one, if it is above zero.
    awaited: usize,
}

impl SweepLane {
    fn is(&self, part: HostPart) -> bool {
        self.doing[part as usize] > 0
    }
}

/// The thing that begins or ends. GPUs, steps and lanes are named by their index.
#[derive(Clone, Copy)]
enum Subject {
    Work(u32, WorkKind),
    Queued(u32),
    Host(u16, HostPart),
    Span(u16, SpanId),
    Wait(u16),
    Step(u32),
}

impl<'a> StepSweep<'a> {
    /// Collects what begins and ends. `steps` are those of the thread.
    pub(super) fn new(trace: &'a Trace, thread: ThreadId, devices: &[DeviceId], steps: &[StepInterval]) -> Self {
        let gpus = devices.len().max(1);
        let kinds = CallKind::of_calls(trace);
        let lanes = lanes(trace, thread);
        let mut sweep = Self {
            trace,
            begins: Vec::new(),
            ends: Vec::new(),
            sums: vec![vec![StepSums::default(); gpus]; steps.len()],
            working: vec![[0; 3]; gpus],
            queued: vec![0; gpus],
            lanes: lanes.iter().map(|_| SweepLane::default()).collect(),
            steps: Vec::new(),
        };
        for (index, step) in steps.iter().enumerate() {
            sweep.add(Subject::Step(index as u32), step.start, step.end);
        }
        let mut busy: Vec<Vec<Interval>> = devices.iter().map(|_| Vec::new()).collect();
        for work in trace.work() {
            if let Ok(device) = devices.binary_search(&work.stream().device()) {
                sweep.add(Subject::Work(device as u32, WorkKind::of(work)), work.start(), work.end());
                busy[device].push(Interval::of(work));
            }
        }
        let from = steps.iter().map(|step| step.start).min().unwrap_or_default();
        let to = steps.iter().map(|step| step.end).max().unwrap_or_default();
        for (device, busy) in busy.into_iter().enumerate() {
            let is_queued = |gap: &Gap| gap.cause == GapCause::Queued;
            for gap in Intervals::new(busy).gaps(from, to).filter(is_queued) {
                sweep.add(Subject::Queued(device as u32), gap.start, gap.start + gap.duration);
            }
        }
        for span in trace.spans() {
            let Some(&lane) = lanes.get(&span.track().thread()) else { continue };
            sweep.add(Subject::Span(lane, span.id()), span.start(), span.end());
            if span.input_stage().is_some() {
                sweep.add(Subject::Host(lane, HostPart::Input), span.start(), span.end());
            }
        }
        for (call, kind) in trace.api_calls().zip(&kinds) {
            let part = match kind {
                CallKind::Synchronizing => HostPart::Synchronizing,
                CallKind::Launching => HostPart::Launching,
                CallKind::Other => continue,
            };
            if let Some(&lane) = lanes.get(&call.thread()) {
                sweep.add(Subject::Host(lane, part), call.start(), call.end());
            }
        }
        if lanes.len() > 1 {
            let gaps = Gaps::of(trace, thread);
            let launches = trace.api_calls().zip(&kinds).filter(|(_, kind)| **kind == CallKind::Launching);
            let in_gap = |(call, _): (ApiCall<'_>, _)| {
                let lane = *lanes.get(&call.thread()).filter(|lane| **lane != STEPS)?;
                Some((lane, gaps.around(call.start(), call.end())?))
            };
            let mut waits: Vec<_> = launches.filter_map(in_gap).collect();
            waits.sort_unstable();
            waits.dedup();
            for (lane, (start, end)) in waits {
                sweep.add(Subject::Wait(lane), start, end);
            }
        }
        sweep
    }

    /// Adds what takes time. What takes none would end before it begins if its end were sorted first.
    fn add(&mut self, subject: Subject, start: Timestamp, end: Timestamp) {
        if start < end {
            self.begins.push((start, subject));
            self.ends.push((end, subject));
        }
    }

    /// Returns the sums of each step, by GPU.
    pub(super) fn run(mut self) -> Vec<Vec<StepSums<'a>>> {
        let [mut begins, mut ends] = [std::mem::take(&mut self.begins), std::mem::take(&mut self.ends)];
        begins.sort_unstable_by_key(|&(at, _)| at);
        ends.sort_unstable_by_key(|&(at, _)| at);
        let (mut begins, mut since) = (begins.into_iter().peekable(), Timestamp::default());
        // Everything has begun when the last one ends.
        for (end, ended) in ends {
            // Ends first, as one step ends when the next begins.
            while let Some((start, begun)) = begins.next_if(|(start, _)| *start < end) {
                self.count(start.since(since));
                since = start;
                self.apply(begun, false);
            }
            self.count(end.since(since));
            since = end;
            self.apply(ended, true);
        }
        self.sums
    }

    /// Counts time in which nothing changes.
    fn count(&mut self, time: Duration) {
        if time.is_zero() || self.steps.is_empty() {
            return;
        }
        let (part, innermost) = self.host();
        let innermost = innermost.map(|id| self.trace.span(id).name());
        for &step in &self.steps {
            for (gpu, sums) in self.sums[step].iter_mut().enumerate() {
                let kind = self.working[gpu].iter().position(|&count| count > 0);
                let sum = match (kind, part, innermost) {
                    (Some(kind), ..) => &mut sums.gpu[kind],
                    _ if self.queued[gpu] > 0 => &mut sums.queued,
                    (None, Some(part), _) => &mut sums.host[part as usize],
                    (None, None, Some(name)) => sums.by_span.or_default(name),
                    (None, None, None) => &mut sums.other,
                };
                *sum += time;
            }
        }
    }

    /// Returns what the host does at this moment, and the innermost span of the thread that does it.
    fn host(&self) -> (Option<HostPart>, Option<SpanId>) {
        let (steps, others) = self.lanes.split_at(1);
        let [steps] = steps else { return (None, None) };
        // A thread that loads data in advance does not work for this step.
        let others = || others.iter().filter(|lane| !lane.is(HostPart::Input));
        let awaited = || others().filter(|lane| lane.awaited > 0);
        let part = if steps.is(HostPart::Input) {
            Some(HostPart::Input)
        } else if steps.is(HostPart::Synchronizing) || awaited().any(|lane| lane.is(HostPart::Synchronizing)) {
            Some(HostPart::Synchronizing)
        } else if steps.is(HostPart::Launching) || others().any(|lane| lane.is(HostPart::Launching)) {
            Some(HostPart::Launching)
        } else {
            None
        };
        let working = awaited().find(|lane| !lane.open.is_empty()).unwrap_or(steps);
        (part, working.open.last().map(|&(_, id)| id))
    }

    fn apply(&mut self, subject: Subject, is_end: bool) {
        let count = |count: &mut usize| *count = if is_end { count.saturating_sub(1) } else { *count + 1 };
        match subject {
            Subject::Work(device, kind) => count(&mut self.working[device as usize][kind as usize]),
            Subject::Queued(device) => count(&mut self.queued[device as usize]),
            Subject::Host(lane, part) => count(&mut self.lanes[usize::from(lane)].doing[part as usize]),
            Subject::Wait(lane) => count(&mut self.lanes[usize::from(lane)].awaited),
            Subject::Span(lane, id) => {
                let key = (self.trace.span(id).start(), id);
                let open = &mut self.lanes[usize::from(lane)].open;
                if is_end {
                    open.remove(&key)
                } else {
                    open.insert(key)
                };
            }
            Subject::Step(step) if is_end => self.steps.retain(|&open| open != step as usize),
            Subject::Step(step) => self.steps.push(step as usize),
        }
    }
}

/// The lane of the steps' thread.
const STEPS: u16 = 0;

/// Returns the lane of the steps' thread, and of each thread that works for it: one that launches kernels or graphs and
/// has no steps of its own, such as PyTorch's autograd thread or Burn's device thread. One that only copies uploads
/// batches in advance, so that later steps need not wait.
fn lanes(trace: &Trace, steps: ThreadId) -> SortedMap<ThreadId, u16> {
    let launches = trace.api_calls().filter(|&call| is_launch(call));
    let mut others: SortedSet<ThreadId> = launches.map(ApiCall::thread).collect();
    for step in trace.steps() {
        others.remove(&trace.track(step.track_id()).thread());
    }
    let mut lanes = SortedMap::default();
    for (thread, lane) in [steps].into_iter().chain(others).zip(STEPS..) {
        *lanes.or_default(thread) = lane;
    }
    lanes
}

/// The times between the edges of the steps' thread: where it enters or leaves a span or a call.
///
/// A trace does not say which thread waits for another. But if another one has launched work and this one has neither
/// entered nor left anything meanwhile, as in PyTorch's `loss.backward()`, it has most likely waited for that.
struct Gaps {
    /// Where each gap begins, and whether it is inside a call. The last one begins at the last edge and has no end.
    starts: Vec<(Timestamp, bool)>,
}

impl Gaps {
    fn of(trace: &Trace, thread: ThreadId) -> Self {
        let spans = trace.spans().filter(|span| span.track().thread() == thread);
        let calls = trace.api_calls().filter(|call| call.thread() == thread);
        let mut edges: Vec<(Timestamp, i32)> = spans.flat_map(|span| [(span.start(), 0), (span.end(), 0)]).collect();
        let steps = trace.steps().iter().filter(|step| trace.track(step.track_id()).thread() == thread);
        edges.extend(steps.flat_map(|step| [(step.start(), 0), (step.end(), 0)]));
        edges.extend(calls.flat_map(|call| [(call.start(), 1), (call.end(), -1)]));
        edges.sort_unstable();
        let mut depth = 0;
        let mut starts = Vec::with_capacity(edges.len());
        for (at, change) in edges {
            depth += change;
            starts.push((at, depth > 0));
        }
        // Of several edges at one time, the last one says what follows.
        starts.dedup_by(|next, kept| {
            let is_same = next.0 == kept.0;
            kept.1 = if is_same { next.1 } else { kept.1 };
            is_same
        });
        Self { starts }
    }

    /// Returns the gap that all this time is in, unless the thread is in a call then.
    fn around(&self, start: Timestamp, end: Timestamp) -> Option<(Timestamp, Timestamp)> {
        let next = self.starts.partition_point(|(at, _)| *at <= start);
        let (from, is_in_call) = *self.starts.get(next.checked_sub(1)?)?;
        let (to, _) = *self.starts.get(next)?;
        (!is_in_call && end <= to).then_some((from, to))
    }
}
