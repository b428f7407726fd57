//! The time in which the steps' thread did not run, by the CPU time of spans and by sampled waits.
//!
//! Names may mislead, and most say nothing of it. A thread that is off its CPU is a fact where it was recorded. With
//! sampled stacks, so is the function that it waited in.

use super::{
    super::{
        frame_origin::{FrameOrigin, place},
        intervals::{Interval, Intervals},
        sorted::SortedMap,
    },
    waits_for::WaitsFor,
};
use crate::{
    cpu_time::ProcessUsage,
    trace::{CallsiteId, Span, SpanId, StackSample, StepId, ThreadId, Timestamp, Trace},
    units,
};
use rustc_hash::FxHashMap;
use std::time::Duration;

/// What was recorded of the time in which threads did not run.
pub(super) struct OffCpu<'a> {
    trace: &'a Trace,
    /// The time of sampled waits in each span itself.
    waits: FxHashMap<SpanId, Duration>,
    /// The same of times in which the thread was ready to run, but had no CPU.
    preempted: FxHashMap<SpanId, Duration>,
    /// Whether waits were sampled. Samples on the CPU need fewer permissions.
    has_waits: bool,
    /// The function in which spans of a callsite waited for the longest.
    stacks: FxHashMap<CallsiteId, WaitStack>,
    /// When threads other than the steps' ran, or were ready to, if stacks were sampled.
    others: Option<Intervals>,
    /// The CPU time of threads other than the steps' in each step, if spans have CPU time.
    cpu_of_others: SortedMap<StepId, Duration>,
}

/// The function in which spans of a callsite waited for the longest.
#[derive(Clone, Debug)]
pub(super) struct WaitStack {
    /// What waiting in this function means.
    pub(super) kind: WaitsFor,
    /// The function, its caller and where that is.
    pub(super) text: String,
    /// Its part of all sampled waits of these spans.
    pub(super) share: f64,
}

impl<'a> OffCpu<'a> {
    pub(super) fn of(trace: &'a Trace, thread: ThreadId) -> Self {
        let mut this = Self {
            trace,
            waits: FxHashMap::default(),
            preempted: FxHashMap::default(),
            has_waits: false,
            stacks: FxHashMap::default(),
            others: None,
            cpu_of_others: SortedMap::default(),
        };
        if trace.has_cpu_times() {
            this.cpu_of_others = cpu_of_others(trace, thread);
        }
        let Some(sampling) = trace.stack_sampling() else { return this };
        let origins = FrameOrigin::of_all(&sampling.frames);
        let mut stacks: FxHashMap<CallsiteId, FxHashMap<String, (WaitsFor, Duration)>> = FxHashMap::default();
        let mut others = Vec::new();
        for sample in trace.stack_samples() {
            let is_own = sample.track().thread() == thread;
            if !is_own && (!sample.is_waiting() || sample.is_preempted()) {
                others.push(working(sample));
            }
            let Some(span) = sample.span().filter(|_| is_own && sample.is_waiting()) else { continue };
            if sample.is_preempted() {
                *this.preempted.entry(span.id()).or_default() += sample.duration();
                continue;
            }
            *this.waits.entry(span.id()).or_default() += sample.duration();
            if let Some((kind, text)) = waiting_in(sample, &origins) {
                let of_callsite = stacks.entry(span.callsite_id()).or_default();
                of_callsite.entry(text).or_insert((kind, Duration::ZERO)).1 += sample.duration();
            }
        }
        this.has_waits = trace.stack_samples().any(|sample| sample.is_waiting() && !sample.is_preempted());
        this.others = Some(Intervals::new(others));
        for (callsite, of_callsite) in stacks {
            let all: Duration = of_callsite.values().map(|(_, time)| *time).sum();
            let longest =
                of_callsite.into_iter().max_by(|one, other| one.1.1.cmp(&other.1.1).then(other.0.cmp(&one.0)));
            if let Some((text, (kind, time))) = longest {
                let share = time.as_secs_f64() / all.as_secs_f64().max(1e-9);
                this.stacks.insert(callsite, WaitStack { kind, text, share });
            }
        }
        this
    }

    /// Returns for how long the thread waited in a span itself, and not in spans inside it; `None` if that was not
    /// recorded. Time in which the thread was ready to run is left out if it is known.
    fn waited(&self, span: Span<'_>) -> Option<Duration> {
        let time = |times: &FxHashMap<SpanId, Duration>| times.get(&span.id()).copied().unwrap_or_default();
        let off_cpu = span.self_cpu_time().map(|cpu| span.self_time().saturating_sub(cpu));
        match off_cpu {
            Some(off_cpu) => Some(off_cpu.saturating_sub(time(&self.preempted))),
            None => self.has_waits.then(|| time(&self.waits)),
        }
    }

    /// Returns the part of a span's own time in which the thread waited, from 0 to 1; 0 if it is not known.
    pub(super) fn waiting_share(&self, span: Span<'_>) -> f64 {
        let waited = self.waited(span).unwrap_or_default();
        (waited.as_secs_f64() / span.self_time().as_secs_f64().max(1e-9)).min(1.0)
    }

    /// Whether it is known of a span whether its thread waited.
    pub(super) fn is_known(&self, span: Span<'_>) -> bool {
        self.waited(span).is_some()
    }

    /// Whether waits are known from samples, so that time without a CPU is not among them.
    pub(super) fn has_waits(&self) -> bool {
        self.has_waits
    }

    /// Whether stacks were sampled.
    pub(super) fn is_sampled(&self) -> bool {
        self.trace.stack_sampling().is_some()
    }

    /// Returns the function in which spans of a callsite waited for the longest, if stacks were sampled.
    pub(super) fn stack(&self, callsite: CallsiteId) -> Option<&WaitStack> {
        self.stacks.get(&callsite)
    }

    /// Returns for how long threads other than the steps' ran between two moments; `None` if it is not known.
    pub(super) fn others_ran(&self, start: Timestamp, end: Timestamp) -> Option<Duration> {
        self.others.as_ref().map(|others| others.covered(start, end))
    }

    /// Returns how much CPU time threads other than the steps' used in a step; `None` if it is not known.
    pub(super) fn cpu_of_others(&self, step: StepId) -> Option<Duration> {
        self.cpu_of_others.get(&step).copied()
    }
}

/// Returns the CPU time of the process in each step, without that of the spans of the steps' thread.
fn cpu_of_others(trace: &Trace, thread: ThreadId) -> SortedMap<StepId, Duration> {
    let mut times = SortedMap::default();
    for (id, step) in trace.step_ids().zip(trace.steps()) {
        if let Some(process) = ProcessUsage::of_counters(trace.counters_in(step)) {
            *times.or_default(id) = process.cpu;
        }
    }
    for span in trace.spans().filter(|span| span.track().thread() == thread && span.parent().is_none()) {
        if let Some((time, cpu)) = span.step_id().and_then(|step| times.get_mut(&step)).zip(span.cpu_time()) {
            *time = time.saturating_sub(cpu);
        }
    }
    times
}

/// The time for which a sample says that a thread works, or would if it had a CPU.
fn working(sample: StackSample<'_>) -> Interval {
    let nanos = u64::try_from(sample.duration().as_nanos()).unwrap_or(u64::MAX);
    let before = Timestamp::from_unix_nanos(sample.at().as_unix_nanos().saturating_sub(nanos));
    let (start, end) = match sample.is_preempted() {
        true => (sample.at(), sample.at() + sample.duration()),
        false => (before, sample.at()),
    };
    Interval { start, end, requested: None }
}

/// Returns what a waiting thread waits for, and where: the outermost function of the runtime and the C library, and the
/// function that called it.
fn waiting_in(sample: StackSample<'_>, origins: &[FrameOrigin]) -> Option<(WaitsFor, String)> {
    let frames: Vec<_> = sample.stack().zip(sample.frame_ids().map(|id| origins[id.index()])).collect();
    let is_folded = |origin: &FrameOrigin| matches!(origin, FrameOrigin::Runtime | FrameOrigin::System);
    let caller = frames.iter().position(|(_, origin)| !is_folded(origin));
    let folded = &frames[..caller.unwrap_or(frames.len())];
    let kind = WaitsFor::of_functions(folded.iter().map(|(frame, _)| frame.function()));
    let Some(caller) = caller else { return Some((kind, format!("`{}`", frames.first()?.0.function()))) };
    let (frame, _) = frames[caller];
    let caller = match place(frame) {
        Some(place) => format!("`{}` ({place})", frame.function()),
        None => format!("`{}`", frame.function()),
    };
    Some(match folded.last() {
        Some((called, _)) => (kind, format!("`{}`, called by {caller}", called.function())),
        None => (kind, caller),
    })
}

impl WaitStack {
    /// Returns a sentence about where the thread waited.
    pub(super) fn sentence(&self) -> String {
        format!("{} of the sampled waits there are in {}.", units::percent(100.0 * self.share), self.text)
    }
}
