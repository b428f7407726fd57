//! Moments on the wall clock.

use std::{fmt, ops::Add, time::Duration};

/// A moment, in nanoseconds since the Unix epoch.
///
/// Everything in one [`Trace`](crate::Trace) is on one clock, so moments of one trace can be compared and subtracted.
///
/// ```
/// use kernspan::trace::Timestamp;
/// use std::time::Duration;
///
/// let start = Timestamp::from_unix_nanos(1_000);
/// let end = Timestamp::from_unix_nanos(1_250);
/// assert_eq!(end.since(start), Duration::from_nanos(250));
/// assert_eq!(start.since(end), Duration::ZERO);
/// ```
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(u64);

impl Timestamp {
    /// The moment `nanos` after the Unix epoch.
    pub const fn from_unix_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// The current time of the wall clock.
    ///
    /// ```
    /// # use kernspan::trace::Timestamp;
    /// let before = Timestamp::from_unix_nanos(1_700_000_000_000_000_000); // November 2023
    /// assert!(Timestamp::now() > before);
    /// ```
    pub fn now() -> Self {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        Self::default() + since
    }

    /// Nanoseconds since the Unix epoch.
    pub const fn as_unix_nanos(self) -> u64 {
        self.0
    }

    /// The time from `earlier` to this moment; zero if `earlier` is later.
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Timestamp {
    type Output = Self;

    /// The moment `time` later.
    fn add(self, time: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)))
    }
}

impl fmt::Debug for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:09}", self.0 / 1_000_000_000, self.0 % 1_000_000_000)
    }
}
