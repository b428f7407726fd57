//! A count of kernels, copies and fills with CUPTI alone, independent of kernspan.

#![allow(unsafe_code, reason = "CUPTI is a C library")]

use crate::training::Training;
use cupti_sys::{Cupti, Driver, flush, kind};
use std::{
    ffi::c_void,
    sync::{
        OnceLock,
        atomic::{AtomicU64, Ordering},
    },
};

static CUPTI: OnceLock<Cupti> = OnceLock::new();
static RECORDS: AtomicU64 = AtomicU64::new(0);
const KINDS: [u32; 3] = [kind::CONCURRENT_KERNEL, kind::MEMCPY, kind::MEMSET];
const WORDS: usize = 1 << 17;

/// Counts the kernels, copies and fills of this many steps between two waits for the GPU, as in a window.
///
/// The count is not a multiple of one step's count if operations are fused, because waiting splits fusions across
/// steps.
///
/// # Panics
///
/// Without CUPTI, or if two counts differ.
pub(crate) fn steps(training: &mut impl Training, steps: u64) -> u64 {
    let cupti = CUPTI.get_or_init(|| Cupti::find(Driver::load().expect("a driver")).expect("CUPTI"));
    let [first, second] = [(); 2].map(|()| count(cupti, training, steps));
    assert_eq!(first, second, "kernels, copies and fills in {steps} steps");
    first
}

/// Records this many steps, detaches CUPTI, and returns the number of records.
fn count(cupti: &Cupti, training: &mut impl Training, steps: u64) -> u64 {
    training.synchronize();
    // SAFETY: both callbacks do not unwind, and buffers stay valid until they are given back.
    unsafe { cupti.activity_register_callbacks(requested, completed) }.expect("CUPTI");
    KINDS.iter().for_each(|kind| cupti.activity_enable(*kind).expect("CUPTI"));
    (0..steps).for_each(|_| training.step());
    training.synchronize();
    cupti.activity_flush_all(flush::FORCED).expect("CUPTI");
    KINDS.iter().for_each(|kind| cupti.activity_disable(*kind).expect("CUPTI"));
    // SAFETY: nothing else uses CUPTI now, and all buffers are flushed.
    unsafe { cupti.finalize() }.expect("CUPTI");
    RECORDS.swap(0, Ordering::Relaxed)
}

unsafe extern "C" fn requested(buffer: *mut *mut u8, size: *mut usize, max_records: *mut usize) {
    let memory = Box::leak(vec![0_u64; WORDS].into_boxed_slice());
    // SAFETY: CUPTI passes valid pointers.
    unsafe {
        *buffer = memory.as_mut_ptr().cast();
        *size = WORDS * 8;
        *max_records = 0;
    }
}

unsafe extern "C" fn completed(_: *mut c_void, _: u32, buffer: *mut u8, size: usize, valid: usize) {
    if let Some(cupti) = CUPTI.get().filter(|_| !buffer.is_null()) {
        // SAFETY: it is a buffer from `requested`, with `valid` bytes of records.
        let mut records = unsafe { cupti.records(std::slice::from_raw_parts(buffer, valid)) };
        let kind = |record: &[u8]| record.first_chunk().map_or(0, |kind| u32::from_ne_bytes(*kind));
        let counted = (&mut records).filter(|record| KINDS.contains(&kind(record))).count();
        RECORDS.fetch_add(counted as u64, Ordering::Relaxed);
        // SAFETY: as above.
        drop(unsafe { Box::from_raw(std::ptr::slice_from_raw_parts_mut(buffer.cast::<u64>(), size / 8)) });
    }
}
