/// The word that the hot path reads first: whether to record, and for which window. Every window's edge changes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Control(u64);

impl Control {
    pub(crate) const OFF: Self = Self(0);

    /// The word, to be put into an atomic.
    pub(super) const fn as_u64(self) -> u64 {
        self.0
    }

    pub(super) const fn from_u64(word: u64) -> Self {
        Self(word)
    }

    /// Nothing is recorded; `closed` windows have been.
    pub(crate) fn waiting(closed: u32) -> Self {
        Self(1 | u64::from(closed) << 32)
    }

    /// This window is open.
    pub(crate) fn recording(window: u32) -> Self {
        Self(2 | u64::from(window) << 32)
    }

    pub(super) fn is_off(self) -> bool {
        self == Self::OFF
    }

    pub(super) fn is_recording(self) -> bool {
        self.0 & 2 != 0
    }

    /// The number of the window that is open, or else of the next.
    pub(super) fn window(self) -> u32 {
        (self.0 >> 32) as u32
    }
}
