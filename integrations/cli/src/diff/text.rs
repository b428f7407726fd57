//! Numbers of comparisons as text.

use kernspan::{
    analysis::CountKind,
    report::{CountChange, Estimate, units},
};
use std::time::Duration;

/// Formats a time of so many nanoseconds: `1.500ms`.
pub(super) fn time(nanos: f64) -> String {
    units::time(Duration::from_nanos(nanos.abs().min(u64::MAX as f64) as u64))
}

/// Formats a change of so many nanoseconds: `+1.500ms`.
pub(super) fn signed(nanos: f64) -> String {
    format!("{}{}", if nanos < 0.0 { '-' } else { '+' }, time(nanos))
}

/// Formats a change in percent of a value before: `+5.0%`. There is none of nothing.
pub(super) fn percent(change: f64, before: f64) -> Option<String> {
    (before != 0.0).then(|| format!("{:+.1}%", 100.0 * change / before))
}

/// Formats the interval of a change: `+1.200ms to +1.800ms`.
pub(super) fn interval(change: &Estimate) -> String {
    format!("{} to {}", signed(change.low), signed(change.high))
}

/// Returns whether 0 is not in the interval of a change.
pub(super) fn is_sure(change: &Estimate) -> bool {
    change.low > 0.0 || change.high < 0.0
}

/// Formats the change of a count: `+12 launches`.
pub(super) fn count(count: &CountChange) -> String {
    let difference = count.difference();
    let noun = match count.kind {
        CountKind::Kernels if difference.abs() == 1.0 => "launch",
        CountKind::Kernels => "launches",
        CountKind::CopiedBytes => "copied",
        CountKind::AllocatedBytes => "allocated",
        CountKind::Flops => "FLOPs",
        kind => kind.noun(difference.abs() != 1.0),
    };
    let [amount] = units::amounts(count.kind, [difference.abs()]);
    format!("{}{amount} {noun}", if difference < 0.0 { '-' } else { '+' })
}
