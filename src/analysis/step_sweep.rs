//! A sweep over the time of a thread's steps, which adds up what GPUs and the thread did.

use super::{call_kind::CallKind, work_kind::WorkKind};
use crate::trace::{DeviceId, SpanId, ThreadId, Timestamp, Trace};
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

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
pub(super) struct Sums<'a> {
    /// The time in which the GPU was busy, by [`WorkKind`].
    pub(super) gpu: [Duration; 3],
    /// The idle time by [`HostPart`].
    pub(super) host: [Duration; 3],
    /// All other idle time, by the name of the innermost span.
    pub(super) by_span: BTreeMap<&'a str, Duration>,
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
    sums: Vec<Vec<Sums<'a>>>,
    /// The number of pieces of work of each kind that run on each GPU.
    working: Vec<[usize; 3]>,
    /// The number of spans or calls of each part that the thread is in.
    doing: [usize; 3],
    /// The open spans of the thread, in the order in which they were entered.
    open: BTreeSet<(Timestamp, SpanId)>,
    /// The steps that have begun and not ended: one, unless steps overlap.
    steps: Vec<usize>,
}

/// The thing that begins or ends. GPUs and steps are named by their index.
#[derive(Clone, Copy)]
enum Subject {
    Work(u32, WorkKind),
    Host(HostPart),
    Span(SpanId),
    Step(u32),
}

impl<'a> StepSweep<'a> {
    /// Collects what begins and ends. `steps` are indices of [`Trace::steps`].
    pub(super) fn new(trace: &'a Trace, thread: ThreadId, devices: &[DeviceId], steps: &[usize]) -> Self {
        let gpus = devices.len().max(1);
        let mut sweep = Self {
            trace,
            begins: Vec::new(),
            ends: Vec::new(),
            sums: vec![vec![Sums::default(); gpus]; steps.len()],
            working: vec![[0; 3]; gpus],
            doing: [0; 3],
            open: BTreeSet::new(),
            steps: Vec::new(),
        };
        for (index, &step) in steps.iter().enumerate() {
            let step = &trace.steps()[step];
            sweep.add(Subject::Step(index as u32), step.start(), step.end());
        }
        for work in trace.work() {
            if let Ok(device) = devices.binary_search(&work.stream().device()) {
                sweep.add(Subject::Work(device as u32, WorkKind::of(work)), work.start(), work.end());
            }
        }
        for span in trace.spans().filter(|span| span.track().thread() == thread) {
            sweep.add(Subject::Span(span.id()), span.start(), span.end());
            if span.input_stage().is_some() {
                sweep.add(Subject::Host(HostPart::Input), span.start(), span.end());
            }
        }
        for (call, kind) in trace.api_calls().zip(CallKind::of_calls(trace)) {
            let part = match kind {
                CallKind::Synchronizing => HostPart::Synchronizing,
                CallKind::Launching => HostPart::Launching,
                CallKind::Other => continue,
            };
            if call.thread() == thread {
                sweep.add(Subject::Host(part), call.start(), call.end());
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
    pub(super) fn run(mut self) -> Vec<Vec<Sums<'a>>> {
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
        let part = self.doing.iter().position(|&count| count > 0);
        let innermost = self.open.last().map(|&(_, id)| self.trace.span(id).name());
        for &step in &self.steps {
            for (sums, working) in self.sums[step].iter_mut().zip(&self.working) {
                let kind = working.iter().position(|&count| count > 0);
                let sum = match (kind, part, innermost) {
                    (Some(kind), ..) => &mut sums.gpu[kind],
                    (None, Some(part), _) => &mut sums.host[part],
                    (None, None, Some(name)) => sums.by_span.entry(name).or_default(),
                    (None, None, None) => &mut sums.other,
                };
                *sum += time;
            }
        }
    }

    fn apply(&mut self, subject: Subject, is_end: bool) {
        let count = |count: &mut usize| *count = if is_end { count.saturating_sub(1) } else { *count + 1 };
        match subject {
            Subject::Work(device, kind) => count(&mut self.working[device as usize][kind as usize]),
            Subject::Host(part) => count(&mut self.doing[part as usize]),
            Subject::Span(id) => {
                let key = (self.trace.span(id).start(), id);
                if is_end {
                    self.open.remove(&key)
                } else {
                    self.open.insert(key)
                };
            }
            Subject::Step(step) if is_end => self.steps.retain(|&open| open != step as usize),
            Subject::Step(step) => self.steps.push(step as usize),
        }
    }
}
