//! The floating-point operations of spans and steps.

use super::{flops::Flops, span_devices::SpanDevices};
use crate::trace::{DeviceId, OpFacts, OperationCall, Span, SpanId, StepId, Trace, convention};

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
        if let Some(flops) = Stated::by_span(span).flops(trace, || devices.of_span(span.id())) {
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
                let flops = Stated::by_call(call).flops(trace, || device).unwrap_or_default();
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

    /// Returns the operations, if any are stated. `device` returns the GPU that did them.
    fn flops(&self, trace: &Trace, device: impl FnOnce() -> Option<DeviceId>) -> Option<Flops> {
        let count = self.op.flops()?;
        let peak = || trace.device(device()?)?.peak_flops(self.dtype()?);
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
