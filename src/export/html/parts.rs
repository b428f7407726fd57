//! The contents of the parts of a step: kernels, calls and spans.

use super::packed::Names;
use crate::{
    analysis::{Analysis, CallKind, Interval, Intervals, StepInterval, StepPart, StepTime, WorkKind},
    export::{json::Object, work_text::WorkKey},
    report::Averages,
    trace::{Span, Timestamp},
};
use rustc_hash::FxHashMap;
use std::{cmp::Reverse, time::Duration};

/// The contents of each part of a step that is no outlier: kernels by the span that launched them; while the GPU is
/// idle, calls by the span they are in, and spans.
#[derive(Debug, Default)]
pub(super) struct Contents {
    /// The time and the number of what has this name, in a span of this one.
    times: FxHashMap<ContentKey, (Duration, u64)>,
    /// The number of steps.
    steps: u64,
}

/// A part, a name, and the name of the span around it.
type ContentKey = (StepPart, u32, Option<u32>);

impl Contents {
    /// The maximum number of distinct rows.
    const KEYS: usize = 10_000;
    /// The maximum number of rows of each part in a page: two screens.
    const ROWS: usize = 60;

    /// Adds a window.
    pub(super) fn add(&mut self, window: &Analysis<'_>, names: &mut Names) {
        let longest = StepTime::longest(window.divided_steps().map(StepInterval::time));
        let steps: Vec<_> = window.divided_steps().filter(|step| step.time() <= longest).copied().collect();
        self.steps += steps.len() as u64;
        for row in window.step_breakdown().iter().filter(|row| row.duration <= longest) {
            for (span, time) in &row.host_by_span {
                let name = names.index(span) as u32;
                self.count((StepPart::Host, name, None), *time);
            }
        }
        let typical = TypicalSteps { window, steps };
        let busy = self.add_work(&typical, names);
        self.add_calls(&typical, &busy, names);
        self.add_input(&typical, &busy, names);
    }

    /// Adds GPU work, and returns the times at which there was any.
    fn add_work(&mut self, typical: &TypicalSteps<'_, '_>, names: &mut Names) -> Intervals {
        let mut known: FxHashMap<WorkKey, u32> = FxHashMap::default();
        let mut busy = Vec::with_capacity(typical.window.work().len());
        for work in typical.window.work() {
            busy.push(Interval::of(work));
            let Some((start, end)) = typical.range(work.start(), work.end()) else { continue };
            let part = match WorkKind::of(work) {
                WorkKind::Compute => StepPart::Compute,
                WorkKind::Communication => StepPart::Communication,
                WorkKind::Memory => StepPart::Copies,
            };
            let name = *known.entry(WorkKey::of(work)).or_insert_with(|| names.work(&work.name().to_string()) as u32);
            let span = work.span().map(|span| names.index(span.name()) as u32);
            self.count((part, name, span), end.since(start));
        }
        Intervals::new(busy)
    }

    /// Adds calls that launch work or wait for it while the GPU is idle.
    fn add_calls(&mut self, typical: &TypicalSteps<'_, '_>, busy: &Intervals, names: &mut Names) {
        let trace = typical.window.trace();
        if trace.api_calls.is_empty() {
            return;
        }
        for (call, kind) in trace.api_calls().zip(CallKind::of_calls(trace)) {
            let part = match kind {
                CallKind::Synchronizing => StepPart::Synchronizing,
                CallKind::Launching => StepPart::Launching,
                CallKind::Other => continue,
            };
            let Some((start, end)) = typical.range(call.start(), call.end()) else { continue };
            let (name, span) = (names.index(call.name()), call.span().map(|span| names.index(span.name()) as u32));
            self.count((part, name as u32, span), busy.uncovered(start, end));
        }
    }

    /// Adds spans that load data while the GPU is idle, without those inside others.
    fn add_input(&mut self, typical: &TypicalSteps<'_, '_>, busy: &Intervals, names: &mut Names) {
        let is_input = |span: Span<'_>| span.input_stage().is_some();
        for span in typical.window.spans().filter(|span| is_input(*span)) {
            if span.stack().skip(1).any(is_input) {
                continue;
            }
            let Some((start, end)) = typical.range(span.start(), span.end()) else { continue };
            let outer = span.parent().map(|outer| names.index(outer.name()) as u32);
            self.count((StepPart::Input, names.index(span.name()) as u32, outer), busy.uncovered(start, end));
        }
    }

    fn count(&mut self, key: ContentKey, time: Duration) {
        let is_full = self.times.len() >= Self::KEYS && !self.times.contains_key(&key);
        let key = if is_full { (key.0, u32::MAX, None) } else { key };
        let (sum, count) = self.times.entry(key).or_default();
        *sum = sum.saturating_add(time);
        *count += 1;
    }

    /// Writes the rows of each part, of a step on average: name, span, time and number. Names of the part follow.
    pub(super) fn write(&self, names: &mut Names, object: &mut Object<'_>) {
        let others = names.index(Averages::OTHERS) as u32;
        let steps = self.steps.max(1);
        object.array_of_lines("contents", |parts| {
            for part in StepPart::ALL {
                let of_part = self.times.iter().filter(|((of, ..), (time, _))| *of == part && !time.is_zero());
                let mut rows: Vec<_> = of_part.map(|((_, name, span), sum)| (*name, *span, *sum)).collect();
                rows.sort_unstable_by_key(|&(name, span, (time, _))| (Reverse(time), name, span));
                let shown = |name: u32| if name == u32::MAX { others } else { name };
                let mut of_names: Vec<_> = rows.iter().map(|&(name, ..)| shown(name)).collect();
                of_names.sort_unstable();
                of_names.dedup();
                parts.object(|object| {
                    object.array("rows", |array| {
                        for &(name, span, (time, count)) in rows.iter().take(Self::ROWS) {
                            array.array(|cells| {
                                cells.number(shown(name));
                                match span {
                                    Some(span) => cells.number(span),
                                    None => cells.null(),
                                }
                                cells.number(time.as_nanos() / u128::from(steps));
                                cells.float((10.0 * count as f64 / steps as f64).round() / 10.0);
                            });
                        }
                    });
                    object.number("leftOut", rows.len().saturating_sub(Self::ROWS));
                    object.array("names", |array| of_names.iter().for_each(|&name| array.number(name)));
                });
            }
        });
    }
}

/// The steps of a window without outliers, in order.
struct TypicalSteps<'w, 'a> {
    window: &'w Analysis<'a>,
    steps: Vec<StepInterval>,
}

impl TypicalSteps<'_, '_> {
    /// Returns the part of a range that is in the step in which it begins, if that is one of these.
    fn range(&self, start: Timestamp, end: Timestamp) -> Option<(Timestamp, Timestamp)> {
        let past = self.steps.partition_point(|step| step.start <= start);
        let step = self.steps.get(past.checked_sub(1)?).filter(|step| start < step.end)?;
        Some((start, end.min(step.end)))
    }
}

#[cfg(test)]
mod tests {
    use super::{Contents, StepPart};
    use crate::{analysis::Analysis, export::html::packed::Names, trace::sample::gpu_trace};
    use std::time::Duration;

    #[test]
    fn parts_have_no_more_than_the_steps_do() {
        let trace = gpu_trace();
        let (window, mut contents) = (Analysis::of(&trace), Contents::default());
        contents.add(&window, &mut Names::default());
        let steps = window.step_breakdown();
        assert_eq!(contents.steps, 2);
        let sum = |part| contents.times.iter().filter(|((of, ..), _)| *of == part).map(|(_, (time, _))| *time).sum();
        let host: Duration = sum(StepPart::Host);
        assert_eq!(host, steps.iter().map(|step| step.parts.host).sum());
        // Kernels that run at once are both counted.
        let compute: Duration = sum(StepPart::Compute);
        assert!(compute >= steps.iter().map(|step| step.parts.compute).sum() && !compute.is_zero());
    }
}
