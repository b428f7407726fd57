//! The mean occupancy of kernels.

use crate::trace::{Trace, Work};

/// The mean occupancy of kernels, weighted by their duration.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct MeanOccupancy {
    percent_seconds: f64,
    seconds: f64,
}

impl MeanOccupancy {
    /// Adds a piece of work, if it is a kernel whose occupancy is known.
    pub(super) fn add_work(&mut self, trace: &Trace, work: Work<'_>) {
        let device = trace.device(work.stream().device());
        let occupancy = device.zip(work.kernel()).and_then(|(device, kernel)| device.occupancy(kernel));
        if let Some(occupancy) = occupancy {
            let seconds = work.duration().as_secs_f64();
            self.percent_seconds += occupancy.percent * seconds;
            self.seconds += seconds;
        }
    }

    /// Adds the kernels of another mean.
    pub(super) fn add(&mut self, other: &Self) {
        self.percent_seconds += other.percent_seconds;
        self.seconds += other.seconds;
    }

    /// Returns the mean in percent, or `None` if no kernel's occupancy is known.
    pub(super) fn percent(&self) -> Option<f64> {
        (self.seconds > 0.0).then(|| self.percent_seconds / self.seconds)
    }
}
