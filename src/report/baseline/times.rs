//! The times of a span in the steps of a run.

/// A time for each kept step of a run, in nanoseconds. It is empty if all are 0.
///
/// They take four bytes each, which is exact to one part in 16 million.
#[derive(Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "read", derive(serde::Deserialize))]
#[cfg_attr(feature = "read", serde(transparent))]
pub struct Times(Vec<f32>);

impl Times {
    /// Adds the time of the step with this index, after which there is one for each step up to it.
    pub(super) fn set(&mut self, step: usize, nanos: f32) {
        if nanos > 0.0 || !self.0.is_empty() {
            self.0.resize(step, 0.0);
            self.0.push(nanos);
        }
    }

    /// Adds the time of the next step, also if it is 0.
    pub(in crate::report) fn push(&mut self, nanos: f32) {
        self.0.push(nanos);
    }

    /// Removes every second time.
    pub(super) fn thin(&mut self) {
        let mut index = 0_usize;
        self.0.retain(|_| {
            index += 1;
            index % 2 == 1
        });
    }

    /// Returns the time of the kept step with this index.
    pub fn get(&self, step: usize) -> f64 {
        self.0.get(step).copied().map_or(0.0, f64::from)
    }

    /// Returns whether all times are 0.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the number of times.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Replaces what is no time, as a file may have it.
    #[cfg(feature = "read")]
    pub(super) fn mend(&mut self) {
        self.0.iter_mut().filter(|time| !time.is_finite() || **time < 0.0).for_each(|time| *time = 0.0);
    }
}

#[cfg(any(feature = "read", feature = "serde"))]
impl serde::Serialize for Times {
    /// Writes whole numbers, which are shorter.
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.iter().map(|time| *time as u64))
    }
}
