//! Numbers as words of sentences.

use std::time::Duration;

/// A time with three digits: `412 µs`, `3.90 ms`.
pub(super) fn time(time: Duration) -> String {
    let nanos = time.as_nanos() as f64;
    let (value, unit) = match nanos {
        _ if nanos >= 1e9 => (nanos / 1e9, "s"),
        _ if nanos >= 1e6 => (nanos / 1e6, "ms"),
        _ => (nanos / 1e3, "µs"),
    };
    format!("{} {unit}", digits(value))
}

/// Nanoseconds as a time.
pub(super) fn nanos(nanos: u64) -> String {
    time(Duration::from_nanos(nanos))
}

/// A number of bytes with three digits: `16.0 MiB`.
pub(super) fn bytes(bytes: u64) -> String {
    let bytes = bytes as f64;
    let (value, unit) = match bytes {
        _ if bytes >= f64::from(1 << 30) => (bytes / f64::from(1 << 30), "GiB"),
        _ if bytes >= f64::from(1 << 20) => (bytes / f64::from(1 << 20), "MiB"),
        _ if bytes >= 1024.0 => (bytes / 1024.0, "KiB"),
        _ => return format!("{bytes} bytes"),
    };
    format!("{} {unit}", digits(value))
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
