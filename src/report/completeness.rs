//! Whether a report rests on all that happened, and if not, what is missing.

use super::units;
use crate::trace::{Loss, Losses, Trace};
use std::fmt;

/// What is missing from a run: records that were dropped while recording, fields that were cut, samples that were lost,
/// exports that failed, and what a collector did not receive. [`Report::completeness`](super::Report::completeness)
/// returns it.
///
/// `Display` writes one line, such as `complete: no records dropped, no fields cut, no exports failed` or `incomplete:
/// 12 records dropped (0.4 %), 3 exports failed`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Completeness {
    pub(super) losses: Losses,
    /// The number of records that were kept.
    pub(super) kept: u64,
    /// The number of exports that failed, if it is known: not for traces that were read.
    pub(super) failed_exports: Option<u64>,
    /// The kinds of things that did not reach a collector, each with its number.
    pub(super) undelivered: Vec<(&'static str, u64)>,
    /// Whether this process was forked from the one that records, so that nothing of it is recorded.
    pub(super) is_forked: bool,
}

impl Completeness {
    /// The share of records that may be missing before the report begins with a warning. Below it, most figures of the
    /// tables, which have three digits, stay the same.
    pub const WARN_ABOVE: f64 = 0.01;

    /// Returns what is missing from these windows, for traces that were kept or read.
    pub fn of<'a>(windows: impl IntoIterator<Item = &'a Trace>) -> Self {
        let mut all = Self::default();
        for trace in windows {
            all.losses += *trace.losses();
            all.kept += records(trace);
        }
        all
    }

    /// Returns the share of all records that was dropped while recording, between 0 and 1.
    pub fn dropped_share(&self) -> f64 {
        let dropped = self.losses.dropped();
        if dropped == 0 { 0.0 } else { dropped as f64 / (dropped + self.kept) as f64 }
    }

    /// Whether nothing is missing.
    pub fn is_complete(&self) -> bool {
        let is_delivered = self.failed_exports.unwrap_or(0) == 0 && self.undelivered.is_empty();
        self.losses.is_empty() && is_delivered && !self.is_forked
    }

    /// Returns the sentence to show above all figures, if so many records were dropped that they mislead.
    pub fn warning(&self) -> Option<String> {
        let share = self.dropped_share();
        let outside = match self.losses.host_dropped() {
            0 => "",
            _ => ", and time that seems to be outside of spans may be that of dropped ones",
        };
        (share > Self::WARN_ABOVE).then(|| {
            let share = units::percent(100.0 * share);
            format!("incomplete: {share} of all records were dropped, so times and counts are too low{outside}")
        })
    }

    /// Returns each cause of losses, which say what to do about them.
    pub fn causes(&self) -> impl Iterator<Item = Loss> + use<> {
        self.losses.explained()
    }
}

/// Returns the number of records in a window.
pub(super) fn records(trace: &Trace) -> u64 {
    let host = trace.spans().len() + trace.events().len() + trace.operations().len();
    let gpu = trace.api_calls().len() + trace.allocations().len() + trace.work().len();
    (host + gpu) as u64
}

impl fmt::Display for Completeness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_complete() {
            let exports = if self.failed_exports.is_some() { ", no exports failed" } else { "" };
            return write!(f, "complete: no records dropped, no fields cut{exports}");
        }
        let count = |number: u64, what: &str, outcome: &str| {
            format!("{number} {what}{} {outcome}", if number == 1 { "" } else { "s" })
        };
        let Losses { fields, truncated, steps, counters, stack_samples, gpu_counter_samples, unread, .. } = self.losses;
        let mut parts = Vec::new();
        if self.is_forked {
            parts.push("spans of this process were not recorded: it was forked from the one that records".to_owned());
        }
        let mut add = |number: u64, what, outcome| {
            if number > 0 {
                parts.push(count(number, what, outcome));
            }
        };
        let dropped = format!("dropped ({})", units::percent(100.0 * self.dropped_share()));
        add(self.losses.dropped(), "record", &dropped);
        add(fields, "span", "without fields");
        add(truncated, "field", "cut to 1024 bytes");
        add(counters, "counter value", "dropped");
        add(steps, "step or counter value", "not passed to step exporters");
        add(stack_samples, "stack sample", "lost");
        add(gpu_counter_samples, "GPU counter sample", "lost");
        add(unread, "event", "not read");
        add(self.failed_exports.unwrap_or(0), "export", "failed");
        parts.extend(self.undelivered.iter().map(|(what, number)| format!("{number} {what} not delivered")));
        write!(f, "incomplete: {}", parts.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::Completeness;
    use crate::trace::Losses;

    #[test]
    fn nothing_is_called_complete_that_is_not() {
        assert_eq!(Completeness::default().to_string(), "complete: no records dropped, no fields cut");
        let finished = Completeness { failed_exports: Some(0), ..Completeness::default() };
        assert_eq!(finished.to_string(), "complete: no records dropped, no fields cut, no exports failed");
        let cases = [
            Completeness { failed_exports: Some(3), ..Completeness::default() },
            Completeness { undelivered: vec![("spans", 2225)], ..Completeness::default() },
            Completeness { is_forked: true, ..Completeness::default() },
            Completeness { losses: Losses { truncated: 1, ..Losses::default() }, ..Completeness::default() },
            Completeness { losses: Losses { stack_samples: 3, ..Losses::default() }, ..Completeness::default() },
            Completeness { losses: Losses { gpu_counter_samples: 1, ..Losses::default() }, ..Completeness::default() },
        ];
        let lines = cases.map(|case| (case.is_complete(), case.warning(), case.to_string()));
        let expected = [
            "3 exports failed",
            "2225 spans not delivered",
            "spans of this process were not recorded: it was forked from the one that records",
            "1 field cut to 1024 bytes",
            "3 stack samples lost",
            "1 GPU counter sample lost",
        ];
        assert_eq!(lines, expected.map(|what| (false, None, format!("incomplete: {what}"))));
    }

    #[test]
    fn many_dropped_records_are_a_warning() {
        let losses = Losses { lane_full: 11_699, over_memory: 591_831, ..Losses::default() };
        let overloaded = Completeness { losses, kept: 18_000, ..Completeness::default() };
        assert_eq!(
            overloaded.warning().unwrap(),
            "incomplete: 97.1 % of all records were dropped, so times and counts are too low, and time that seems to \
             be outside of spans may be that of dropped ones"
        );
        assert_eq!(overloaded.to_string(), "incomplete: 603530 records dropped (97.1 %)");
        let few = Completeness { kept: 100_000_000, ..overloaded };
        assert_eq!(few.warning(), None);
    }
}
