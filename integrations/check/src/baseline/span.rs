//! The spans of one path in a run.

use crate::{
    counts::{CountKind, CountRange},
    step_samples::{SpanSample, StepCounts},
};
use serde::{Deserialize, Serialize, Serializer};
use std::time::Duration;

/// The spans of one path in a run: their times in each kept step, and what they did.
///
/// The names of a path are those of [`Span::parent`](kernspan::trace::Span::parent), and on another thread those of
/// [`Span::caller`](kernspan::trace::Span::caller). A span with a module
/// ([`convention::MODULE`](kernspan::trace::convention::MODULE)) is called `name (module)`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct BaselineSpan {
    /// The index of the path it is called from, which is lower than its own.
    pub parent: Option<usize>,
    /// The name.
    pub name: String,
    /// The target of the first span.
    pub target: String,
    /// The place in the source of the first span, as `file:line`.
    pub location: Option<String>,
    /// Self time on the thread of the step, in nanoseconds for each kept step.
    #[serde(skip_serializing_if = "Times::is_empty")]
    pub host: Times,
    /// Self time on other threads.
    #[serde(skip_serializing_if = "Times::is_empty")]
    pub background: Times,
    /// The time of GPU work that the spans themselves caused.
    #[serde(skip_serializing_if = "Times::is_empty")]
    pub gpu: Times,
    /// The time on the critical path in which the spans themselves were active, on any thread: see
    /// [`critical_path`](kernspan::analysis::Analysis::critical_path). Empty without GPU activity.
    #[serde(skip_serializing_if = "Times::is_empty")]
    pub exposed_host: Times,
    /// The time on the critical path in which GPU work of the spans ran.
    #[serde(skip_serializing_if = "Times::is_empty")]
    pub exposed_gpu: Times,
    /// The counts of a step that are not always 0.
    pub counts: Vec<(CountKind, CountRange)>,
}

/// A time for each kept step of a run, in nanoseconds. Empty if all are 0.
///
/// Each takes four bytes, which is exact to one part in 16 million.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(transparent)]
pub struct Times(Vec<f32>);

impl BaselineSpan {
    /// Returns a count, which is 0 in all steps if it never occurred.
    pub fn count(&self, kind: CountKind) -> CountRange {
        count_of(&self.counts, kind)
    }

    /// Adds the steps of a window. `before` is the number of steps sampled earlier in the run, `kept` of which were
    /// kept, and `keep` says which of the new ones to keep.
    pub(super) fn add(&mut self, samples: &[SpanSample], before: u64, kept: usize, keep: &[bool]) {
        let kept_samples = samples.iter().zip(keep).filter(|(_, keep)| **keep).map(|(sample, _)| sample);
        for (at, sample) in (kept..).zip(kept_samples) {
            self.host.set(at, nanos(sample.host));
            self.background.set(at, nanos(sample.background));
            self.gpu.set(at, nanos(sample.gpu));
            self.exposed_host.set(at, nanos(sample.exposed_host));
            self.exposed_gpu.set(at, nanos(sample.exposed_gpu));
        }
        add_counts(&mut self.counts, samples.iter().map(|sample| &sample.counts), before);
    }

    /// Keeps every second step.
    pub(super) fn thin(&mut self) {
        self.times_mut().into_iter().for_each(Times::thin);
    }

    /// Returns all times.
    pub(super) fn times_mut(&mut self) -> [&mut Times; 5] {
        let Self { host, background, gpu, exposed_host, exposed_gpu, .. } = self;
        [host, background, gpu, exposed_host, exposed_gpu]
    }
}

impl Times {
    /// Adds the time of the step with this index, filling in the steps before it.
    fn set(&mut self, step: usize, nanos: f32) {
        if nanos > 0.0 || !self.0.is_empty() {
            self.0.resize(step, 0.0);
            self.0.push(nanos);
        }
    }

    /// Adds the time of the next step, even if it is 0.
    pub(crate) fn push(&mut self, nanos: f32) {
        self.0.push(nanos);
    }

    /// Removes every second time.
    pub(super) fn thin(&mut self) {
        let mut index = 0_usize;
        self.0.retain(|_| {
            index += 1;
            index % 2 == 1
        });
    }

    /// Returns the time of the kept step with this index.
    pub fn get(&self, step: usize) -> f64 {
        self.0.get(step).copied().map_or(0.0, f64::from)
    }

    /// Returns whether all times are 0.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the number of times.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Replaces invalid times read from a file.
    pub(super) fn validate(&mut self) {
        self.0.iter_mut().filter(|time| !time.is_finite() || **time < 0.0).for_each(|time| *time = 0.0);
    }
}

impl Serialize for Times {
    /// Writes whole numbers, which are shorter.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.iter().map(|time| *time as u64))
    }
}

/// Returns a time as it is stored.
pub(super) fn nanos(time: Duration) -> f32 {
    time.as_nanos() as f32
}

/// Returns a count from a list that leaves out counts that are always 0.
pub(super) fn count_of(counts: &[(CountKind, CountRange)], kind: CountKind) -> CountRange {
    counts.iter().find(|(other, _)| *other == kind).map(|(_, range)| *range).unwrap_or_default()
}

/// Adds the counts of steps to such a list, after `before` other steps.
pub(super) fn add_counts<'a>(
    counts: &mut Vec<(CountKind, CountRange)>,
    steps: impl Iterator<Item = &'a StepCounts> + Clone,
    before: u64,
) {
    for kind in CountKind::ALL {
        let mut values: Vec<_> = steps.clone().map(|step| step.0[kind as usize]).collect();
        let known = counts.iter().position(|(other, _)| *other == kind);
        if known.is_none() && values.iter().all(|&value| value == 0) {
            continue;
        }
        let index = known.unwrap_or_else(|| {
            let mut range = CountRange::default();
            range.add_nothing(before);
            counts.push((kind, range));
            counts.len() - 1
        });
        if kind.is_of_heap() {
            values.sort_unstable();
            let ends = values.len().div_ceil(4).min(values.len().saturating_sub(1) / 2);
            values = values[ends..values.len() - ends].to_vec();
        }
        values.into_iter().for_each(|value| counts[index].1.add(value));
    }
}
