//! Bytes in front of a guard page, so that reading beyond their end stops the process.

use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap_anonymous, mprotect, munmap};
use std::{ffi::c_void, ops::Deref, ptr, slice};

/// Bytes that end right before a page that may not be accessed.
pub(crate) struct GuardedBytes {
    mapping: *mut c_void,
    pages: usize,
    length: usize,
}

const PAGE: usize = 4096;

impl GuardedBytes {
    pub(crate) fn new(bytes: &[u8]) -> Self {
        let pages = bytes.len().div_ceil(PAGE) + 1;
        let length = pages * PAGE;
        // SAFETY: the mapping is new and ours alone; the bytes go before its last page, which is never accessed again.
        unsafe {
            let mapping =
                mmap_anonymous(ptr::null_mut(), length, ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE).unwrap();
            mprotect(mapping.byte_add(length - PAGE), PAGE, MprotectFlags::empty()).unwrap();
            let start = mapping.cast::<u8>().add(length - PAGE - bytes.len());
            ptr::copy_nonoverlapping(bytes.as_ptr(), start, bytes.len());
            Self { mapping, pages, length: bytes.len() }
        }
    }
}

impl Deref for GuardedBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: these are the bytes that `new` copied there.
        unsafe {
            slice::from_raw_parts(self.mapping.cast::<u8>().add((self.pages - 1) * PAGE - self.length), self.length)
        }
    }
}

impl Drop for GuardedBytes {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and no reference to it is left.
        unsafe { munmap(self.mapping, self.pages * PAGE) }.unwrap();
    }
}
