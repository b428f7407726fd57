use crate::{constants::result, cupti::Cupti};
use std::{fmt, iter::FusedIterator, ptr};

/// An iterator over the records of an activity buffer, made by [`Cupti::records`].
pub struct Records<'a> {
    cupti: &'a Cupti,
    buffer: &'a [u8],
    record: *mut u8,
    next: Option<*mut u8>,
    started: bool,
    cut_short: bool,
}

/// The size of every record is a multiple of this.
const WORD: usize = 8;

impl Cupti {
    /// Returns the records of a buffer, each as the bytes up to the next record.
    ///
    /// # Safety
    ///
    /// The bytes are the valid part of a buffer that CUPTI filled and gave back.
    #[doc(alias = "cuptiActivityGetNextRecord")]
    pub unsafe fn records<'a>(&'a self, buffer: &'a [u8]) -> Records<'a> {
        Records::new(self, buffer)
    }

    /// Moves `record` on to the next record and returns CUPTI's code, which is
    /// [`MAX_LIMIT_REACHED`](result::MAX_LIMIT_REACHED) at the end.
    ///
    /// # Safety
    ///
    /// As for [`records`](Self::records), and `record` is null or a pointer that this function has set.
    unsafe fn next_record(&self, buffer: *mut u8, length: usize, record: &mut *mut u8) -> u32 {
        // SAFETY: the caller guarantees the buffer, which CUPTI only reads.
        self.functions.activity_get_next_record.map_or(result::UNKNOWN, |f| unsafe { f(buffer, length, record) })
    }
}

impl<'a> Records<'a> {
    fn new(cupti: &'a Cupti, buffer: &'a [u8]) -> Self {
        // CUPTI reads a record's kind before it checks that the record fits. In a buffer of whole words that never
        // reads beyond the end, so an incomplete last word is cut off.
        let buffer = &buffer[..buffer.len() / WORD * WORD];
        Self { cupti, buffer, record: ptr::null_mut(), next: None, started: false, cut_short: false }
    }

    /// Asks CUPTI for the next record, and checks that it lies inside the buffer and after the previous one.
    fn step(&mut self) -> Option<*mut u8> {
        let start = self.buffer.as_ptr().addr();
        let before = self.record.addr();
        // SAFETY: `Cupti::records` requires a buffer that CUPTI filled; `record` is null or was set by CUPTI.
        let code =
            unsafe { self.cupti.next_record(self.buffer.as_ptr().cast_mut(), self.buffer.len(), &mut self.record) };
        let address = self.record.addr();
        let forward = before == 0 || address > before;
        let inside = address >= start && address < start + self.buffer.len();
        let found = code == result::SUCCESS && forward && inside;
        self.cut_short = !found && code != result::MAX_LIMIT_REACHED;
        found.then_some(self.record)
    }

    /// Returns whether the iterator ended before the buffer did, at a record that CUPTI itself does not know. Then the
    /// last slice also contains that record and all bytes after it.
    pub fn is_cut_short(&self) -> bool {
        self.cut_short
    }
}

impl<'a> Iterator for Records<'a> {
    /// The bytes from the beginning of a record to the beginning of the next; for the last, to the end of the buffer.
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        if !self.started {
            self.started = true;
            self.next = self.step();
        }
        let record = self.next.take()?;
        self.next = self.step();
        let start = record.addr() - self.buffer.as_ptr().addr();
        let end = self.next.map_or(self.buffer.len(), |next| next.addr() - self.buffer.as_ptr().addr());
        self.buffer.get(start..end)
    }
}

impl FusedIterator for Records<'_> {}

impl fmt::Debug for Records<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Records").field("bytes", &self.buffer.len()).finish_non_exhaustive()
    }
}
