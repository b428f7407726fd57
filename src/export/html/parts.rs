//! The contents of the parts of a step: kernels, calls and spans.

use super::{packed::Names, steps::Breakdowns};
use crate::{
    analysis::{CallKind, StepBreakdown, WorkKind},
    export::{json::Object, work_text::WorkKey},
    report::Averages,
    trace::{Span, Step, Timestamp, Trace},
};
use rustc_hash::FxHashMap;
use std::{cmp::Reverse, time::Duration};

/// The contents of each part of a typical step, see [`Breakdowns::PARTS`]: kernels by the span that launched them;
/// while the GPU is idle, calls by the span they are in, and spans.
#[derive(Debug, Default)]
pub(super) struct Contents {
    /// The time and the number of what has this name, in a span of this one.
    times: FxHashMap<Key, (Duration, u64)>,
    /// The number of steps.
    steps: u64,
}

/// A part, a name, and the name of the span around it.
type Key = (u8, u32, Option<u32>);

/// Indices of [`Breakdowns::PARTS`].
const COMPUTE: u8 = 0;
const COMMUNICATION: u8 = 1;
const COPIES: u8 = 2;
const INPUT: u8 = 3;
const SYNCHRONIZING: u8 = 4;
const LAUNCHING: u8 = 5;
const HOST: u8 = 6;

impl Contents {
    /// The maximum number of distinct rows.
    const KEYS: usize = 10_000;
    /// The maximum number of rows of each part in a page: two screens.
    const ROWS: usize = 60;

    /// Adds the typical steps of a window, whose breakdowns these are.
    pub(super) fn add(&mut self, trace: &Trace, breakdowns: &[&StepBreakdown<'_>], names: &mut Names) {
        let mut numbers: Vec<u64> = breakdowns.iter().map(|step| step.step).collect();
        numbers.dedup();
        self.steps += numbers.len() as u64;
        let typical = Typical { trace, numbers };
        let busy = self.add_work(&typical, names);
        self.add_calls(&typical, &busy, names);
        self.add_input(&typical, &busy, names);
        for (span, time) in breakdowns.iter().flat_map(|step| &step.host_by_span) {
            let name = names.index(span) as u32;
            self.count((HOST, name, None), *time);
        }
    }

    /// Adds GPU work, and returns the times at which there was any.
    fn add_work(&mut self, typical: &Typical<'_>, names: &mut Names) -> Busy {
        let mut known: FxHashMap<WorkKey, u32> = FxHashMap::default();
        let mut intervals = Vec::with_capacity(typical.trace.work().len());
        for work in typical.trace.work() {
            intervals.push((work.start(), work.end()));
            let Some(time) = typical.time(work.start(), work.end()) else { continue };
            let part = match WorkKind::of(work) {
                WorkKind::Compute => COMPUTE,
                WorkKind::Communication => COMMUNICATION,
                WorkKind::Memory => COPIES,
            };
            let name = *known.entry(WorkKey::of(work)).or_insert_with(|| names.work(&work.name().to_string()) as u32);
            let span = work.span().map(|span| names.index(span.name()) as u32);
            self.count((part, name, span), time);
        }
        Busy::of(intervals)
    }

    /// Adds calls that launch work or wait for it while the GPU is idle.
    fn add_calls(&mut self, typical: &Typical<'_>, busy: &Busy, names: &mut Names) {
        if typical.trace.api_calls.is_empty() {
            return;
        }
        for (call, kind) in typical.trace.api_calls().zip(CallKind::of_calls(typical.trace)) {
            let part = match kind {
                CallKind::Synchronizing => SYNCHRONIZING,
                CallKind::Launching => LAUNCHING,
                CallKind::Other => continue,
            };
            let Some((start, end)) = typical.range(call.start(), call.end()) else { continue };
            let (name, span) = (names.index(call.name()), call.span().map(|span| names.index(span.name()) as u32));
            self.count((part, name as u32, span), busy.idle(start, end));
        }
    }

    /// Adds spans that load data while the GPU is idle, without those inside others.
    fn add_input(&mut self, typical: &Typical<'_>, busy: &Busy, names: &mut Names) {
        let is_input = |span: Span<'_>| span.input_stage().is_some();
        for span in typical.trace.spans().filter(|span| is_input(*span)) {
            if span.stack().skip(1).any(is_input) {
                continue;
            }
            let Some((start, end)) = typical.range(span.start(), span.end()) else { continue };
            let outer = span.parent().map(|outer| names.index(outer.name()) as u32);
            self.count((INPUT, names.index(span.name()) as u32, outer), busy.idle(start, end));
        }
    }

    fn count(&mut self, key: Key, time: Duration) {
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
            for part in 0..Breakdowns::PARTS.len() as u8 {
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

/// The typical steps of a window.
struct Typical<'a> {
    trace: &'a Trace,
    /// Their numbers, in order.
    numbers: Vec<u64>,
}

impl Typical<'_> {
    /// Returns the part of a range that is in the step in which it begins, if that is typical.
    fn range(&self, start: Timestamp, end: Timestamp) -> Option<(Timestamp, Timestamp)> {
        let step: &Step = &self.trace.steps()[self.trace.step_at(start)?.index()];
        self.numbers.binary_search(&step.number()).ok()?;
        Some((start, end.min(step.end())))
    }

    fn time(&self, start: Timestamp, end: Timestamp) -> Option<Duration> {
        self.range(start, end).map(|(start, end)| end.since(start))
    }
}

/// The times at which any GPU was busy.
#[derive(Debug, Default)]
struct Busy {
    /// Ranges that do not touch, in order, each with the busy time before it.
    ranges: Vec<(Timestamp, Timestamp, Duration)>,
}

impl Busy {
    fn of(mut intervals: Vec<(Timestamp, Timestamp)>) -> Self {
        intervals.sort_unstable();
        let mut ranges: Vec<(Timestamp, Timestamp, Duration)> = Vec::new();
        for (start, end) in intervals {
            match ranges.last_mut() {
                Some((_, until, _)) if start <= *until => *until = end.max(*until),
                last => {
                    let before = last.map_or(Duration::ZERO, |(start, end, before)| *before + end.since(*start));
                    ranges.push((start, end, before));
                }
            }
        }
        Self { ranges }
    }

    /// Returns the busy time before a moment.
    fn before(&self, at: Timestamp) -> Duration {
        let after = self.ranges.partition_point(|(start, ..)| *start < at);
        let range = after.checked_sub(1).map(|index| self.ranges[index]);
        range.map_or(Duration::ZERO, |(start, end, before)| before + end.min(at).since(start))
    }

    /// Returns the time in a range in which no GPU was busy.
    fn idle(&self, start: Timestamp, end: Timestamp) -> Duration {
        end.since(start).saturating_sub(self.before(end).saturating_sub(self.before(start)))
    }
}

#[cfg(test)]
mod tests {
    use super::{Busy, Contents, HOST};
    use crate::{
        analysis::Analysis,
        export::html::packed::Names,
        trace::sample::{at, gpu_trace},
    };
    use std::time::Duration;

    #[test]
    fn idle_time_is_what_no_work_covers() {
        let busy = Busy::of([(10, 20), (15, 30), (40, 50)].map(|(start, end)| (at(start), at(end))).to_vec());
        let idle = |start, end| busy.idle(at(start), at(end)).as_micros();
        assert_eq!([idle(0, 5), idle(0, 60), idle(12, 28), idle(25, 45), idle(50, 60)], [5, 30, 0, 10, 10]);
        assert_eq!(Busy::default().idle(at(1), at(4)), Duration::from_micros(3));
    }

    #[test]
    fn parts_have_no_more_than_the_steps_do() {
        let trace = gpu_trace();
        let (window, mut contents) = (Analysis::of(&trace), Contents::default());
        let steps: Vec<_> = window.step_breakdown().iter().collect();
        contents.add(&trace, &steps, &mut Names::default());
        assert_eq!(contents.steps, 2);
        let sum = |part| contents.times.iter().filter(|((of, ..), _)| *of == part).map(|(_, (time, _))| *time).sum();
        let host: Duration = sum(HOST);
        assert_eq!(host, steps.iter().map(|step| step.host).sum());
        // Kernels that run at once are both counted.
        let compute: Duration = sum(super::COMPUTE);
        assert!(compute >= steps.iter().map(|step| step.compute).sum() && !compute.is_zero());
    }
}
