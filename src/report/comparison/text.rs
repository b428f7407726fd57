//! Numbers of comparisons as text.

use crate::report::units;
use std::time::Duration;

/// Formats a time of so many nanoseconds: `1.500ms`.
pub(crate) fn time(nanos: f64) -> String {
    units::time(Duration::from_nanos(nanos.abs().min(u64::MAX as f64) as u64))
}

/// Formats a change of so many nanoseconds: `+1.500ms`.
pub(crate) fn signed(nanos: f64) -> String {
    format!("{}{}", if nanos < 0.0 { '-' } else { '+' }, time(nanos))
}

/// Formats a change in percent of a time before: `+5.0 %`.
pub(crate) fn percent(change: f64, before: f64) -> String {
    match before {
        0.0 => "new".to_owned(),
        _ => format!("{:+.1} %", 100.0 * change / before),
    }
}
