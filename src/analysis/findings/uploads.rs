//! Copies of the same bytes to the GPU in each step.

use super::{
    super::{
        finding::FindingKind,
        kinds::is_launch,
        simulation::Costs,
        sorted::{SortedMap, SortedSet},
    },
    copies,
    window::{Candidate, Window, total},
    words::{self, owner},
};
use crate::trace::{CallsiteId, Detail, Direction, MemoryCopy, Span, SpanId, StepId};

/// The least bytes of a copy that is worth keeping on the GPU.
const LARGE: u64 = 1 << 20;

/// Copies of the same size at one place.
struct Uploads {
    span: SpanId,
    /// Their tasks and items.
    copies: Vec<(usize, usize)>,
    steps: SortedSet<StepId>,
}

/// Finds large copies to the GPU that are made in each step, with the same size and at the same place, and are not the
/// step's input.
///
/// A trace does not have the bytes. So a copy counts only if it is in a span of its own, which is not part of the input
/// pipeline, in a program whose input is known: there are copies in spans of the input pipeline, too.
pub(super) fn same_bytes_again(window: &Window<'_>) -> Vec<Candidate> {
    let trace = window.trace();
    let is_upload = |copy: &MemoryCopy| copy.direction == Direction::HostToDevice;
    let uploads: Vec<_> = window
        .tasks()
        .filter_map(|(index, task, work)| match work.detail() {
            Detail::Copy(copy) if is_upload(copy) => Some((index, task.item?, copy.bytes, work)),
            _ => None,
        })
        .collect();
    if !uploads.iter().any(|(_, _, _, work)| window.input_of(work.span().map(Span::id)).is_some()) {
        return Vec::new();
    }
    // By the path of spans and the number of bytes.
    let mut places: SortedMap<(Vec<CallsiteId>, u64), Uploads> = SortedMap::default();
    for &(task, item, bytes, work) in uploads.iter().filter(|(_, _, bytes, _)| *bytes >= LARGE) {
        let Some(span) = work.span().filter(|span| window.input_of(Some(span.id())).is_none()) else { continue };
        let path = span.stack().map(Span::callsite_id).collect();
        let new = || Uploads { span: span.id(), copies: Vec::new(), steps: SortedSet::default() };
        let place = places.or_insert_with((path, bytes), new);
        place.copies.push((task, item));
        place.steps.extend(work.step_id());
    }
    let in_each_step = places.into_iter().filter(|(_, place)| place.steps.len() == window.count());
    let mut candidates = Vec::new();
    for ((_, bytes), Uploads { span, copies: uploads, .. }) in in_each_step {
        let gpu = total(uploads.iter().map(|&(task, _)| {
            let task = &window.simulation.tasks[task];
            task.end.since(task.start).as_nanos() as u64
        }));
        let host = total(uploads.iter().map(|&(_, item)| window.simulation.items[item].nanos()));
        if window.is_negligible(gpu.max(host)) {
            continue;
        }
        let mut costs = window.costs();
        for &(task, item) in &uploads {
            costs.remove_task(task);
            costs.set_item(item, 0);
            // Memory is allocated for the copy before it.
            remove_gap(window, &mut costs, item, span);
            let staging = window.copy_of(item).and_then(|copy| copies::staging(window, item, copy));
            staging.into_iter().for_each(|gap| costs.set_item(gap, 0));
        }
        // Host work in the user's span of the copy only makes the bytes, unless that span launches kernels, too.
        let least = costs.clone();
        let place_of = |item: usize| owner(trace, window.simulation.items[item].span);
        let place = uploads.first().and_then(|&(_, item)| place_of(item)).map(|id| trace.span(id).callsite_id());
        let is_there = |item: usize| place.is_some() && place_of(item).map(|id| trace.span(id).callsite_id()) == place;
        let launches = window.calls().any(|(item, _, call)| is_launch(call) && is_there(item));
        if !launches {
            let there: Vec<usize> = window.items().map(|(item, _)| item).filter(|&item| is_there(item)).collect();
            there.into_iter().for_each(|item| costs.set_item(item, 0));
        }
        let often = words::times(uploads.len(), window.count());
        let place = words::place(trace, Some(span));
        let items: Vec<usize> = uploads.iter().map(|&(_, item)| item).collect();
        candidates.push(Candidate {
            title: format!(
                "{} are copied to the GPU {often} in each step, in {place}, and are not its input",
                words::bytes(bytes)
            ),
            span: Some(span),
            evidence: vec![
                format!(
                    "The copies take {} of a step on the GPU, and {} on the host.",
                    words::nanos(window.per_step(gpu)),
                    words::nanos(window.per_step(host))
                ),
                "Assumes that the bytes are the same each time: place and size are, the trace does not have the bytes."
                    .to_owned(),
            ],
            ranges: window.item_ranges(&items),
            least: Some(least),
            ..Candidate::new(FindingKind::SameBytesAgain, costs)
        });
    }
    candidates
}

/// Removes the time of the host in a span around one of its items.
fn remove_gap(window: &Window<'_>, costs: &mut Costs, item: usize, span: SpanId) {
    for near in [item.wrapping_sub(1), item + 1] {
        let gap = window.simulation.items.get(near);
        if gap.is_some_and(|gap| gap.call.is_none() && !gap.waited() && gap.span == Some(span)) {
            costs.set_item(near, 0);
        }
    }
}
