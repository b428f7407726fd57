//! The points of a chart over a window.

use crate::trace::{Timestamp, Trace};

/// The number of points of a chart.
pub(super) const POINTS: usize = 300;

/// Returns the index of the point that a moment of a window belongs to.
pub(super) fn point(trace: &Trace, at: Timestamp) -> usize {
    let (offset, whole) = (at.since(trace.start()).as_nanos(), trace.duration().as_nanos().max(1));
    let index = offset.saturating_mul(POINTS as u128) / whole;
    usize::try_from(index).unwrap_or(usize::MAX).min(POINTS - 1)
}
