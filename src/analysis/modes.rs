//! What a model was used for: training, validation or inference, by the names of spans.

use super::{
    gpu_usage::percent_of,
    intervals::{Interval, Intervals},
    sorted::SortedMap,
    span_calls::SpanCalls,
};
use crate::trace::{DeviceId, MemoryChange, Span, Timestamp, Trace, convention};
use std::{fmt, time::Duration};

/// What a model is used for. It is told by the names of spans: the last part of the name, such as `train_step` of
/// `Model::train_step`, is one of the words below, or one of them and `_step`, `_batch`, `_epoch`, `_one_epoch`,
/// `_loop` or `_pass`.
///
/// A span is in the mode of the innermost such span around it. But inference in validation is validation.
///
/// ```
/// use kernspan::analysis::Mode;
///
/// assert_eq!(Mode::named("training_step"), Some(Mode::Training));
/// assert_eq!(Mode::named("model::validate"), Some(Mode::Validation));
/// assert_eq!(Mode::named("generate"), Some(Mode::Inference));
/// assert_eq!(Mode::named("train_loader"), None);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum Mode {
    /// `train` or `training`.
    Training,
    /// `val`, `valid`, `validate`, `validation`, `eval`, `evaluate` or `evaluation`.
    Validation,
    /// `infer`, `inference`, `predict`, `prediction`, `generate` or `generation`.
    Inference,
}

/// What one [`Mode`] has cost and done: see [`Analysis::modes`](super::Analysis::modes).
#[derive(Clone, Copy, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct ModeUse {
    /// The mode.
    pub mode: Mode,
    /// The number of calls: of the innermost spans that are named after the mode, such as `train_step` in `train`.
    pub calls: u64,
    /// The number of calls that are cut by the edge of a window.
    pub cut_calls: u64,
    /// The time of all calls that are not cut, without that of other modes inside: `calls` times the
    /// [mean](Self::mean).
    pub whole: Duration,
    /// The time on the host, on all threads, without that of other modes inside. Around calls, it has the time of
    /// spans that are named after the mode, too: `train` around each `train_step`.
    pub total: Duration,
    /// The time in which GPUs did work that the mode launched. Work that ran at the same time on one GPU counts once.
    pub gpu_busy: Duration,
    /// The number of kernels that were launched.
    pub kernels: u64,
    /// The sum of the counter [`samples`](convention::SAMPLES).
    pub samples: f64,
    /// The sum of the counter [`tokens`](convention::TOKENS).
    pub tokens: f64,
    /// The most bytes of a GPU's memory in use, by anybody, after an allocation made in the mode.
    pub peak_gpu_memory: Option<u64>,
}

impl Mode {
    const TRAINING: [&str; 2] = ["train", "training"];
    const VALIDATION: [&str; 7] = ["val", "valid", "validate", "validation", "eval", "evaluate", "evaluation"];
    const INFERENCE: [&str; 6] = ["infer", "inference", "predict", "prediction", "generate", "generation"];
    /// What may follow the word.
    const ENDS: [&str; 7] = ["", "_step", "_batch", "_epoch", "_one_epoch", "_loop", "_pass"];

    /// Returns the mode that spans of this name are in, if any.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        let last = name.rsplit([':', '.', '/', ']', ' ']).next().unwrap_or(name).replace('-', "_");
        let is = |word: &&str| last.strip_prefix(word).is_some_and(|end| Self::ENDS.contains(&end));
        match () {
            () if Self::TRAINING.iter().any(is) => Some(Self::Training),
            () if Self::VALIDATION.iter().any(is) => Some(Self::Validation),
            () if Self::INFERENCE.iter().any(is) => Some(Self::Inference),
            () => None,
        }
    }

    /// Returns the name, such as `training`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Training => "training",
            Self::Validation => "validation",
            Self::Inference => "inference",
        }
    }

    /// Returns the mode of a span that is named after this mode, in one of mode `outer`.
    fn within(self, outer: Option<Self>) -> Self {
        if outer == Some(Self::Validation) && self == Self::Inference { Self::Validation } else { self }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl ModeUse {
    pub(crate) fn new(mode: Mode) -> Self {
        Self {
            mode,
            calls: 0,
            cut_calls: 0,
            whole: Duration::ZERO,
            total: Duration::ZERO,
            gpu_busy: Duration::ZERO,
            kernels: 0,
            samples: 0.0,
            tokens: 0.0,
            peak_gpu_memory: None,
        }
    }

    /// Returns the mean time of a call that is not cut, without that of other modes inside, if there is any.
    #[must_use]
    pub fn mean(&self) -> Option<Duration> {
        (self.calls > 0).then(|| self.whole.div_f64(self.calls as f64))
    }

    /// Returns `gpu_busy` in percent of `total`. It is more than 100 with several GPUs, or if the host runs ahead.
    #[must_use]
    pub fn gpu_busy_percent(&self) -> f64 {
        percent_of(self.gpu_busy, self.total)
    }

    /// Returns the samples per second of `total`, if the counter is recorded.
    #[must_use]
    pub fn samples_per_second(&self) -> Option<f64> {
        self.per_second(self.samples)
    }

    /// Returns the tokens per second of `total`, if the counter is recorded.
    #[must_use]
    pub fn tokens_per_second(&self) -> Option<f64> {
        self.per_second(self.tokens)
    }

    fn per_second(&self, number: f64) -> Option<f64> {
        (number > 0.0 && !self.total.is_zero()).then(|| number / self.total.as_secs_f64())
    }

    /// Adds the use of another window.
    pub(crate) fn add(&mut self, other: &Self) {
        self.calls += other.calls;
        self.cut_calls += other.cut_calls;
        self.whole += other.whole;
        self.total += other.total;
        self.gpu_busy += other.gpu_busy;
        self.kernels += other.kernels;
        self.samples += other.samples;
        self.tokens += other.tokens;
        self.peak_gpu_memory = self.peak_gpu_memory.max(other.peak_gpu_memory);
    }
}

/// Returns the use of each mode of a window: see [`Analysis::modes`](super::Analysis::modes).
pub(super) fn modes(trace: &Trace) -> Vec<ModeUse> {
    let of_names: Vec<_> = trace.callsites().iter().map(|callsite| Mode::named(callsite.name())).collect();
    if of_names.iter().all(Option::is_none) {
        return Vec::new();
    }
    let marks = Marks::of(trace, &of_names);
    let mut uses: SortedMap<Mode, ModeUse> = SortedMap::default();
    marks.add_times(trace, &mut uses);
    marks.add_counters(trace, &mut uses);
    let mut busy: SortedMap<(Mode, DeviceId), Vec<Interval>> = SortedMap::default();
    for work in trace.work() {
        let Some(mode) = marks.of_span(work.span()) else { continue };
        get(&mut uses, mode).kernels += u64::from(work.kernel().is_some());
        let interval = Interval { start: work.start(), end: work.end(), requested: None };
        busy.or_default((mode, work.stream().device())).push(interval);
    }
    for ((mode, _), intervals) in busy {
        get(&mut uses, mode).gpu_busy += Intervals::new(intervals).covered(trace.start(), LATEST);
    }
    for allocation in trace.allocations().filter(|it| it.change() == MemoryChange::Allocate) {
        if let Some(mode) = marks.of_span(allocation.span()) {
            let usage = get(&mut uses, mode);
            usage.peak_gpu_memory = usage.peak_gpu_memory.max(Some(allocation.in_use()));
        }
    }
    uses.values().copied().collect()
}

/// A moment after all others: work of a window may end after it.
const LATEST: Timestamp = Timestamp::from_unix_nanos(u64::MAX);

fn get(uses: &mut SortedMap<Mode, ModeUse>, mode: Mode) -> &mut ModeUse {
    uses.or_insert_with(mode, || ModeUse::new(mode))
}

/// The modes of the spans of a trace.
struct Marks {
    /// The mode of each span, if any.
    modes: Vec<Option<Mode>>,
    /// Whether each span is named after a mode.
    is_named: Vec<bool>,
}

impl Marks {
    /// `of_names` has the mode of each callsite.
    fn of(trace: &Trace, of_names: &[Option<Mode>]) -> Self {
        let mut marks = Self { modes: vec![None; trace.spans().len()], is_named: vec![false; trace.spans().len()] };
        for id in trace.caller_order().unwrap_or_default() {
            let span = trace.span(id);
            let outer = marks.of_span(span.caller());
            let named = of_names[span.callsite_id().index()];
            marks.modes[id.index()] = named.map(|mode| mode.within(outer)).or(outer);
            marks.is_named[id.index()] = named.is_some();
        }
        marks
    }

    fn of_span(&self, span: Option<Span<'_>>) -> Option<Mode> {
        self.modes[span?.id().index()]
    }

    /// Returns the spans that are named after a mode, with their modes.
    fn named<'a>(&self, trace: &'a Trace) -> impl Iterator<Item = (Span<'a>, Mode)> {
        let mode =
            |span: Span<'a>| Some((span, self.of_span(Some(span)).filter(|_| self.is_named[span.id().index()])?));
        trace.spans().filter_map(mode)
    }

    /// Adds the times and calls of the spans that are named after a mode.
    fn add_times(&self, trace: &Trace, uses: &mut SortedMap<Mode, ModeUse>) {
        let calls = SpanCalls::of(trace);
        // Spans that have another span of the same mode inside.
        let mut has_inner = vec![false; trace.spans().len()];
        // The time of other modes in each span, without that in another named span inside.
        let mut of_others = vec![Duration::ZERO; trace.spans().len()];
        for (span, mode) in self.named(trace) {
            let outer = span.stack().skip(1).find(|outer| self.is_named[outer.id().index()]);
            let outer_mode = self.of_span(outer);
            if let Some(outer) = outer.filter(|_| outer_mode == Some(mode)) {
                has_inner[outer.id().index()] = true;
                continue;
            }
            get(uses, mode).total += span.duration();
            if let Some((outer, outer_mode)) = outer.zip(outer_mode) {
                of_others[outer.id().index()] += span.duration();
                let usage = get(uses, outer_mode);
                usage.total = usage.total.saturating_sub(span.duration());
            }
        }
        for (span, mode) in self.named(trace).filter(|(span, _)| !has_inner[span.id().index()]) {
            let (usage, is_first) = (get(uses, mode), calls.first(span.id()) == span.id());
            if calls.is_cut(span.id()) {
                usage.cut_calls += u64::from(is_first);
            } else {
                usage.calls += u64::from(is_first);
                usage.whole += span.duration().saturating_sub(of_others[span.id().index()]);
            }
        }
    }

    /// Adds the samples and tokens of each mode: a value counts for the mode that was entered last at that moment, or
    /// else for the one that was left last in the same step, as a loop may count after the call.
    fn add_counters(&self, trace: &Trace, uses: &mut SortedMap<Mode, ModeUse>) {
        let edges_of = |(span, mode): (Span<'_>, Mode)| {
            let id = span.id();
            [(span.start(), false, id, mode), (span.end(), true, id, mode)]
        };
        let mut edges: Vec<_> = self.named(trace).flat_map(edges_of).collect();
        edges.sort_unstable_by_key(|&(at, is_end, id, _)| (at, is_end, id));
        for counter in trace.counters() {
            let is_samples = counter.name() == convention::SAMPLES;
            if !is_samples && counter.name() != convention::TOKENS {
                continue;
            }
            let mut edges = edges.iter().peekable();
            let (mut open, mut left) = (Vec::new(), None);
            for &(at, value) in counter.samples().iter().filter(|(_, value)| value.is_finite()) {
                while let Some(&(time, is_end, id, mode)) = edges.next_if(|edge| edge.0 < at || edge.0 == at && !edge.1)
                {
                    if is_end {
                        open.retain(|&(other, _)| other != id);
                        left = Some((time, mode));
                    } else {
                        open.push((id, mode));
                    }
                }
                let is_near = |(time, _): &(Timestamp, Mode)| trace.step_at(*time) == trace.step_at(at);
                let last = open.last().map(|(_, mode)| *mode).or(left.filter(is_near).map(|(_, mode)| mode));
                let Some(usage) = last.map(|mode| get(uses, mode)) else { continue };
                *(if is_samples { &mut usage.samples } else { &mut usage.tokens }) += value;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Mode, ModeUse, modes};
    use crate::trace::{
        Attribution,
        sample::{add_counter, at, cut_both_ends, gpu_trace, rename, set_parent, spans_trace},
    };
    use std::time::Duration;

    fn micros(micros: u64) -> Duration {
        Duration::from_micros(micros)
    }

    #[test]
    fn names_of_whole_words_are_modes() {
        let modes = ["train", "Trainer.training_step", "[module]Model.validation_step", "eval-epoch", "predict_batch"];
        let [train, training, validation, eval, predict] = modes.map(Mode::named);
        assert_eq!([train, training], [Some(Mode::Training); 2]);
        assert_eq!(
            [validation, eval, predict],
            [Some(Mode::Validation), Some(Mode::Validation), Some(Mode::Inference)]
        );
        for other in ["train_loader", "generate_mask", "evaluator", "step", "", "retrain", "validate_input"] {
            assert_eq!(Mode::named(other), None, "{other}");
        }
    }

    #[test]
    fn time_is_of_the_innermost_mode() {
        let spans = [
            ("train", None, 0, 100),
            ("train_step", Some(0), 0, 30),
            ("forward", Some(1), 5, 10),
            ("train_step", Some(0), 30, 50),
            ("validate", Some(0), 60, 90),
            ("inference_step", Some(4), 60, 70),
            ("inference_step", Some(4), 70, 85),
            ("generate", None, 110, 120),
        ];
        let mut trace = spans_trace(&spans);
        for (span, (_, parent, ..)) in spans.iter().enumerate() {
            parent.iter().for_each(|&parent| set_parent(&mut trace, span, parent));
        }
        // In the second training step; after the validation, still in `train`; after all of them.
        add_counter(&mut trace, "samples", &[(at(50), 64.0), (at(95), 8.0), (at(130), 3.0)]);
        add_counter(&mut trace, "tokens", &[(at(65), 7.0), (at(84), f64::NAN)]);
        let [training, validation, inference] = modes(&trace)[..] else { panic!("{:?}", modes(&trace)) };
        assert_eq!(
            [training.mode, validation.mode, inference.mode],
            [Mode::Training, Mode::Validation, Mode::Inference]
        );
        assert_eq!((training.calls, training.total, training.mean()), (2, micros(70), Some(micros(25))));
        assert_eq!((validation.calls, validation.total, validation.whole), (2, micros(30), micros(25)));
        assert_eq!((inference.calls, inference.total), (1, micros(10)));
        assert_eq!([training, validation, inference].map(|it| it.samples), [72.0, 0.0, 3.0]);
        assert_eq!([training, validation, inference].map(|it| it.tokens), [0.0, 7.0, 0.0]);
        let per_second = training.samples_per_second().unwrap();
        assert!((per_second - 72.0 / 70e-6).abs() < 1e-3, "{per_second}");
        assert_eq!((inference.tokens_per_second(), inference.gpu_busy), (None, Duration::ZERO));

        cut_both_ends(&mut trace, 1);
        let ModeUse { calls, cut_calls, whole, total, .. } = modes(&trace)[0];
        assert_eq!((calls, cut_calls, whole, total), (1, 1, micros(20), micros(70)));
    }

    #[test]
    fn calls_take_no_more_than_their_mode() {
        // Each step of a loop validates: what remains of 3 calls is 3 times their mean.
        let mut spans = vec![("train", None, 0, 400)];
        for step in 0..3_u64 {
            let (start, outer) = (100 * step, 1 + 2 * step as usize);
            spans.push(("train_step", Some(0), start, start + 80));
            spans.push(("validate", Some(outer), start + 10, start + 60));
        }
        let mut trace = spans_trace(&spans);
        for (span, (_, parent, ..)) in spans.iter().enumerate() {
            parent.iter().for_each(|&parent| set_parent(&mut trace, span, parent));
        }
        let [training, validation] = modes(&trace)[..] else { panic!("{:?}", modes(&trace)) };
        assert_eq!((training.calls, training.whole, training.mean()), (3, micros(90), Some(micros(30))));
        assert_eq!((training.total, validation.whole, validation.total), (micros(250), micros(150), micros(150)));
    }

    #[test]
    fn work_and_memory_are_of_the_mode_that_asked_for_them() {
        let mut trace = gpu_trace();
        rename(&mut trace, 0, "train_step");
        rename(&mut trace, 1, "evaluate");
        trace.allocations[2].in_use = 9192;
        let [training, validation] = modes(&trace)[..] else { panic!("{:?}", modes(&trace)) };
        // In each step, a copy of 4 µs, and 30 µs of kernels, with other work at the same time.
        assert_eq!((training.gpu_busy, training.kernels), (micros(2 * 34), 4));
        assert_eq!((training.total, training.peak_gpu_memory), (micros(2 * 60), None));
        assert_eq!((validation.gpu_busy, validation.kernels), (micros(2 * 20), 2));
        assert_eq!((validation.total, validation.peak_gpu_memory), (micros(2 * 30), Some(9192)));
        assert_eq!(format!("{:.1}", validation.gpu_busy_percent()), "66.7");

        // Unattributed work belongs to no mode.
        trace.work.iter_mut().for_each(|work| (work.span, work.attribution) = (None, Attribution::Unattributed));
        assert_eq!(modes(&trace)[0].kernels, 0);
        let mut trace = gpu_trace();
        rename(&mut trace, 0, "iteration");
        assert!(modes(&trace).is_empty());
    }
}
