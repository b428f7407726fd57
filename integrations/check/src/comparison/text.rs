//! Times of comparisons as text. They are nanoseconds, as [`Estimate`]s are.

use super::{estimate::Estimate, time_change::TimeChange};
use kernspan::report::units;
use std::time::Duration;

/// Formats a time: `1.50 ms`.
pub fn time(nanos: f64) -> String {
    units::time(Duration::from_nanos(nanos.abs().min(u64::MAX as f64) as u64))
}

/// Formats a change of a time: `+1.50 ms`.
pub fn signed(nanos: f64) -> String {
    format!("{}{}", if nanos < 0.0 { '-' } else { '+' }, time(nanos))
}

/// Formats the interval of a change: `+1.20 ms to +1.80 ms`.
pub fn interval(change: &Estimate) -> String {
    format!("{} to {}", signed(change.low), signed(change.high))
}

/// Formats a change in percent of the value before: `+5.0 %`.
pub(crate) fn percent(change: f64, before: f64) -> String {
    match before {
        0.0 => "new".to_owned(),
        _ => format!("{:+.1} %", 100.0 * change / before),
    }
}

/// Formats the interval of a change in percent of the time before: `+1.0 % to +9.0 %`.
fn percent_interval(change: &Estimate, before: f64) -> String {
    // Very few runs give intervals of thousands of percent, whose digits are meaningless.
    const FAR: f64 = 10.0;
    let high = match change.high > FAR * before && change.value < FAR * before && before > 0.0 {
        true => format!("over {:+.0} %", 100.0 * FAR),
        false => percent(change.high, before),
    };
    format!("{} to {high}", percent(change.low, before))
}

/// Formats the times before and after, adjusted for the drift, and the change in percent of `whole` with its interval:
/// `1.20 ms instead of 1.00 ms, +20.0 % (+15.0 % to +25.0 %)`.
pub(crate) fn longer(change: &TimeChange, whole: f64) -> String {
    let (before, after) = (time(change.before.value), time(change.adjusted_after()));
    let value = percent(change.change.value, whole);
    format!("{after} instead of {before}, {value} ({})", percent_interval(&change.change, whole))
}
