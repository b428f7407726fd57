//! The policy for detaching the GPU's library between windows, so that launches are not slowed down.

use crate::schedule::WaitLength;
use std::time::Duration;

/// How long the library stays attached while nothing is recorded, and how often it may be detached.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DetachPolicy {
    /// The time without a window after which the library is detached.
    pub(crate) after: Duration,
    /// Whether the user set that time, so that the schedule does not change it.
    pub(crate) fixed: bool,
    /// The maximum number of times that the library is detached between windows.
    pub(crate) most: u32,
}

impl DetachPolicy {
    /// How much longer a launch, copy or fill takes while CUPTI is attached and off: the median on an H200 with CUPTI
    /// 13.0.1 (`benches/README.md`).
    const CALL_OVERHEAD: Duration = Duration::from_nanos(700);
    /// How long it takes to detach CUPTI and to attach it again; measured likewise.
    const REATTACH_TIME: Duration = Duration::from_millis(12);

    /// The minimum time between detaching the library and attaching it again, since a thread may be suspended on its
    /// way back from a callback into CUPTI.
    pub(crate) const REATTACH_DELAY: Duration = Duration::from_millis(100);

    /// Returns how long to stay attached in a wait, given the length of the last window's steps and the launches in
    /// each.
    pub(crate) fn after(&self, wait: WaitLength, step: Duration, launches_per_step: u64) -> Duration {
        let steps = match wait {
            WaitLength::Steps(steps) => steps,
            WaitLength::Forever => u64::MAX,
            WaitLength::Unknown => 0,
        };
        let of_steps = |each: Duration| each.as_nanos().saturating_mul(steps.into());
        let saves =
            of_steps(Self::CALL_OVERHEAD).saturating_mul(launches_per_step.into()) > Self::REATTACH_TIME.as_nanos();
        let pays = saves && of_steps(step) > 2 * Self::REATTACH_DELAY.as_nanos();
        if !self.fixed && (pays || wait == WaitLength::Forever) { Duration::ZERO } else { self.after }
    }
}

#[cfg(test)]
mod tests {
    use super::{DetachPolicy, WaitLength};
    use std::time::Duration;

    #[test]
    fn the_library_is_detached_at_once_if_the_schedule_says_that_it_pays() {
        let after = Duration::from_millis(250);
        let detach = DetachPolicy { after, fixed: false, most: 1 };
        let step = Duration::from_millis(4);
        assert_eq!(detach.after(WaitLength::Steps(15), step, 640), after);
        assert_eq!(detach.after(WaitLength::Steps(100), step, 640), Duration::ZERO);
        assert_eq!(detach.after(WaitLength::Steps(100), step, 0), after);
        // The wait is so short that the next window would have to wait for the library.
        assert_eq!(detach.after(WaitLength::Steps(100), step / 2, 640), after);
        assert_eq!(detach.after(WaitLength::Forever, Duration::ZERO, 0), Duration::ZERO);
        assert_eq!(detach.after(WaitLength::Unknown, Duration::MAX, u64::MAX), after);
        let fixed = DetachPolicy { fixed: true, ..detach };
        assert_eq!(fixed.after(WaitLength::Forever, step, u64::MAX), after);
    }
}
