use super::Timestamp;
use std::sync::Arc;

/// A number that changes over time: see [`convention::COUNTER`](super::convention::COUNTER).
#[derive(Clone, Debug, PartialEq)]
pub struct Counter {
    pub(crate) name: Arc<str>,
    pub(crate) samples: Vec<(Timestamp, f64)>,
}

impl Counter {
    /// The name, without the prefix of the convention.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The samples, in order of time. A value may not be finite: a diverged loss is worth seeing.
    pub fn samples(&self) -> &[(Timestamp, f64)] {
        &self.samples
    }
}
