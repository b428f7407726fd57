//! Counters that grow, as rates.

use std::time::Duration;

/// A counter that only grows, and how fast it does. One that is smaller than before was reset, and its rate is not
/// known until the next reading.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Rate {
    last: Option<(Duration, f64)>,
}

impl Rate {
    /// Returns the growth per second since the reading before.
    pub(super) fn per_second(&mut self, at: Duration, value: Option<f64>) -> Option<f64> {
        let value = value.filter(|value| value.is_finite());
        let last = std::mem::replace(&mut self.last, value.map(|value| (at, value)));
        let (before, from) = last?;
        let seconds = at.checked_sub(before)?.as_secs_f64();
        let growth = value? - from;
        (seconds > 0.0 && growth >= 0.0).then_some(growth / seconds)
    }
}

/// Several counters, and how much of what they grew by together is that of each.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shares<const N: usize> {
    last: Option<[u64; N]>,
}

impl<const N: usize> Default for Shares<N> {
    fn default() -> Self {
        Self { last: None }
    }
}

impl<const N: usize> Shares<N> {
    /// Returns the share of each in percent since the reading before. `values` has all of them; a counter that is
    /// smaller than before, as Linux's iowait may be, has not grown.
    pub(super) fn percent(&mut self, values: Option<[u64; N]>) -> Option<[f64; N]> {
        let (last, values) = (std::mem::replace(&mut self.last, values)?, values?);
        let mut grown = [0.0; N];
        for ((grown, before), after) in grown.iter_mut().zip(last).zip(values) {
            *grown = after.saturating_sub(before) as f64;
        }
        let all: f64 = grown.iter().sum();
        (all > 0.0).then(|| grown.map(|part| 100.0 * part / all))
    }
}

#[cfg(test)]
mod tests {
    use super::{Rate, Shares};
    use proptest::prelude::*;
    use std::time::Duration;

    #[test]
    fn a_rate_needs_two_readings_and_none_between_is_lost() {
        let mut rate = Rate::default();
        let mut at = |seconds, value| rate.per_second(Duration::from_millis(seconds), value);
        assert_eq!(at(1000, Some(50.0)), None);
        assert_eq!(at(1500, Some(60.0)), Some(20.0));
        assert_eq!(at(1500, Some(60.0)), None, "no time has passed");
        assert_eq!(at(2000, Some(5.0)), None, "it was reset");
        assert_eq!(at(3000, Some(9.0)), Some(4.0));
        assert_eq!(at(4000, None), None);
        assert_eq!(at(5000, Some(20.0)), None, "it was unknown before");
    }

    proptest! {
        #[test]
        fn rates_are_never_negative_and_shares_add_up(values in prop::collection::vec(any::<[u32; 3]>(), 2..50)) {
            let (mut rate, mut shares) = (Rate::default(), Shares::<3>::default());
            for (second, value) in (0..).zip(&values) {
                let rate = rate.per_second(Duration::from_secs(second), Some(f64::from(value[0])));
                prop_assert!(rate.is_none_or(|rate| rate >= 0.0 && rate.is_finite()));
                if let Some(shares) = shares.percent(Some(value.map(u64::from))) {
                    prop_assert!(shares.iter().all(|share| (0.0..=100.0).contains(share)));
                    prop_assert!((shares.iter().sum::<f64>() - 100.0).abs() < 1e-9);
                }
            }
        }
    }
}
