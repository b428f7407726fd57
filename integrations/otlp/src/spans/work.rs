//! What GPUs did, as spans.

use super::{
    super::{
        attributes::{Attributes, name},
        gpu::{GpuPart, GpuParts, short},
        ids::{Of, SpanKey, TraceId},
        places::{Inside, Place},
        run_trace::StepTrace,
        span_writer::{ATTRIBUTES, Head, SpanWriter, link},
    },
    Window,
};
use crate::trace::{Detail, Span, SpanId, StepId, Timestamp, Work};
use rustc_hash::FxHashMap;
use std::{cmp::Reverse, collections::BTreeMap};

/// Operations of a kernel that are told of, and spans that asked for them.
const MOST_LINKS: usize = 32;

impl Window<'_> {
    /// A span for each piece of work, in the span that was open when it was launched.
    pub(super) fn write_work(&self, writer: &mut SpanWriter<'_>) {
        // A step is in its own trace, and may be in those of others.
        let mut traces: Vec<(Option<StepId>, TraceId, Vec<Work<'_>>)> = Vec::new();
        let mut known: FxHashMap<(Option<StepId>, TraceId), usize> = FxHashMap::default();
        for work in self.trace.work() {
            let Some(Inside { trace, .. }) = self.places.sent_work(work) else { continue };
            let step = work.step_id();
            let place = *known.entry((step, trace)).or_insert_with(|| {
                traces.push((step, trace, Vec::new()));
                traces.len() - 1
            });
            traces[place].2.push(work);
        }
        traces.sort_by_key(|(step, ..)| *step);
        for (place, (step, trace, mut work)) in traces.into_iter().enumerate() {
            let folded = if work.len() > self.detailing.most_work {
                // What took longest is what is looked for.
                work.sort_by_key(|work| (Reverse(work.duration()), work.id()));
                work.split_off(self.detailing.most_work)
            } else {
                Vec::new()
            };
            work.into_iter().for_each(|work| self.write_piece(work, writer));
            let ids = self.places.ids_of(step);
            let (id, root) = if trace == ids.trace {
                (ids.trace.span(Of::Folded, 0), Some(ids.root))
            } else {
                (
                    ids.trace.span(Of::Folded, 1 + place as u64),
                    folded.first().and_then(|&work| self.outermost(work, trace)),
                )
            };
            self.write_folded((trace, id, root), folded, writer);
        }
    }

    /// The outermost span around a piece of work in another's trace.
    fn outermost(&self, work: Work<'_>, of: TraceId) -> Option<SpanKey> {
        let keys = work.span()?.stack().filter_map(|span| match self.places.of(span) {
            Some(Place::Foreign(trace, key)) if trace == of => Some(key),
            _ => None,
        });
        keys.last()
    }

    fn write_piece(&self, work: Work<'_>, writer: &mut SpanWriter<'_>) {
        let Some(Inside { trace, parent, outside }) = self.places.sent_work(work) else { return };
        let text;
        let name = match work.kernel() {
            Some(kernel) => short(&kernel.name),
            None => {
                text = work.name().to_string();
                &text
            }
        };
        let id = self.places.ids_of(work.step_id()).trace.span(Of::Work, work.id().index() as u64);
        let head = Head { trace, id, parent: Some(parent), name, start: work.start(), end: work.end() };
        writer.span(head, |out| {
            let mut attributes = Attributes::new(out, ATTRIBUTES);
            self.write_work_attributes(work, &mut attributes);
            if let Some((trace, key)) = outside {
                link(out, trace, key, "parent");
            }
            // Those that asked for a part of what was fused into it.
            let others = work.spans().filter(|other| work.span().is_none_or(|own| own.id() != other.id()));
            for place in others.filter_map(|other| self.places.of(other)).take(MOST_LINKS) {
                match place {
                    Place::Home(StepTrace { trace, .. }, key) | Place::Foreign(trace, key) => {
                        link(out, trace, key, "operation");
                    }
                    Place::Unsampled => {}
                }
            }
        });
    }

    /// A span for all that GPUs did for one that another sends, as nothing can be said on that.
    pub(super) fn write_gpu_parts(&self, writer: &mut SpanWriter<'_>) {
        if !self.places.has_foreign() {
            return;
        }
        // All instances of a span are the same one there.
        let mut first: FxHashMap<(TraceId, SpanKey), Span<'_>> = FxHashMap::default();
        let mut parts: BTreeMap<SpanId, (Timestamp, Timestamp)> = BTreeMap::new();
        for span in self.trace.spans().filter(|span| span.context().is_some()) {
            if let Some(Place::Foreign(trace, key)) = self.places.of(span) {
                first.entry((trace, key)).or_insert(span);
            }
        }
        let owner = |work| match self.places.of(self.places.owner_of(work)?)? {
            // Not of one that we send into the other's trace.
            Place::Foreign(trace, key) => first.get(&(trace, key)).map(|span| span.id()),
            _ => None,
        };
        for work in self.trace.work() {
            let Some(span) = owner(work) else { continue };
            let (start, end) = parts.entry(span).or_insert((work.start(), work.end()));
            (*start, *end) = ((*start).min(work.start()), (*end).max(work.end()));
        }
        let gpu = GpuParts::for_spans(self.trace, owner);
        for (id, (start, end)) in parts {
            let span = self.trace.span(id);
            let Some(Place::Foreign(trace, parent)) = self.places.of(span) else { continue };
            let key = self.places.ids_of(span.step_id()).trace.span(Of::Gpu, id.index() as u64);
            writer.span(Head { trace, id: key, parent: Some(parent), name: "gpu", start, end }, |out| {
                gpu.write(id, &mut Attributes::new(out, ATTRIBUTES));
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

    /// One span for all that is too much.
    fn write_folded(
        &self,
        (trace, id, parent): (TraceId, SpanKey, Option<SpanKey>),
        mut folded: Vec<Work<'_>>,
        writer: &mut SpanWriter<'_>,
    ) {
        folded.sort_by_key(|work| work.start());
        let (Some(first), Some(last)) = (folded.first(), folded.iter().map(|work| work.end()).max()) else { return };
        let mut part = GpuPart::default();
        folded.iter().for_each(|&work| part.add(work));
        let name = format!("{} shorter kernels and copies", folded.len());
        let head = Head { trace, id, parent, name: &name, start: first.start(), end: last };
        writer.span(head, |out| {
            let mut attributes = Attributes::new(out, ATTRIBUTES);
            attributes.number(name::FOLDED, folded.len() as u64);
            part.write_folded(&mut attributes);
        });
    }
}
