//! Counters: named numbers that change over time.

use super::Timestamp;
use std::sync::Arc;

/// A named number that changes over time, such as a loss: see [`convention::COUNTER`](super::convention::COUNTER).
#[derive(Clone, Debug, PartialEq)]
pub struct Counter {
    pub(crate) name: Arc<str>,
    pub(crate) samples: Vec<(Timestamp, f64)>,
}

impl Counter {
    /// The name, without the prefix `counter.`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The samples, in chronological order. A value may be infinite or not a number, since a diverged loss is worth
    /// seeing.
    pub fn samples(&self) -> &[(Timestamp, f64)] {
        &self.samples
    }
}
