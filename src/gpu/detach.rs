//! When to let the GPU's library go between windows.

use crate::schedule::WaitLength;
use std::time::Duration;

/// How long the library stays attached while nothing is recorded, and how often it is let go.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Detach {
    /// After so long without a window.
    pub(crate) after: Duration,
    /// Whether the user said so, and not even the schedule knows better.
    pub(crate) fixed: bool,
    /// At the most so often.
    pub(crate) most: u32,
}

impl Detach {
    /// By how much a launch, copy or fill takes longer while CUPTI is attached and off: the middle of what was measured on an H200
    /// with CUPTI 13.0.1 (`benches/README.md`).
    const CALL: Duration = Duration::from_nanos(700);
    /// How long it takes to let CUPTI go and to attach it again; measured likewise.
    const AGAIN: Duration = Duration::from_millis(12);

    /// How long to stay attached in a wait after a window in whose steps the GPU was given so much work.
    pub(crate) fn after(&self, wait: WaitLength, launches_per_step: u64) -> Duration {
        let launches = match wait {
            WaitLength::Steps(steps) => steps.saturating_mul(launches_per_step),
            WaitLength::Forever => u64::MAX,
            WaitLength::Unknown => 0,
        };
        let pays = u128::from(launches) * Self::CALL.as_nanos() > Self::AGAIN.as_nanos();
        if pays && !self.fixed { Duration::ZERO } else { self.after }
    }
}

#[cfg(test)]
mod tests {
    use super::{Detach, WaitLength};
    use std::time::Duration;

    #[test]
    fn the_library_is_let_go_at_once_where_the_schedule_says_that_it_pays() {
        let after = Duration::from_millis(250);
        let detach = Detach { after, fixed: false, most: 1 };
        assert_eq!(detach.after(WaitLength::Steps(15), 640), after);
        assert_eq!(detach.after(WaitLength::Steps(100), 640), Duration::ZERO);
        assert_eq!(detach.after(WaitLength::Steps(100), 0), after);
        assert_eq!(detach.after(WaitLength::Forever, 0), Duration::ZERO);
        assert_eq!(detach.after(WaitLength::Unknown, u64::MAX), after);
        let fixed = Detach { fixed: true, ..detach };
        assert_eq!(fixed.after(WaitLength::Forever, u64::MAX), after);
    }
}
