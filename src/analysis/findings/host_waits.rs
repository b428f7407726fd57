//! The steps' thread waits: for a lock, for another thread, or for time to pass.
//!
//! That it waits is known from the CPU time of spans and from sampled waits, where they were recorded. Otherwise, the
//! names of spans have to do.

use super::{
    super::{
        finding::FindingKind,
        intervals::{Interval, Intervals},
        sorted::SortedMap,
    },
    off_cpu::OffCpu,
    waits_for::WaitsFor,
    window::{Candidate, SpanGroup, Window, total},
    words,
};
use crate::{
    trace::{CallsiteId, Span, StepId, Timestamp},
    units,
};
use std::time::Duration;

/// The part of a step that is spent waiting at the least: threads that hand work to each other always wait a little.
pub(super) const LEAST_SHARE: f64 = 0.05;
/// The part of its own time that a span is off the CPU at the least to count as waiting, if only CPU time says so: on a
/// busy machine, a thread that computes is off its CPU, too. With twenty threads that were ready to run on two CPUs,
/// one that computed had a CPU for 28 to 49 % of the time, and threads that slept, wrote to a disk or waited for a lock
/// for 0.2 to 6.4 %.
pub(super) const LEAST_OFF_CPU: f64 = 0.9;

/// Threads whose CPU time is this part of a wait may be what it waits for: a busy machine does not let them run for all
/// of the time.
const MOST_WORKED: f64 = 0.25;

/// How the steps' thread waits in spans of one callsite.
struct Reason {
    /// `None` if it is not known what it waits for.
    kind: Option<WaitsFor>,
    /// Whether it was measured that the thread does not run, as opposed to a name that says so.
    is_measured: bool,
}

/// A part of a step in which the steps' thread waits.
#[derive(Clone, Copy)]
struct Wait {
    item: usize,
    waited: u64,
    /// The nanoseconds that would be saved.
    saved: u64,
}

/// The spans of a window in which the steps' thread may wait, and what others do meanwhile.
struct Waits<'a, 'w> {
    window: &'w Window<'a>,
    off_cpu: &'w OffCpu<'a>,
    /// The spans of other threads that do not wait, and when any of these is open.
    others: Vec<Span<'a>>,
    busy: Intervals,
}

/// Finds spans in which the steps' thread waits.
///
/// All time in a span that waits for a lock or sleeps counts. Of one that waits for another thread, or for something
/// that is not known, only the time counts in which no other thread works, as else somebody may do what it waits for.
/// If nothing is known of what others do, only waits that were measured count.
pub(super) fn host_wait(window: &Window<'_>) -> Vec<Candidate> {
    let waits = Waits::of(window);
    let own = window.items().filter(|(_, item)| item.thread == window.thread && window.input_of(item.span).is_none());
    let groups =
        window.groups(own.filter(|(_, item)| item.span.is_some()).map(|(id, item)| (id, item.span, item.nanos())));
    groups.iter().filter_map(|group| waits.candidate(group)).collect()
}

impl<'a, 'w> Waits<'a, 'w> {
    fn of(window: &'w Window<'a>) -> Self {
        let trace = window.trace();
        let is_other = |span: &Span<'_>| span.track().thread() != window.thread && WaitsFor::of(*span).is_none();
        let others: Vec<_> = trace.spans().filter(is_other).collect();
        let interval = |span: &Span<'_>| Interval { start: span.start(), end: span.end(), requested: None };
        let busy = Intervals::new(others.iter().map(interval).collect());
        Self { window, off_cpu: &window.off_cpu, others, busy }
    }

    /// Returns how the thread waits in spans of this callsite.
    fn reason(&self, span: Span<'_>) -> Option<Reason> {
        match WaitsFor::of(span) {
            Some(kind) if kind != WaitsFor::Other || !self.others.is_empty() => {
                Some(Reason { kind: Some(kind), is_measured: false })
            }
            None if WaitsFor::is_denied(span) => None,
            _ => {
                let kind = self.off_cpu.stack(span.callsite_id()).map(|stack| stack.kind);
                Some(Reason { kind, is_measured: true })
            }
        }
    }

    /// Returns the waits in the items of a group.
    fn in_group(&self, group: &SpanGroup, reason: &Reason) -> Vec<Wait> {
        let trace = self.window.trace();
        let mut waits = Vec::new();
        for &index in &group.members {
            let item = &self.window.simulation.items[index];
            let waited = match item.span.filter(|_| reason.is_measured) {
                Some(span) => part(item.nanos(), self.off_cpu.waiting_share(trace.span(span))),
                None => item.nanos(),
            };
            let others = self.busy.covered(item.start, item.end);
            let others = others.max(self.off_cpu.others_ran(item.start, item.end).unwrap_or_default());
            let idle = 1.0 - others.as_nanos() as f64 / item.nanos().max(1) as f64;
            let saved = match reason.kind {
                Some(WaitsFor::Lock | WaitsFor::Sleep) => waited,
                // Its threads work, or have no CPU. Short ones may not be sampled at all.
                Some(WaitsFor::Pool) => 0,
                Some(WaitsFor::Other) | None => part(waited, idle),
            };
            waits.push(Wait { item: index, waited, saved });
        }
        if reason.is_measured && !matches!(reason.kind, Some(WaitsFor::Lock | WaitsFor::Sleep)) {
            self.leave_to_others(&mut waits);
        }
        waits
    }

    /// Leaves out what others may have done meanwhile, by their CPU time in the step.
    fn leave_to_others(&self, waits: &mut [Wait]) {
        let items = &self.window.simulation.items;
        let mut sums: SortedMap<StepId, u64> = SortedMap::default();
        for wait in &*waits {
            items[wait.item].step.into_iter().for_each(|step| *sums.or_default(step) += wait.waited);
        }
        for wait in waits {
            let Some(step) = items[wait.item].step else { continue };
            let Some((sum, others)) = sums.get(&step).zip(self.off_cpu.cpu_of_others(step)) else { continue };
            let worked = others.as_nanos() as f64 / (*sum).max(1) as f64;
            wait.saved = if worked < MOST_WORKED { wait.saved.min(part(wait.waited, 1.0 - worked)) } else { 0 };
        }
    }

    fn candidate(&self, group: &SpanGroup) -> Option<Candidate> {
        let (window, trace) = (self.window, self.window.trace());
        let span = trace.span(group.span?);
        let reason = self.reason(span)?;
        let waits = self.in_group(group, &reason);
        // Measured waits come and go, such as those for a lock: many steps may have none.
        let each = |nanos: &dyn Fn(&Wait) -> u64| match reason.is_measured {
            true => window.per_step(total(waits.iter().map(nanos))),
            false => window.each_step(waits.iter().map(|wait| (wait.item, nanos(wait)))),
        };
        let (all, saved) = (each(&|wait| wait.waited), each(&|wait| wait.saved));
        let own = each(&|wait| window.simulation.items[wait.item].nanos());
        // Without samples, time in which the thread had no CPU is among that.
        let is_certain = !reason.is_measured || self.off_cpu.has_waits() || all as f64 >= LEAST_OFF_CPU * own as f64;
        if !is_certain || (saved as f64) < LEAST_SHARE * window.median.as_nanos() as f64 {
            return None;
        }
        let items = &window.simulation.items;
        let mut costs = window.costs();
        for wait in &waits {
            costs.set_item(wait.item, 0);
            costs.scale_item(wait.item, items[wait.item].nanos().saturating_sub(wait.saved) as f64);
        }
        let what = match reason.kind {
            Some(WaitsFor::Lock) => "waits for a lock",
            Some(WaitsFor::Sleep) => "sleeps",
            Some(WaitsFor::Pool | WaitsFor::Other) => "waits",
            None => "is off the CPU",
        };
        let often = words::times(waits.iter().filter(|wait| wait.waited > 0).count(), window.count());
        let mut evidence = match reason.is_measured {
            true => self.measured(span, all, own),
            false => vec![format!("The steps' thread {what} {often} in a step.")],
        };
        if !matches!(reason.kind, Some(WaitsFor::Lock | WaitsFor::Sleep)) && (saved < all || !reason.is_measured) {
            let idle = words::nanos(saved);
            evidence.push(match reason.is_measured {
                true => format!("Other threads may work for it meanwhile: only {idle} of that count."),
                false => format!("No other thread is in a span for {idle} of that: only this part counts."),
            });
        }
        let ranges: Vec<_> = group.members.iter().map(|&item| (items[item].start, items[item].end)).collect();
        if let Some((other, time)) = longest_meanwhile(&ranges, &self.others) {
            evidence.push(format!(
                "Meanwhile, {} is open on `{}` for {} of a step.",
                words::place(trace, Some(other.id())),
                other.track().thread_name(),
                words::nanos(window.per_step(time.as_nanos() as u64))
            ));
        }
        let place = words::place(trace, group.span);
        let is_known = matches!(reason.kind, Some(WaitsFor::Lock | WaitsFor::Sleep));
        Some(Candidate {
            title: format!("the steps' thread {what} for {} of each step in {place}", words::nanos(all)),
            each: Some(all),
            is_mean: reason.is_measured,
            span: group.span,
            evidence,
            ranges: window.item_ranges(&group.members),
            // Threads without a span may be working in the meantime.
            least: (!is_known).then(|| window.costs()),
            ..Candidate::new(FindingKind::HostWait, costs)
        })
    }

    /// Returns what was measured of spans in which the thread waits, and what would tell more.
    fn measured(&self, span: Span<'_>, waited: u64, own: u64) -> Vec<String> {
        let runs = 100.0 * own.saturating_sub(waited) as f64 / own.max(1) as f64;
        let name = span.name();
        let own = words::nanos(own);
        let stack = match self.off_cpu.stack(span.callsite_id()) {
            Some(stack) => stack.sentence(),
            None => "What it waits for is not known: `.samples(Samples::default())` records the stack.".to_owned(),
        };
        vec![
            format!("`{name}` itself takes {own} of a step. Its thread runs for {} of that.", units::percent(runs)),
            stack,
        ]
    }
}

/// A part of some nanoseconds.
fn part(nanos: u64, share: f64) -> u64 {
    (nanos as f64 * share.clamp(0.0, 1.0)).round() as u64
}

/// Returns a span of the callsite on another thread that is open for the longest while the steps' thread waits, and for
/// how long.
fn longest_meanwhile<'a>(waits: &[(Timestamp, Timestamp)], others: &[Span<'a>]) -> Option<(Span<'a>, Duration)> {
    let mut times: SortedMap<CallsiteId, (Span<'a>, Duration)> = SortedMap::default();
    for &span in others.iter().filter(|span| span.parent().is_none()) {
        let first = waits.partition_point(|&(_, end)| end <= span.start());
        let overlapping = waits[first..].iter().take_while(|(start, _)| *start < span.end());
        let time = overlapping.map(|&(start, end)| end.min(span.end()).since(start.max(span.start()))).sum();
        times.or_insert_with(span.callsite_id(), || (span, Duration::ZERO)).1 += time;
    }
    times.into_values().max_by_key(|(_, time)| *time).filter(|(_, time)| !time.is_zero())
}
