use crate::trace::{DeviceId, Span, SpanId, StepId, Trace, convention};
use std::time::Duration;

/// Floating-point operations, and how long GPUs would take for them at their peak.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Flops {
    pub(super) count: u64,
    /// In seconds, not rounded: small operations take less than a nanosecond.
    ideal: f64,
    /// Whether the peak is not known for some of them.
    unknown: bool,
}

impl Flops {
    fn new(count: u64, peak: Option<f64>) -> Self {
        let ideal = peak.map_or(0.0, |peak| count as f64 / peak);
        Self { count, ideal, unknown: count > 0 && peak.is_none() }
    }

    pub(super) fn add(&mut self, other: &Self) {
        self.count = self.count.saturating_add(other.count);
        self.ideal += other.ideal;
        self.unknown |= other.unknown;
    }

    /// How long they would take at the peak, if that is known for all of them.
    pub(super) fn ideal(&self) -> Option<Duration> {
        Duration::try_from_secs_f64(self.ideal).ok().filter(|_| !self.unknown)
    }

    /// How many there were in a second, if there were any and they took so long.
    pub(super) fn per_second(&self, time: Duration) -> Option<f64> {
        (self.count > 0 && !time.is_zero()).then(|| self.count as f64 / time.as_secs_f64())
    }

    /// How much of the peak that is, in percent.
    pub(super) fn percent_of_peak(&self, time: Duration) -> Option<f64> {
        let known = self.count > 0 && !self.unknown && !time.is_zero();
        known.then(|| 100.0 * self.ideal / time.as_secs_f64())
    }
}

/// The floating-point operations of the spans of a trace.
///
/// A span comes to what it says itself, and if it says nothing, to what the spans nested in it come to.
#[derive(Debug, Default)]
pub(super) struct SpanFlops {
    /// By span; empty if none says anything.
    totals: Vec<Flops>,
    /// By step.
    steps: Vec<Flops>,
    unknown: Option<String>,
}

impl SpanFlops {
    pub(super) fn of(trace: &Trace) -> Self {
        if !trace.callsites().iter().any(|site| site.field_names().any(|name| name == convention::FLOPS)) {
            return Self::default();
        }
        let workers = Workers::of(trace);
        let mut totals = vec![Flops::default(); trace.spans().len()];
        let mut says = vec![false; totals.len()];
        // From the inside out: when a span's turn comes, all that is nested in it has been added to it.
        for index in (0..totals.len()).rev() {
            let span = trace.span(SpanId::new(index));
            if let Some(count) = span.fields().op().flops() {
                totals[index] = Flops::new(count, peak(trace, span, workers.device(index)));
                says[index] = true;
            }
            if let Some(parent) = span.parent() {
                let total = totals[index];
                totals[parent.id().index()].add(&total);
            }
        }
        let mut flops = Self { totals, steps: vec![Flops::default(); trace.steps().len()], unknown: None };
        // From the outside in: what is nested in a span that says something does not count. A span counts for the step it began
        // in, whatever is around it: an epoch is around many steps.
        let mut counted = vec![false; says.len()];
        for (index, span) in trace.spans().enumerate() {
            let around = span.parent().is_some_and(|parent| counted[parent.id().index()]);
            counted[index] = around || says[index];
            let Some(step) = span.step_id().filter(|_| says[index] && !around) else { continue };
            let total = flops.totals[index];
            flops.steps[step.index()].add(&total);
            if total.unknown && flops.unknown.is_none() {
                flops.unknown = Some(why_unknown(trace, span, workers.device(index)));
            }
        }
        flops
    }

    /// What a span comes to.
    pub(super) fn of_span(&self, span: SpanId) -> Flops {
        self.totals.get(span.index()).copied().unwrap_or_default()
    }

    /// What the spans that began in a step come to, on all threads.
    pub(super) fn of_step(&self, step: StepId) -> Flops {
        self.steps.get(step.index()).copied().unwrap_or_default()
    }

    /// Why the peak is not known for some of what steps come to.
    pub(super) fn unknown(&self) -> Option<&str> {
        self.unknown.as_deref()
    }
}

/// The type that a span's operations are done with: what it says, or else the element type of `input`, if that is of floating-point numbers, or else of the first argument
/// that is, or of the result, as tokens become numbers inside; if there are none, of the first argument.
fn dtype(span: Span<'_>) -> Option<&str> {
    let op = span.fields().op();
    // f32, bf16, tf32.
    let is_float = |dtype: &&str| dtype.trim_start_matches(['b', 'B', 't', 'T']).starts_with(['f', 'F']);
    let inputs = || op.dtypes().map(|(_, dtype)| dtype);
    let input = op.dtypes().find_map(|(argument, dtype)| (argument == "input").then_some(dtype));
    let floats = input.into_iter().chain(inputs()).chain(op.output_dtype());
    op.compute().or_else(|| floats.into_iter().find(is_float)).or_else(|| inputs().next())
}

fn peak(trace: &Trace, span: Span<'_>, device: Option<DeviceId>) -> Option<f64> {
    trace.device(device?)?.peak_flops(dtype(span)?)
}

/// `peak of NVIDIA H200 for u32 not known`.
fn why_unknown(trace: &Trace, span: Span<'_>, device: Option<DeviceId>) -> String {
    let Some(dtype) = dtype(span) else {
        return format!("no {}… with FLOPs of {}", convention::DTYPE, span.name().escape_debug());
    };
    let name = device.and_then(|id| trace.device(id)).map_or("the GPU", |device| &device.name);
    format!("peak of {name} for {} not known", dtype.escape_debug())
}

/// Which GPUs worked for something.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
enum Worker {
    #[default]
    None,
    One(DeviceId),
    Several,
}

impl Worker {
    fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::None, one) | (one, Self::None) => one,
            (one, other) if one == other => one,
            _ => Self::Several,
        }
    }
}

/// Which GPUs worked for the spans of a trace and those nested in them.
struct Workers {
    all: Worker,
    of_spans: Vec<Worker>,
}

impl Workers {
    fn of(trace: &Trace) -> Self {
        let mut workers = Self { all: Worker::None, of_spans: vec![Worker::None; trace.spans().len()] };
        for work in trace.work() {
            let device = Worker::One(work.stream().device());
            workers.all = workers.all.and(device);
            if let Some(span) = work.span() {
                let worker = &mut workers.of_spans[span.id().index()];
                *worker = worker.and(device);
            }
        }
        for span in (0..workers.of_spans.len()).rev() {
            if let Some(parent) = trace.span(SpanId::new(span)).parent() {
                let parent = parent.id().index();
                workers.of_spans[parent] = workers.of_spans[parent].and(workers.of_spans[span]);
            }
        }
        workers
    }

    /// The GPU that did a span's operations: the one that worked for it, or the only one that worked at all.
    fn device(&self, span: usize) -> Option<DeviceId> {
        match (self.of_spans[span], self.all) {
            (Worker::One(device), _) | (Worker::None, Worker::One(device)) => Some(device),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::SpanFlops;
    use crate::{
        report::{Average, Report, SortBy},
        trace::{
            DeviceId, SpanId, StepId, Trace, Value, convention,
            sample::{gpu_trace, h200, say, say_flops},
        },
    };
    use std::sync::Arc;

    /// The sample, whose forward passes take 5 µs at the peak, and whose backward passes take 10.
    fn trace() -> Trace {
        let mut trace = gpu_trace();
        for step in [0, 3] {
            say_flops(&mut trace, step + 1, 335_000_000, "f32");
            say_flops(&mut trace, step + 2, 9_895_000_000, "BF16");
        }
        trace
    }

    /// By name: `backward`, `forward`, `train_step`.
    fn rows(trace: &Trace) -> [Average; 3] {
        let mut report = Report::default();
        report.add_trace(trace);
        let mut rows = report.averages().sort_by(SortBy::Name).rows();
        rows.retain(|row| row.name != Average::UNATTRIBUTED);
        rows.try_into().unwrap()
    }

    fn total_flops(trace: &Trace) -> [u64; 3] {
        rows(trace).map(|row| row.total_flops)
    }

    fn mfu(trace: &Trace) -> [Option<String>; 3] {
        rows(trace).map(|row| row.gpu_mfu.map(|mfu| format!("{mfu:.3}")))
    }

    fn some<const N: usize>(texts: [&str; N]) -> [Option<String>; N] {
        texts.map(|text| (text != "--").then(|| text.to_owned()))
    }

    #[test]
    fn a_span_comes_to_what_it_says_or_what_is_nested_in_it() {
        let mut trace = trace();
        assert_eq!(total_flops(&trace), [19_790_000_000, 670_000_000, 20_460_000_000]);
        assert_eq!(rows(&trace).map(|row| row.flops), [19_790_000_000, 670_000_000, 0], "the spans' own");
        // The first step says so itself, and the second does not.
        say_flops(&mut trace, 0, 5_000_000_000, "f32");
        assert_eq!(total_flops(&trace), [19_790_000_000, 670_000_000, 5_000_000_000 + 10_230_000_000]);
    }

    #[test]
    fn operations_of_nested_spans_of_a_row_are_not_counted_twice() {
        let mut trace = gpu_trace();
        let callsite = trace.spans[0].callsite;
        trace.spans.iter_mut().for_each(|span| span.callsite = callsite);
        [1, 2].into_iter().for_each(|span| say_flops(&mut trace, span, 74, "f32"));
        let mut report = Report::default();
        report.add_trace(&trace);
        let row = &report.averages().rows()[0];
        assert_eq!((row.name.as_str(), row.flops, row.total_flops), ("train_step", 148, 148));
        // In 148 µs.
        assert_eq!(row.flops_per_second.map(f64::round), Some(1e6));
    }

    #[test]
    fn utilisation_is_the_time_at_the_peak_by_the_gpu_time() {
        // 2 × 10 of 100 µs, 2 × 5 of 40, and all of these of 148.
        assert_eq!(mfu(&trace()), some(["20.000", "25.000", "20.270"]));
        let rates = rows(&trace()).map(|row| row.flops_per_second.unwrap().round());
        assert_eq!(rates, [197.9e12, 16.75e12, 138_243_243_243_243.0]);
    }

    #[test]
    fn the_input_says_of_what_type_the_operations_are() {
        let mut trace = trace();
        let text = |text: &str| Value::Str(Arc::from(text));
        let flops = (convention::FLOPS, Value::U64(335_000_000));
        let types = [("op.dtype.mask", text("bf16")), ("op.dtype.input", text("f32"))];
        [1, 4].into_iter().for_each(|span| say(&mut trace, span, &[flops.clone(), types[0].clone(), types[1].clone()]));
        assert_eq!(mfu(&trace)[1].as_deref(), Some("25.000"));
        [1, 4].into_iter().for_each(|span| say(&mut trace, span, &[flops.clone(), ("op.dtype.lhs", text("f32"))]));
        assert_eq!(mfu(&trace)[1].as_deref(), Some("25.000"), "the first, where there is no input");
        let tf32 = [flops.clone(), ("op.compute", text("f32")), ("op.dtype.input", text("f64"))];
        [1, 4].into_iter().for_each(|span| say(&mut trace, span, &tf32));
        assert_eq!(mfu(&trace)[1].as_deref(), Some("25.000"), "what it is computed with, where that is said");
        let tokens = [flops.clone(), ("op.dtype.input", text("u32")), ("op.dtype.output", text("F32"))];
        [1, 4].into_iter().for_each(|span| say(&mut trace, span, &tokens));
        assert_eq!(mfu(&trace)[1].as_deref(), Some("25.000"), "the result's, where numbers go in that are not counted");
        say(&mut trace, 1, &[flops]);
        assert_eq!(mfu(&trace), some(["20.000", "--", "--"]));
        assert_eq!(SpanFlops::of(&trace).unknown(), Some("no op.dtype.… with FLOPs of forward"));
    }

    #[test]
    fn there_is_no_utilisation_where_a_peak_is_not_known() {
        let mut trace = trace();
        say_flops(&mut trace, 4, 1, "u32");
        assert_eq!(mfu(&trace), some(["20.000", "--", "--"]));
        assert_eq!(SpanFlops::of(&trace).unknown(), Some("peak of NVIDIA H200 for u32 not known"));
        assert!(rows(&trace).iter().all(|row| row.flops_per_second.is_some()));
        trace.devices[0].name = "NVIDIA Foo".to_owned();
        assert_eq!(mfu(&trace), some(["--", "--", "--"]));
        // What does not count need not be known.
        let mut trace = self::trace();
        [1, 4].into_iter().for_each(|span| say_flops(&mut trace, span, 1, "u32"));
        [0, 3].into_iter().for_each(|span| say_flops(&mut trace, span, 495_800_000, "f32"));
        assert_eq!(mfu(&trace), some(["20.000", "--", "10.000"]), "7.4 of 74 µs");
        assert_eq!(SpanFlops::of(&trace).unknown(), None);
    }

    #[test]
    fn the_peak_is_that_of_the_gpu_that_worked_for_the_span() {
        let mut trace = trace();
        let mut second = h200();
        second.id = DeviceId::new(1);
        second.name = "NVIDIA H100 PCIe".to_owned();
        trace.devices.push(second);
        assert_eq!(mfu(&trace), some(["20.000", "25.000", "20.270"]), "only one worked");
        // Graphs run on the other, and backward passes on both.
        trace.streams[1].device = DeviceId::new(1);
        trace.streams[2].device = DeviceId::new(1);
        assert_eq!(mfu(&trace), some(["--", "25.000", "--"]));
        // Now it does all: 335 / 51 µs of 20, and 9895 / 756.5 of 50.
        trace.streams[0].device = DeviceId::new(1);
        assert_eq!(mfu(&trace)[..2], some(["26.160", "32.843"]));
        // With nothing done for a forward pass, it is the only one that it can have been.
        trace.work.retain(|work| work.span.is_none_or(|span| span.index() % 3 != 1));
        assert_eq!(mfu(&trace)[1..], some(["--", "36.386"]), "19.6486 of 54 µs");
    }

    #[test]
    fn without_a_gpu_operations_are_by_the_hosts_time() {
        let mut trace = trace();
        trace.work.clear();
        let [backward, forward, step] = rows(&trace);
        // In 80, 60 and 180 µs.
        let rates = [backward, forward, step].map(|row| (row.flops_per_second.unwrap() / 1e9).round());
        assert_eq!(rates, [247_375.0, 11_167.0, 113_667.0]);
        assert_eq!(mfu(&trace), some(["--", "--", "--"]));
    }

    #[test]
    fn spans_count_for_the_step_they_began_in() {
        let mut trace = trace();
        let steps = |trace: &Trace| [0, 1].map(|step| SpanFlops::of(trace).of_step(StepId::new(step)).count);
        assert_eq!(steps(&trace), [10_230_000_000; 2]);
        // An epoch is around both, and says nothing.
        trace.spans[3].parent = Some(SpanId::new(0));
        assert_eq!(steps(&trace), [10_230_000_000; 2]);
        say_flops(&mut trace, 3, 7, "f32");
        assert_eq!(steps(&trace), [10_230_000_000, 7]);
    }
}
