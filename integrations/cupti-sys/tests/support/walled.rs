//! Memory that ends at a wall: to read a byte beyond it ends the process.

use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap_anonymous, mprotect, munmap};
use std::{ffi::c_void, ops::Deref, ptr, slice};

/// Bytes right before memory that must not be touched.
pub(crate) struct Walled {
    mapping: *mut c_void,
    pages: usize,
    length: usize,
}

const PAGE: usize = 4096;

impl Walled {
    pub(crate) fn new(bytes: &[u8]) -> Self {
        let pages = bytes.len().div_ceil(PAGE) + 1;
        let length = pages * PAGE;
        // SAFETY: the mapping is new, so nobody has it; the bytes go before the last page, which nobody may touch afterwards.
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

impl Deref for Walled {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: these are the bytes that were put there.
        unsafe {
            slice::from_raw_parts(self.mapping.cast::<u8>().add((self.pages - 1) * PAGE - self.length), self.length)
        }
    }
}

impl Drop for Walled {
    fn drop(&mut self) {
        // SAFETY: it is ours, and nobody has a reference to it any more.
        unsafe { munmap(self.mapping, self.pages * PAGE) }.unwrap();
    }
}
