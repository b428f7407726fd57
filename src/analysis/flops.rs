use super::workers::Workers;
use crate::trace::{DeviceId, OpFacts, OperationCall, Span, SpanId, StepId, Trace, convention};
use std::time::Duration;

/// Floating-point operations, and how long GPUs would take for them at their peak.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Flops {
    pub(crate) count: u64,
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

    pub(crate) fn add(&mut self, other: &Self) {
        self.count = self.count.saturating_add(other.count);
        self.ideal += other.ideal;
        self.unknown |= other.unknown;
    }

    /// How long they would take at the peak, if that is known for all of them.
    pub(crate) fn ideal(&self) -> Option<Duration> {
        Duration::try_from_secs_f64(self.ideal).ok().filter(|_| !self.unknown)
    }

    /// How many there were in a second, if there were any and they took so long.
    pub(crate) fn per_second(&self, time: Duration) -> Option<f64> {
        (self.count > 0 && !time.is_zero()).then(|| self.count as f64 / time.as_secs_f64())
    }

    /// How much of the peak that is, in percent.
    pub(crate) fn percent_of_peak(&self, time: Duration) -> Option<f64> {
        let known = self.count > 0 && !self.unknown && !time.is_zero();
        known.then(|| 100.0 * self.ideal / time.as_secs_f64())
    }
}

/// The floating-point operations of the spans of a trace.
///
/// A span comes to what it says itself, and if it says nothing, to what is nested in it: spans, and the operations that frameworks
/// were asked for in it.
#[derive(Debug, Default)]
pub(crate) struct SpanFlops {
    /// By span; empty if nothing says anything.
    totals: Vec<Flops>,
    /// By step.
    steps: Vec<Flops>,
    unknown: Option<String>,
}

impl SpanFlops {
    pub(crate) fn of(trace: &Trace) -> Self {
        let spans_say = trace.callsites().iter().any(|site| site.field_names().any(|name| name == convention::FLOPS));
        if !spans_say && !trace.operations.iter().any(|operation| operation.fields().op().flops().is_some()) {
            return Self::default();
        }
        let workers = Workers::of(trace);
        let operations = operation_flops(trace, &workers);
        let mut totals = vec![Flops::default(); trace.spans().len()];
        let mut says = vec![false; totals.len()];
        for (told, flops) in trace.operations().zip(&operations) {
            if let Some(span) = told.span() {
                totals[span.id().index()].add(flops);
            }
        }
        // From the inside out: when a span's turn comes, all that is nested in it has been added to it.
        for index in (0..totals.len()).rev() {
            let span = trace.span(SpanId::new(index));
            if let Some(flops) = Sayer::of_span(span).flops(trace, || workers.of_span(span.id())) {
                totals[index] = flops;
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
            if let Some(step) = span.step_id().filter(|_| says[index] && !around) {
                let why = || Sayer::of_span(span).why_unknown(trace, workers.of_span(span.id()));
                flops.count(step, flops.totals[index], why);
            }
        }
        for (told, of_operation) in trace.operations().zip(operations) {
            let around = told.span().is_some_and(|span| counted[span.id().index()]);
            if let Some(step) = told.step_id().filter(|_| !around) {
                let why = || Sayer::of_operation(told).why_unknown(trace, workers.of_operation(told));
                flops.count(step, of_operation, why);
            }
        }
        flops
    }

    fn count(&mut self, step: StepId, flops: Flops, why_unknown: impl FnOnce() -> String) {
        self.steps[step.index()].add(&flops);
        if flops.unknown {
            self.unknown.get_or_insert_with(why_unknown);
        }
    }

    /// What a span comes to.
    pub(crate) fn of_span(&self, span: SpanId) -> Flops {
        self.totals.get(span.index()).copied().unwrap_or_default()
    }

    /// What the spans that began in a step come to, on all threads, and the operations asked for in it.
    pub(crate) fn of_step(&self, step: StepId) -> Flops {
        self.steps.get(step.index()).copied().unwrap_or_default()
    }

    /// Why the peak is not known for some of what steps come to.
    pub(crate) fn unknown(&self) -> Option<&str> {
        self.unknown.as_deref()
    }
}

/// What each of the operations that were told of comes to. There may be a million, which say the same again and again: so what they
/// say is looked at once, unless another GPU did it.
fn operation_flops(trace: &Trace, workers: &Workers) -> Vec<Flops> {
    let mut known: Vec<Option<(Option<DeviceId>, Flops)>> = vec![None; trace.operations.len()];
    let flops = |told: OperationCall<'_>| {
        let device = workers.of_operation(told);
        let known = &mut known[told.operation_id().index()];
        match *known {
            Some((by, flops)) if by == device => flops,
            _ => {
                let flops = Sayer::of_operation(told).flops(trace, || device).unwrap_or_default();
                *known = Some((device, flops));
                flops
            }
        }
    };
    trace.operations().map(flops).collect()
}

/// Whoever says how many floating-point operations were done: a span, or an operation that a framework was asked for.
struct Sayer<'a> {
    name: &'a str,
    op: OpFacts<'a>,
}

impl<'a> Sayer<'a> {
    fn of_span(span: Span<'a>) -> Self {
        Self { name: span.name(), op: span.fields().op() }
    }

    fn of_operation(told: OperationCall<'a>) -> Self {
        Self { name: told.name(), op: told.fields().op() }
    }

    /// What it says, if it says anything. `device` is the GPU that did it.
    fn flops(&self, trace: &Trace, device: impl FnOnce() -> Option<DeviceId>) -> Option<Flops> {
        let count = self.op.flops()?;
        let peak = || trace.device(device()?)?.peak_flops(self.dtype()?);
        Some(Flops::new(count, peak()))
    }

    /// The type that its operations are done with: what it says, or else the element type of `input`, if that is of floating-point
    /// numbers, or else of the first argument that is, or of the result, as tokens become numbers inside; if there are none, of the
    /// first argument.
    fn dtype(&self) -> Option<&'a str> {
        // f32, bf16, tf32.
        let is_float = |dtype: &&str| dtype.trim_start_matches(['b', 'B', 't', 'T']).starts_with(['f', 'F']);
        let inputs = || self.op.dtypes().map(|(_, dtype)| dtype);
        let input = self.op.dtypes().find_map(|(argument, dtype)| (argument == "input").then_some(dtype));
        let floats = input.into_iter().chain(inputs()).chain(self.op.output_dtype());
        self.op.compute().or_else(|| floats.into_iter().find(is_float)).or_else(|| inputs().next())
    }

    /// `peak of NVIDIA H200 for u32 not known`.
    fn why_unknown(&self, trace: &Trace, device: Option<DeviceId>) -> String {
        let Some(dtype) = self.dtype() else {
            return format!("no {}… with FLOPs of {}", convention::DTYPE, self.name.escape_debug());
        };
        let name = device.and_then(|id| trace.device(id)).map_or("the GPU", |device| &device.name);
        format!("peak of {name} for {} not known", dtype.escape_debug())
    }
}

#[cfg(test)]
mod tests {
    use super::SpanFlops;
    use crate::{
        report::{Average, Report, SortBy},
        trace::{
            DeviceId, Operation, SpanId, StepId, Stream, StreamId, Trace, Value, convention,
            sample::{gpu_trace, h200, operations_trace, say, say_flops, tell},
        },
    };
    use std::{sync::Arc, time::Duration};

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

    #[test]
    fn operations_count_for_their_span_as_nested_spans_do() {
        let mut trace = operations_trace();
        // Each step: 335 M in `forward`, 670 M + 8 in `backward`, and 8 more in `train_step`.
        assert_eq!(total_flops(&trace), [1_340_000_016, 670_000_000, 2_010_000_032]);
        assert_eq!(rows(&trace).map(|row| row.flops), [0; 3], "they are not the spans' own");
        let steps = |trace: &Trace| [0, 1].map(|step| SpanFlops::of(trace).of_step(StepId::new(step)).count);
        assert_eq!(steps(&trace), [1_005_000_016; 2]);
        // What says so itself is believed: of the first step, all but `forward`.
        say_flops(&mut trace, 2, 7, "f32");
        assert_eq!(total_flops(&trace)[0], 7 + 670_000_008);
        assert_eq!(steps(&trace), [335_000_000 + 7 + 8, 1_005_000_016]);
        say_flops(&mut trace, 0, 5, "f32");
        assert_eq!(steps(&trace), [5, 1_005_000_016]);
        assert_eq!(total_flops(&trace)[2], 5 + 1_005_000_016);
    }

    #[test]
    fn operations_of_no_span_count_for_their_step() {
        let mut trace = gpu_trace();
        let add = Arc::new(Operation::new("add").with("op.flops", 9_u64));
        tell(&mut trace, &[(&add, None, 0), (&add, None, 0)], &[]);
        trace.operation_calls[0].step = Some(StepId::new(1));
        let flops = SpanFlops::of(&trace);
        assert_eq!([0, 1].map(|step| flops.of_step(StepId::new(step)).count), [0, 9]);
        assert_eq!(flops.unknown(), Some("no op.dtype.… with FLOPs of add"));
        assert_eq!(total_flops(&trace), [0; 3]);
    }

    #[test]
    fn the_peak_is_that_of_the_gpu_that_did_the_operations() {
        let (mut trace, dtype) = (operations_trace(), |operation: Operation| operation.with("op.dtype.lhs", "f32"));
        let operations = trace.operations.iter().map(|operation| Arc::new(dtype(Operation::clone(operation))));
        trace.operations = operations.collect();
        // 5 of 20 µs, and 10 of 50 but for sixteen operations.
        assert_eq!(mfu(&trace), some(["20.000", "25.000", "20.270"]));
        let mut second = h200();
        (second.id, second.name) = (DeviceId::new(1), "NVIDIA H100 PCIe".to_owned());
        trace.devices.push(second);
        // Now the other did something for the second `forward`, too, but not for its batch.
        let stream = StreamId::new(trace.streams.len());
        trace.streams.push(Stream { device: DeviceId::new(1), ..trace.streams[0] });
        let mut copy = trace.work[0].clone();
        (copy.stream, copy.span, copy.call) = (stream, Some(SpanId::new(4)), None);
        trace.work.push(copy);
        let ideal = SpanFlops::of(&trace).of_span(SpanId::new(4)).ideal();
        assert_eq!(ideal, Some(Duration::from_micros(5)), "the batch says which one, where the span has two");
        trace.api_calls.iter_mut().for_each(|call| call.batch = None);
        assert_eq!(SpanFlops::of(&trace).of_span(SpanId::new(4)).ideal(), None);
    }
}
