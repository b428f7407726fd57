//! How the span of GPU work was found.

use super::Trace;
use std::ops::AddAssign;

/// How the span of GPU work, an API call or an operation was found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Attribution {
    /// The span is the innermost one open on the calling thread during the call.
    Direct,
    /// The call was made on behalf of a span that may be on another thread: see [`Origin`](crate::framework::Origin).
    HandedOff,
    /// The call was made in the window, but requested before the window opened. The span that requested it is unknown.
    Before,
    /// The span is unknown: none was open, or the call that caused the work was not recorded.
    #[default]
    Unattributed,
}

impl Attribution {
    /// The name: `direct`, `handed off`, `before` or `unattributed`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::HandedOff => "handed off",
            Self::Before => "before",
            Self::Unattributed => "unattributed",
        }
    }
}

/// The number of pieces of GPU work with each kind of [`Attribution`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Attributions {
    /// Work with [`Attribution::Direct`].
    pub direct: u64,
    /// Work with [`Attribution::HandedOff`].
    pub handed_off: u64,
    /// Work with [`Attribution::Before`].
    pub before: u64,
    /// Work with [`Attribution::Unattributed`].
    pub unattributed: u64,
}

impl Attributions {
    /// The sum of all four.
    pub fn total(&self) -> u64 {
        self.direct + self.handed_off + self.before + self.unattributed
    }

    pub(crate) fn count(&mut self, attribution: Attribution) {
        match attribution {
            Attribution::Direct => self.direct += 1,
            Attribution::HandedOff => self.handed_off += 1,
            Attribution::Before => self.before += 1,
            Attribution::Unattributed => self.unattributed += 1,
        }
    }
}

impl AddAssign for Attributions {
    fn add_assign(&mut self, other: Self) {
        self.direct += other.direct;
        self.handed_off += other.handed_off;
        self.before += other.before;
        self.unattributed += other.unattributed;
    }
}

impl Trace {
    /// The number of pieces of GPU work with each kind of [`Attribution`].
    pub fn attributions(&self) -> Attributions {
        let mut counts = Attributions::default();
        self.work.iter().for_each(|work| counts.count(work.attribution));
        counts
    }
}
