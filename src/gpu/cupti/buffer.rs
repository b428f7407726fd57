//! The memory that CUPTI writes records into.

/// A buffer that CUPTI writes records into, aligned to eight bytes.
#[derive(Debug)]
pub(super) struct Buffer(Box<[u64]>);

impl Buffer {
    /// The size in words, enough for a thousand launches. CUPTI returns a buffer only when all work recorded in it is
    /// done, so small buffers come back sooner.
    const WORDS: usize = (256 << 10) / 8;

    pub(super) fn new() -> Self {
        Self(vec![0; Self::WORDS].into_boxed_slice())
    }

    pub(super) fn into_raw(self) -> (*mut u8, usize) {
        let bytes = size_of_val(&*self.0);
        (Box::into_raw(self.0).cast(), bytes)
    }

    /// Recreates the buffer from what [`into_raw`](Self::into_raw) returned.
    ///
    /// # Safety
    ///
    /// Both arguments come from [`into_raw`](Self::into_raw), and the buffer is no longer in use.
    pub(super) unsafe fn from_raw(bytes: *mut u8, length: usize) -> Self {
        let words = std::ptr::slice_from_raw_parts_mut(bytes.cast::<u64>(), length / 8);
        // SAFETY: the caller guarantees that this came from a box of this many words.
        Self(unsafe { Box::from_raw(words) })
    }

    /// Returns the first `valid` bytes.
    pub(super) fn bytes(&self, valid: usize) -> &[u8] {
        let length = size_of_val(&*self.0).min(valid);
        // SAFETY: this many bytes are there, and any of them is a `u8`.
        unsafe { std::slice::from_raw_parts(self.0.as_ptr().cast(), length) }
    }
}
