//! The control word: whether spans are recorded, and for which window.

/// The control word, which the hot path reads first: whether to record, and for which window. It changes whenever a
/// window opens or closes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Control(u64);

impl Control {
    pub(crate) const OFF: Self = Self(0);

    // The marks are just below the number of the window. The bits below them are free for keys that contain the word:
    // see `callsite_cache`.

    /// The mark that the heap is counted.
    pub(super) const HEAP: u64 = 1 << 31;
    /// The mark that spans have CPU time.
    pub(super) const CPU_TIME: u64 = 1 << 30;

    /// Returns the word for storing in an atomic.
    pub(super) const fn as_u64(self) -> u64 {
        self.0
    }

    pub(super) const fn from_u64(word: u64) -> Self {
        Self(word)
    }

    /// Returns the word for when nothing is recorded, after `closed` windows.
    pub(crate) fn waiting(closed: u32) -> Self {
        Self(1 | u64::from(closed) << 32)
    }

    /// Returns the word for when this window is open.
    pub(crate) fn recording(window: u32) -> Self {
        Self(2 | u64::from(window) << 32)
    }

    /// Returns the word with these marks, unless it is off.
    pub(super) fn marked(self, marks: u64) -> Self {
        if self.is_off() { self } else { Self(self.0 | marks) }
    }

    /// Whether something is measured at each enter and exit: the heap, CPU time, or both.
    #[inline]
    pub(super) fn measures(self) -> bool {
        self.0 & (Self::HEAP | Self::CPU_TIME) != 0
    }

    /// Whether the heap is counted: see [`heap`](crate::heap).
    pub(super) fn counts_heap(self) -> bool {
        self.0 & Self::HEAP != 0
    }

    /// Whether spans have CPU time: see [`CpuTime::spans`](crate::CpuTime::spans).
    pub(super) fn times_cpu(self) -> bool {
        self.0 & Self::CPU_TIME != 0
    }

    pub(super) fn is_off(self) -> bool {
        self == Self::OFF
    }

    pub(super) fn is_recording(self) -> bool {
        self.0 & 2 != 0
    }

    /// The number of the open window, or else of the next.
    pub(super) fn window(self) -> u32 {
        (self.0 >> 32) as u32
    }
}
