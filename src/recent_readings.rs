//! The latest readings of a background thread, kept for traces and for exporters of steps.

use crate::trace::{Counter, Timestamp};
use std::collections::VecDeque;

/// A bounded queue of readings, each the values of several sources at one moment, oldest first.
///
/// Traces take those of their window as counters, and exporters of steps the latest at the end of a step.
#[derive(Debug)]
pub(crate) struct RecentReadings<K> {
    most: usize,
    readings: VecDeque<Reading<K>>,
}

/// The values of all sources at one moment.
#[derive(Clone, Debug)]
pub(crate) struct Reading<K> {
    pub(crate) at: Timestamp,
    pub(crate) values: Vec<(K, f64)>,
}

impl<K: Copy> RecentReadings<K> {
    /// Creates a queue of at most `most` readings.
    pub(crate) fn new(most: usize) -> Self {
        Self { most, readings: VecDeque::new() }
    }

    /// Adds a reading, and drops the oldest if there is no room.
    pub(crate) fn push(&mut self, reading: Reading<K>) {
        if self.readings.len() == self.most {
            self.readings.pop_front();
        }
        self.readings.push_back(reading);
    }

    /// Returns the last reading.
    pub(crate) fn latest(&self) -> Option<&Reading<K>> {
        self.readings.back()
    }

    /// Returns the last reading that is not later than a moment.
    pub(crate) fn before(&self, moment: Timestamp) -> Option<&Reading<K>> {
        let after = self.readings.partition_point(|reading| reading.at <= moment);
        self.readings.get(after.checked_sub(1)?)
    }

    /// Returns the last reading that is not later than a moment, or else the first.
    pub(crate) fn at(&self, moment: Timestamp) -> Option<&Reading<K>> {
        self.before(moment).or(self.readings.front())
    }

    /// Returns the readings between two moments as counters with these names.
    pub(crate) fn counters(&self, start: Timestamp, end: Timestamp, name: impl Fn(K) -> &'static str) -> Vec<Counter> {
        let inside = self.readings.iter().filter(|reading| (start..=end).contains(&reading.at));
        let mut counters: Vec<Counter> = Vec::new();
        for (at, source, value) in inside.flat_map(|it| it.values.iter().map(|&(source, value)| (it.at, source, value)))
        {
            let name = name(source);
            let index = counters.iter().position(|counter| counter.name() == name).unwrap_or_else(|| {
                counters.push(Counter { name: name.into(), samples: Vec::new() });
                counters.len() - 1
            });
            counters[index].samples.push((at, value));
        }
        counters
    }
}

#[cfg(test)]
mod tests {
    use super::{Reading, RecentReadings};
    use crate::trace::Timestamp;

    fn at(nanos: u64) -> Timestamp {
        Timestamp::from_unix_nanos(nanos)
    }

    #[test]
    fn the_latest_readings_are_kept_and_found_by_time() {
        let mut recent = RecentReadings::new(3);
        assert!(recent.at(at(5)).is_none());
        for time in [10, 20, 30, 40] {
            recent.push(Reading { at: at(time), values: vec![("a", time as f64), ("b", 1.0)] });
        }
        let found = |moment| recent.at(at(moment)).map(|reading| reading.at);
        assert_eq!([5, 20, 39, 99].map(found), [20, 20, 30, 40].map(|time| Some(at(time))), "10 was dropped");
        assert!(recent.before(at(19)).is_none());
        let counters = recent.counters(at(20), at(30), |name| name);
        assert_eq!(counters.iter().map(super::Counter::name).collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!(counters[0].samples(), [(at(20), 20.0), (at(30), 30.0)]);
    }
}
