//! Numbers as words of sentences.

pub(super) use crate::units::{bytes, time};

use std::time::Duration;

/// Nanoseconds as a time: `3.90 ms`.
pub(super) fn nanos(nanos: u64) -> String {
    time(Duration::from_nanos(nanos))
}

/// How often something happens in a step: `3 times`, `once`, `0.2 times`.
pub(super) fn times(count: usize, steps: usize) -> String {
    match count as f64 / steps.max(1) as f64 {
        1.0 => "once".to_owned(),
        2.0 => "twice".to_owned(),
        rate => format!("{} times", digits(rate)),
    }
}

/// A number with about three digits, and none that say nothing.
pub(super) fn digits(value: f64) -> String {
    match value {
        _ if value.fract() == 0.0 && value < 1e6 => format!("{value}"),
        _ if value >= 100.0 => format!("{value:.0}"),
        _ if value >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}
