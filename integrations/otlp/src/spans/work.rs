//! Kernels, copies and fills as spans.

use super::Window;
use crate::{
    attributes::{Attributes, name},
    gpu_totals::{GpuTotal, GpuTotals, short},
    ids::{IdKind, SpanKey, TraceId},
    placement::{ParentSpan, Placement},
    run_trace::StepTrace,
    span_writer::{ATTRIBUTES, Head, SpanWriter, link},
};
use kernspan::trace::{Detail, Span, SpanId, StepId, Timestamp, Work};
use rustc_hash::FxHashMap;
use std::{cmp::Reverse, collections::BTreeMap};

/// How many operations of a kernel are named, and how many links it has to the spans that requested them.
const MOST_LINKS: usize = 32;

impl Window<'_> {
    /// Writes a span for each piece of work, as a child of the span that launched it.
    pub(super) fn write_work(&self, writer: &mut SpanWriter<'_>) {
        // The work of a step may be in several traces: its own, and those of another layer.
        let mut traces: Vec<(Option<StepId>, TraceId, Vec<Work<'_>>)> = Vec::new();
        let mut known: FxHashMap<(Option<StepId>, TraceId), usize> = FxHashMap::default();
        for work in self.trace.work() {
            let Some(ParentSpan { trace, .. }) = self.placements.sent_work(work) else { continue };
            let step = work.step_id();
            let place = *known.entry((step, trace)).or_insert_with(|| {
                traces.push((step, trace, Vec::new()));
                traces.len() - 1
            });
            traces[place].2.push(work);
        }
        traces.sort_by_key(|(step, ..)| *step);
        for (place, (step, trace, mut work)) in traces.into_iter().enumerate() {
            let folded = if work.len() > self.options.most_work {
                work.sort_by_key(|work| (Reverse(work.duration()), work.id()));
                work.split_off(self.options.most_work)
            } else {
                Vec::new()
            };
            work.into_iter().for_each(|work| self.write_piece(work, writer));
            let ids = self.placements.ids_of(step);
            let (id, root) = if trace == ids.trace {
                (ids.trace.span(IdKind::Folded, 0), Some(ids.root))
            } else {
                let outermost = folded.first().and_then(|&work| self.outermost(work, trace));
                (ids.trace.span(IdKind::Folded, 1 + place as u64), outermost)
            };
            self.write_folded((trace, id, root), folded, writer);
        }
    }

    /// The outermost span around a piece of work in a trace of another layer.
    fn outermost(&self, work: Work<'_>, of: TraceId) -> Option<SpanKey> {
        let keys = work.span()?.stack().filter_map(|span| match self.placements.of(span) {
            Some(Placement::Foreign(trace, key)) if trace == of => Some(key),
            _ => None,
        });
        keys.last()
    }

    fn write_piece(&self, work: Work<'_>, writer: &mut SpanWriter<'_>) {
        let Some(parent) = self.placements.sent_work(work) else { return };
        let ParentSpan { trace, span: parent, other_step } = parent;
        let text;
        let name = match work.kernel() {
            Some(kernel) => short(&kernel.name),
            None => {
                text = work.name().to_string();
                &text
            }
        };
        let id = self.placements.ids_of(work.step_id()).trace.span(IdKind::Work, work.id().index() as u64);
        let head = Head { trace, id, parent: Some(parent), name, start: work.start(), end: work.end() };
        writer.span(head, |out| {
            let mut attributes = Attributes::new(out, ATTRIBUTES);
            self.write_work_attributes(work, &mut attributes);
            if let Some((trace, key)) = other_step {
                link(out, trace, key, "parent");
            }
            // Other spans may have requested operations that were fused into it.
            let others = work.spans().filter(|other| work.span().is_none_or(|own| own.id() != other.id()));
            for placement in others.filter_map(|other| self.placements.of(other)).take(MOST_LINKS) {
                match placement {
                    Placement::Step(StepTrace { trace, .. }, key) | Placement::Foreign(trace, key) => {
                        link(out, trace, key, "operation");
                    }
                    Placement::Unsampled => {}
                }
            }
        });
    }

    /// Writes a span for all GPU work of each span that another layer sends, since attributes cannot be added to that
    /// one.
    pub(super) fn write_gpu_totals(&self, writer: &mut SpanWriter<'_>) {
        if !self.placements.has_foreign() {
            return;
        }
        // All instances of a span are one span of the other layer: their work is added to the first of them.
        let mut first: FxHashMap<(TraceId, SpanKey), Span<'_>> = FxHashMap::default();
        let mut times: BTreeMap<SpanId, (Timestamp, Timestamp)> = BTreeMap::new();
        for span in self.trace.spans().filter(|&span| self.placements.context_of(span).is_some()) {
            if let Some(Placement::Foreign(trace, key)) = self.placements.of(span) {
                first.entry((trace, key)).or_insert(span);
            }
        }
        let owner = |work| match self.placements.of(self.placements.owner_of(work)?)? {
            // `None` for a span that this exporter sends into the foreign trace: it has its own attributes.
            Placement::Foreign(trace, key) => first.get(&(trace, key)).map(|span| span.id()),
            _ => None,
        };
        for work in self.trace.work() {
            let Some(span) = owner(work) else { continue };
            let (start, end) = times.entry(span).or_insert((work.start(), work.end()));
            (*start, *end) = ((*start).min(work.start()), (*end).max(work.end()));
        }
        let totals = GpuTotals::by_owner(self.trace, owner);
        for (id, (start, end)) in times {
            let span = self.trace.span(id);
            let Some(Placement::Foreign(trace, parent)) = self.placements.of(span) else { continue };
            let key = self.placements.ids_of(span.step_id()).trace.span(IdKind::Gpu, id.index() as u64);
            writer.span(Head { trace, id: key, parent: Some(parent), name: "gpu", start, end }, |out| {
                totals.write(id, &mut Attributes::new(out, ATTRIBUTES));
            });
        }
    }

    fn write_work_attributes(&self, work: Work<'_>, attributes: &mut Attributes<'_>) {
        attributes.number(name::GPU_START, work.start().as_unix_nanos());
        attributes.number(name::GPU_DURATION, work.duration().as_nanos());
        match work.detail() {
            Detail::Kernel(kernel) => {
                attributes
                    .text(name::KERNEL, &kernel.name)
                    .numbers(name::GRID, kernel.grid)
                    .numbers(name::BLOCK, kernel.block);
            }
            Detail::Copy(copy) => {
                attributes.text(name::COPY_KIND, copy.direction.as_str()).number(name::COPY_BYTES, copy.bytes);
            }
            Detail::Fill(fill) => {
                attributes.number(name::FILL_BYTES, fill.bytes);
            }
            // Work of a kind that this release does not know has a name and a time.
            _ => {}
        }
        let stream = work.stream();
        attributes.number(name::DEVICE, stream.device().as_u32()).number(name::STREAM, stream.number());
        attributes.number(name::CONTEXT, stream.context()).number(name::CORRELATION, work.correlation());
        if let Some(graph) = work.graph() {
            attributes.number(name::GRAPH, graph.graph);
        }
        if let Some(device) = self.trace.device(stream.device()).filter(|device| !device.uuid.is_empty()) {
            attributes.text(name::HARDWARE, &device.uuid);
        }
        attributes.text(name::ATTRIBUTION, work.attribution().as_str());
        if work.operations().len() > 0 {
            attributes.texts(name::OPERATIONS, work.operations().take(MOST_LINKS).map(|call| call.operation().name()));
        }
    }

    /// Writes one span that counts the work without its own span.
    fn write_folded(
        &self,
        (trace, id, parent): (TraceId, SpanKey, Option<SpanKey>),
        mut folded: Vec<Work<'_>>,
        writer: &mut SpanWriter<'_>,
    ) {
        folded.sort_by_key(|work| work.start());
        let (Some(first), Some(last)) = (folded.first(), folded.iter().map(|work| work.end()).max()) else { return };
        let mut total = GpuTotal::default();
        folded.iter().for_each(|&work| total.add(work));
        let name = format!("{} shorter kernels and copies", folded.len());
        let head = Head { trace, id, parent, name: &name, start: first.start(), end: last };
        writer.span(head, |out| {
            let mut attributes = Attributes::new(out, ATTRIBUTES);
            attributes.number(name::FOLDED, folded.len() as u64);
            total.write_folded(&mut attributes);
        });
    }
}
