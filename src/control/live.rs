//! The latest steps, counters, spans and window of a run, for those who watch it.
//!
//! Steps and counters come from the same ring as those of other step exporters, windows from the export thread. Spans
//! are sampled: the program's threads keep the stacks of their open spans anyway, and somebody who watches reads them.

use super::protocol::{LastWindow, LiveSpan, LiveStep, Number, WindowSpan, nanos};
use crate::{
    analysis::{Analysis, MemoryFrame},
    export::{ExportResult, Exporter, Run, StepExporter, StepSummary},
    host::Host,
    trace::{Step, Timestamp},
};
use rustc_hash::FxHashMap;
use std::{
    borrow::Cow,
    collections::{BTreeMap, VecDeque},
    error::Error,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

/// The latest facts of a run.
#[derive(Debug, Default)]
pub(crate) struct LiveRun {
    steps: Mutex<RecentSteps>,
    window: Mutex<Option<(LastWindow, Instant)>>,
    samples: Mutex<Samples>,
}

#[derive(Debug, Default)]
struct RecentSteps {
    steps: VecDeque<StepSummary>,
    counters: BTreeMap<&'static str, f64>,
}

impl LiveRun {
    /// The number of steps that are kept: as many as a wide terminal has columns.
    const STEPS: usize = 256;
    /// The time over which the rate of steps is taken.
    const RATE_OVER: Duration = Duration::from_secs(10);
    /// The most spans that are sent.
    const SPANS: usize = 32;

    /// Returns the exporter that keeps the latest steps and the last window.
    pub(crate) fn exporter(self: &Arc<Self>) -> impl Exporter + use<> {
        LiveExporter(Arc::clone(self))
    }

    /// Returns the steps in a second over the last ten, or over the last step if it took longer. A run that hangs gets
    /// slower and slower.
    pub(super) fn rate(&self, now: Timestamp) -> Option<f64> {
        let recent = lock(&self.steps);
        let steps = &recent.steps;
        let latest = steps.iter().rev().take_while(|step| now.since(step.end()) < Self::RATE_OVER).count().max(1);
        let first = steps.get(steps.len().checked_sub(latest)?)?;
        let elapsed = now.since(first.start).as_secs_f64();
        (elapsed > 0.0).then(|| latest as f64 / elapsed)
    }

    /// Returns the steps that ended after this one, or all that are kept.
    pub(super) fn steps_after(&self, last: Option<u64>) -> Vec<LiveStep> {
        let recent = lock(&self.steps);
        let newer = recent.steps.iter().filter(|step| last.is_none_or(|last| step.number > last));
        let live = |step: &StepSummary| LiveStep {
            number: step.number,
            duration_ns: nanos(step.duration),
            recorded: step.phase.is_recording(),
        };
        newer.map(live).collect()
    }

    /// Returns the latest value of each counter.
    pub(super) fn counters(&self) -> BTreeMap<String, Number> {
        lock(&self.steps).counters.iter().map(|(name, value)| ((*name).to_owned(), Number(*value))).collect()
    }

    /// Returns the last window.
    pub(super) fn last_window(&self) -> Option<LastWindow> {
        let (window, closed) = lock(&self.window).clone()?;
        Some(LastWindow { age_ms: u64::try_from(closed.elapsed().as_millis()).unwrap_or(u64::MAX), ..window })
    }

    /// Looks at the open spans of all threads, unless somebody else has just done so.
    pub(super) fn sample(&self, host: &Host) {
        lock(&self.samples).take(host, Instant::now());
    }

    /// Returns the spans that were open in the last second, and the number of samples.
    pub(super) fn spans(&self) -> (Vec<LiveSpan>, u32) {
        lock(&self.samples).spans(Self::SPANS)
    }

    fn add_steps(&self, steps: &[StepSummary]) {
        let mut recent = lock(&self.steps);
        for step in steps {
            // Memory is read when it is asked for.
            recent.counters.extend(step.counters.iter().copied().filter(|(name, _)| !name.starts_with("memory.")));
            if recent.steps.len() == Self::STEPS {
                recent.steps.pop_front();
            }
            recent.steps.push_back(StepSummary { counters: Vec::new(), ..step.clone() });
        }
    }

    fn set_window(&self, window: &Analysis<'_>) {
        let mut by_name: FxHashMap<&str, WindowSpan> = FxHashMap::default();
        for span in window.spans() {
            let row = by_name.entry(span.name()).or_default();
            row.count += 1;
            row.self_ns += nanos(span.self_time());
        }
        for work in window.work() {
            if let Some(row) = work.span().and_then(|span| by_name.get_mut(span.name())) {
                row.gpu_ns += nanos(work.duration());
            }
        }
        let named = |(name, row): (&str, WindowSpan)| WindowSpan { name: name.to_owned(), ..row };
        let mut spans: Vec<_> = by_name.into_iter().map(named).collect();
        spans.sort_by(|a, b| b.self_ns.cmp(&a.self_ns).then_with(|| a.name.cmp(&b.name)));
        spans.truncate(Self::SPANS);
        let last = LastWindow {
            window: window.window(),
            age_ms: 0,
            first_step: window.steps().first().map(Step::number),
            steps: window.steps().len() as u64,
            findings: window.findings().iter().map(Into::into).collect(),
            spans,
        };
        *lock(&self.window) = Some((last, Instant::now()));
    }
}

/// The exporter that keeps the latest steps and the last window.
struct LiveExporter(Arc<LiveRun>);

impl Exporter for LiveExporter {
    fn export(&mut self, window: &Analysis<'_>) -> ExportResult {
        self.0.set_window(window);
        Ok(Vec::new())
    }

    fn name(&self) -> &str {
        "listen"
    }

    fn steps(&mut self, _: &Run) -> Option<Box<dyn StepExporter>> {
        Some(Box::new(Self(Arc::clone(&self.0))))
    }
}

impl StepExporter for LiveExporter {
    fn steps(&mut self, steps: &[StepSummary]) -> Result<(), Box<dyn Error + Send + Sync>> {
        self.0.add_steps(steps);
        Ok(())
    }
}

/// The open spans of each thread, outermost first.
type Stacks = Vec<Vec<MemoryFrame>>;
/// A span by its name and place.
type Place<'a> = (&'a Cow<'static, str>, Option<&'static str>, Option<u32>);

/// The open spans of all threads, several times in the last second.
#[derive(Debug, Default)]
struct Samples(VecDeque<(Instant, Stacks)>);

impl Samples {
    /// The time between two samples at least: those who watch look every 20 ms.
    const APART: Duration = Duration::from_millis(15);
    const KEPT: Duration = Duration::from_secs(1);

    fn take(&mut self, host: &Host, now: Instant) {
        if self.0.back().is_some_and(|(last, _)| now.saturating_duration_since(*last) < Self::APART) {
            return;
        }
        while self.0.front().is_some_and(|(first, _)| now.saturating_duration_since(*first) > Self::KEPT) {
            self.0.pop_front();
        }
        self.0.push_back((now, host.sample_open_spans()));
    }

    /// Returns the spans with most time of their own.
    fn spans(&self, most: usize) -> (Vec<LiveSpan>, u32) {
        let mut counts: FxHashMap<Place<'_>, (u32, u32)> = FxHashMap::default();
        let place = |frame: &MemoryFrame| (frame.file, frame.line);
        for stack in self.0.iter().flat_map(|(_, stacks)| stacks) {
            for (depth, frame) in stack.iter().enumerate() {
                let (file, line) = place(frame);
                let (open, innermost) = counts.entry((&frame.name, file, line)).or_default();
                // A span that calls itself is open once.
                *open += u32::from(!stack[..depth].contains(frame));
                *innermost += u32::from(depth + 1 == stack.len());
            }
        }
        let samples = self.0.len() as f64;
        let mut spans: Vec<_> = counts
            .into_iter()
            .map(|((name, file, line), (open, innermost))| LiveSpan {
                name: name.clone().into_owned(),
                location: file.zip(line).map(|(file, line)| format!("{file}:{line}")),
                threads: f64::from(open) / samples,
                self_threads: f64::from(innermost) / samples,
            })
            .collect();
        let by_self = |a: &LiveSpan, b: &LiveSpan| b.self_threads.total_cmp(&a.self_threads);
        let by_total = |a: &LiveSpan, b: &LiveSpan| b.threads.total_cmp(&a.threads);
        spans.sort_by(|a, b| by_self(a, b).then_with(|| by_total(a, b)).then_with(|| a.name.cmp(&b.name)));
        spans.truncate(most);
        (spans, u32::try_from(self.0.len()).unwrap_or(u32::MAX))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::{LiveRun, Samples, Stacks};
    use crate::{analysis::MemoryFrame, export::StepSummary, schedule::Phase, trace::Timestamp};
    use std::time::{Duration, Instant};

    const SECOND: u64 = 1_000_000_000;

    fn at(seconds: u64) -> Timestamp {
        Timestamp::from_unix_nanos(seconds * SECOND)
    }

    fn step(number: u64, start: u64, seconds: u64) -> StepSummary {
        StepSummary::new(number, Phase::Wait, at(start), Duration::from_secs(seconds))
    }

    #[test]
    fn a_run_that_hangs_gets_slower() {
        let live = LiveRun::default();
        assert_eq!(live.rate(at(100)), None);
        live.add_steps(&(0..20).map(|number| step(number, 100 + number, 1)).collect::<Vec<_>>());
        assert_eq!(live.rate(at(120)), Some(1.0));
        assert_eq!(live.rate(at(125)), Some(0.5));
        // The last step alone, since it ended.
        assert_eq!(live.rate(at(139)), Some(0.05));
    }

    #[test]
    fn only_the_latest_steps_are_kept() {
        let live = LiveRun::default();
        let with_counter = |number: u64| {
            let mut step = step(number, number, 1);
            step.counters.extend([("loss", number as f64), ("memory.process", 1.0)]);
            step
        };
        live.add_steps(&(0..1000).map(with_counter).collect::<Vec<_>>());
        let numbers = |last| live.steps_after(last).iter().map(|step| step.number).collect::<Vec<_>>();
        assert_eq!(numbers(None), (744..1000).collect::<Vec<_>>());
        assert_eq!(numbers(Some(997)), [998, 999]);
        let counters: Vec<_> = live.counters().into_iter().map(|(name, value)| (name, value.0)).collect();
        assert_eq!(counters, [("loss".to_owned(), 999.0)]);
    }

    #[test]
    fn spans_are_counted_once_in_a_stack() {
        let stack = |names: &[&'static str]| -> Vec<MemoryFrame> {
            names.iter().map(|&name| MemoryFrame { name: name.into(), file: None, line: None }).collect()
        };
        let stacks: [Stacks; 2] = [vec![stack(&["step", "fold", "fold"]), stack(&["load"])], vec![stack(&["step"])]];
        let samples = Samples(stacks.map(|stacks| (Instant::now(), stacks)).into());
        let (spans, count) = samples.spans(9);
        assert_eq!(count, 2);
        let spans: Vec<_> = spans.iter().map(|it| (it.name.as_str(), it.threads, it.self_threads)).collect();
        assert_eq!(spans, [("step", 1.0, 0.5), ("fold", 0.5, 0.5), ("load", 0.5, 0.5)]);
    }
}
