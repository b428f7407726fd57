//! Floating-point operations: those of spans and steps, and the time they take at the peak of the GPU that did them.

use crate::trace::{DeviceId, OpFacts, OperationCall, Span, SpanId, StepId, Trace, convention};
use std::time::Duration;

/// A number of floating-point operations, and the time that GPUs take for them at their peak.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Flops {
    pub(crate) count: u64,
    /// The time at the peak in seconds. It is not rounded, as small operations take less than a nanosecond.
    ideal_seconds: f64,
    /// Whether the peak is not known for some of the operations.
    peak_unknown: bool,
}

impl Flops {
    /// Returns operations that a GPU does at `peak` per second, if that is known.
    pub(super) fn new(count: u64, peak: Option<f64>) -> Self {
        let ideal_seconds = peak.map_or(0.0, |peak| count as f64 / peak);
        Self { count, ideal_seconds, peak_unknown: count > 0 && peak.is_none() }
    }

    /// Adds other operations.
    pub(crate) fn add(&mut self, other: &Self) {
        self.count = self.count.saturating_add(other.count);
        self.ideal_seconds += other.ideal_seconds;
        self.peak_unknown |= other.peak_unknown;
    }

    /// Returns whether the peak is not known for some of the operations.
    pub(super) fn is_peak_unknown(&self) -> bool {
        self.peak_unknown
    }

    /// Returns the time that the operations take at the peak, if that is known for all of them.
    pub(crate) fn ideal(&self) -> Option<Duration> {
        Duration::try_from_secs_f64(self.ideal_seconds).ok().filter(|_| !self.peak_unknown)
    }

    /// Returns the operations per second, or `None` if there are none or `time` is zero.
    pub(crate) fn per_second(&self, time: Duration) -> Option<f64> {
        (self.count > 0 && !time.is_zero()).then(|| self.count as f64 / time.as_secs_f64())
    }

    /// Returns the time at the peak in percent of `time`, or `None` if that is not known.
    pub(crate) fn percent_of_peak(&self, time: Duration) -> Option<f64> {
        let known = self.count > 0 && !self.peak_unknown && !time.is_zero();
        let percent = 100.0 * self.ideal_seconds / time.as_secs_f64();
        (known && percent <= Self::MOST_PERCENT).then(|| percent.min(100.0))
    }

    /// More than this part of the peak is not rounding: spans state operations that were not done, or another type.
    pub(super) const MOST_PERCENT: f64 = 105.0;
}

/// The floating-point operations of each span and each step of a trace.
///
/// If a span states its number of operations, that number counts. Otherwise, it is the sum over everything nested in
/// the span: other spans, and calls of operations that frameworks were asked for in it.
#[derive(Debug, Default)]
pub(crate) struct SpanFlops {
    /// The operations of each span; empty if nothing in the trace states any.
    spans: Vec<Flops>,
    steps: Vec<Flops>,
    peak_unknown: Option<String>,
}

impl SpanFlops {
    /// Adds up the operations of a trace.
    pub(crate) fn of(trace: &Trace) -> Self {
        let stated_by_spans =
            trace.callsites().iter().any(|site| site.field_names().any(|name| name == convention::FLOPS));
        if !stated_by_spans && !trace.operations.iter().any(|operation| operation.fields().op().flops().is_some()) {
            return Self::default();
        }
        let devices = SpanDevices::of(trace);
        let calls = call_flops(trace, &devices);
        let (spans, stated) = span_flops(trace, &devices, &calls);
        let mut flops = Self { spans, steps: vec![Flops::default(); trace.steps().len()], peak_unknown: None };
        // From the outside in: whatever is nested in a span that states a number does not count. A span counts for the
        // step it began in, whatever is around it, as an epoch is around many steps.
        let mut counted = vec![false; stated.len()];
        for (index, span) in trace.spans().enumerate() {
            let nested = span.parent().is_some_and(|parent| counted[parent.id().index()]);
            counted[index] = nested || stated[index];
            if let Some(step) = span.step_id().filter(|_| stated[index] && !nested) {
                let reason = || Stated::by_span(span).why_peak_unknown(trace, devices.of_span(span.id()));
                flops.add_to_step(step, flops.spans[index], reason);
            }
        }
        for (call, of_call) in trace.operations().zip(calls) {
            let nested = call.span().is_some_and(|span| counted[span.id().index()]);
            if let Some(step) = call.step_id().filter(|_| !nested) {
                let reason = || Stated::by_call(call).why_peak_unknown(trace, devices.of_call(call));
                flops.add_to_step(step, of_call, reason);
            }
        }
        flops
    }

    fn add_to_step(&mut self, step: StepId, flops: Flops, why_peak_unknown: impl FnOnce() -> String) {
        self.steps[step.index()].add(&flops);
        if flops.is_peak_unknown() {
            self.peak_unknown.get_or_insert_with(why_peak_unknown);
        }
    }

    /// Returns the operations of a span.
    pub(crate) fn of_span(&self, span: SpanId) -> Flops {
        self.spans.get(span.index()).copied().unwrap_or_default()
    }

    /// Returns the operations of a step: of the spans that began in it, on all threads, and of the calls made in it.
    pub(crate) fn of_step(&self, step: StepId) -> Flops {
        self.steps.get(step.index()).copied().unwrap_or_default()
    }

    /// Returns the reason why the peak is not known for some operations of the steps, if there are such.
    pub(crate) fn why_peak_unknown(&self) -> Option<&str> {
        self.peak_unknown.as_deref()
    }
}

/// Returns the operations of each span, and whether the span states them itself. `calls` has those of each call.
fn span_flops(trace: &Trace, devices: &SpanDevices, calls: &[Flops]) -> (Vec<Flops>, Vec<bool>) {
    let mut spans = vec![Flops::default(); trace.spans().len()];
    let mut stated = vec![false; spans.len()];
    for (call, flops) in trace.operations().zip(calls) {
        if let Some(span) = call.span() {
            spans[span.id().index()].add(flops);
        }
    }
    // From the inside out: once a span is reached, everything nested in it has been added to it.
    for index in (0..spans.len()).rev() {
        let span = trace.span(SpanId::new(index));
        if let Some(flops) = Stated::by_span(span).flops(trace, devices.f32_type, || devices.of_span(span.id())) {
            spans[index] = flops;
            stated[index] = true;
        }
        if let Some(parent) = span.parent() {
            let flops = spans[index];
            spans[parent.id().index()].add(&flops);
        }
    }
    (spans, stated)
}

/// Returns the operations of each call.
///
/// There may be a million calls, but few different operations. So the fields of an operation are read again only if the
/// GPU is another than for the call before.
fn call_flops(trace: &Trace, devices: &SpanDevices) -> Vec<Flops> {
    let mut known: Vec<Option<(Option<DeviceId>, Flops)>> = vec![None; trace.operations.len()];
    let flops = |call: OperationCall<'_>| {
        let device = devices.of_call(call);
        let known = &mut known[call.operation_id().index()];
        match *known {
            Some((by, flops)) if by == device => flops,
            _ => {
                let flops = Stated::by_call(call).flops(trace, devices.f32_type, || device).unwrap_or_default();
                *known = Some((device, flops));
                flops
            }
        }
    };
    trace.operations().map(flops).collect()
}

/// The fields of a span or of an operation, as far as they state floating-point operations.
struct Stated<'a> {
    name: &'a str,
    op: OpFacts<'a>,
}

impl<'a> Stated<'a> {
    fn by_span(span: Span<'a>) -> Self {
        Self { name: span.name(), op: span.fields().op() }
    }

    fn by_call(call: OperationCall<'a>) -> Self {
        Self { name: call.name(), op: call.fields().op() }
    }

    /// Returns the operations, if any are stated. `f32_type` is the type that libraries use for `f32`, and `device`
    /// returns the GPU that did them.
    fn flops(&self, trace: &Trace, f32_type: &str, device: impl FnOnce() -> Option<DeviceId>) -> Option<Flops> {
        let count = self.op.flops()?;
        let peak = || {
            let (device, dtype) = (trace.device(device()?)?, self.dtype()?);
            let is_f32 = self.op.compute().is_none() && matches!(dtype, "f32" | "float32");
            let of_library = is_f32.then(|| device.peak_flops(f32_type)).flatten();
            of_library.or_else(|| device.peak_flops(dtype))
        };
        Some(Flops::new(count, peak()))
    }

    /// Returns the element type that the operations are done with: the first of these that is stated.
    ///
    /// 1. The type of the computation.
    /// 2. The type of the argument `input`, if that is a floating-point type.
    /// 3. The type of the first argument that has a floating-point type.
    /// 4. The type of the result, if that is a floating-point type, as for an embedding of tokens.
    /// 5. The type of the first argument.
    fn dtype(&self) -> Option<&'a str> {
        // f32, bf16, tf32.
        let is_float = |dtype: &&str| dtype.trim_start_matches(['b', 'B', 't', 'T']).starts_with(['f', 'F']);
        let arguments = || self.op.dtypes().map(|(_, dtype)| dtype);
        let input = self.op.dtypes().find_map(|(argument, dtype)| (argument == "input").then_some(dtype));
        let floats = input.into_iter().chain(arguments()).chain(self.op.output_dtype());
        self.op.compute().or_else(|| floats.into_iter().find(is_float)).or_else(|| arguments().next())
    }

    /// Returns the reason why the peak is not known, such as `peak of NVIDIA H200 for u32 not known`.
    fn why_peak_unknown(&self, trace: &Trace, device: Option<DeviceId>) -> String {
        let Some(dtype) = self.dtype() else {
            return format!("no {}… with FLOPs of {}", convention::DTYPE, self.name.escape_debug());
        };
        let name = device.and_then(|id| trace.device(id)).map_or("the GPU", |device| &device.name);
        format!("peak of {name} for {} not known", dtype.escape_debug())
    }
}

/// The GPUs that worked for each span of a trace and those nested in it, and for each batch of operations.
struct SpanDevices {
    all: Devices,
    spans: Vec<Devices>,
    batches: Vec<Devices>,
    /// The type that libraries use to multiply `f32`: `tf32` if any kernel does.
    f32_type: &'static str,
}

/// No GPU, one, or several.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
enum Devices {
    #[default]
    None,
    One(DeviceId),
    Several,
}

impl Devices {
    fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::None, one) | (one, Self::None) => one,
            (one, other) if one == other => one,
            _ => Self::Several,
        }
    }
}

/// Whether a kernel multiplies `f32` on tensor cores, by the names of cuBLAS and CUTLASS.
fn is_tf32(kernel: &str) -> bool {
    kernel.contains("tf32") || kernel.contains("tensorop_s1688")
}

impl SpanDevices {
    /// Finds the GPUs of a trace's work.
    fn of(trace: &Trace) -> Self {
        let (spans, batches) = (vec![Devices::None; trace.spans().len()], vec![Devices::None; trace.batches.len()]);
        let uses_tf32 = trace.work().any(|work| work.kernel().is_some_and(|kernel| is_tf32(&kernel.name)));
        let f32_type = if uses_tf32 { "tf32" } else { "f32" };
        let mut devices = Self { all: Devices::None, spans, batches, f32_type };
        for work in trace.work() {
            let device = Devices::One(work.stream().device());
            let span = work.span().map(|span| &mut devices.spans[span.id().index()]);
            let batch = work.batch_id().and_then(|batch| devices.batches.get_mut(batch.index()));
            for seen in [Some(&mut devices.all), span, batch].into_iter().flatten() {
                *seen = seen.and(device);
            }
        }
        for span in (0..devices.spans.len()).rev() {
            if let Some(parent) = trace.span(SpanId::new(span)).parent() {
                let parent = parent.id().index();
                devices.spans[parent] = devices.spans[parent].and(devices.spans[span]);
            }
        }
        devices
    }

    /// Returns the only GPU that worked for a span, or that worked at all if none worked for the span.
    fn of_span(&self, span: SpanId) -> Option<DeviceId> {
        self.only(self.spans[span.index()])
    }

    /// Returns the only GPU that worked for the batch of a call, or for its span if none worked for the batch.
    fn of_call(&self, call: OperationCall<'_>) -> Option<DeviceId> {
        let of_batch = call.batch_id().map_or(Devices::None, |batch| self.batches[batch.index()]);
        match (of_batch, call.span()) {
            (Devices::None, Some(span)) => self.of_span(span.id()),
            (of_batch, _) => self.only(of_batch),
        }
    }

    fn only(&self, devices: Devices) -> Option<DeviceId> {
        match (devices, self.all) {
            (Devices::One(device), _) | (Devices::None, Devices::One(device)) => Some(device),
            _ => None,
        }
    }
}
