use std::ops::AddAssign;

/// How it is known which span a thing of the GPU belongs to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Attribution {
    /// By the thread that called the GPU's API: the span is the innermost one open there during the call.
    Direct,
    /// The call was made on another thread, on behalf of the span: see [`Origin`](crate::framework::Origin).
    HandedOff,
    /// The call was made in the window for something that was asked for before it, so its span is not in the window.
    Before,
    /// It is not known: there was no span, or the call that caused it was not seen.
    #[default]
    Unattributed,
}

impl Attribution {
    /// `direct`, `handed off`, `before` or `unattributed`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::HandedOff => "handed off",
            Self::Before => "before",
            Self::Unattributed => "unattributed",
        }
    }
}

/// How many things of the GPU were attributed in which way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Attributions {
    /// See [`Attribution::Direct`].
    pub direct: u64,
    /// See [`Attribution::HandedOff`].
    pub handed_off: u64,
    /// See [`Attribution::Before`].
    pub before: u64,
    /// See [`Attribution::Unattributed`].
    pub unattributed: u64,
}

impl Attributions {
    /// All of them.
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
