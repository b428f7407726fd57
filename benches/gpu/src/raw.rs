//! Recording with CUPTI alone, without reading the records: a lower bound of the cost of recording.

use cupti_sys::{Cupti, Subscriber, cbid, domain, flush, kind, thread_id_type};
use std::ffi::c_void;

/// The driver functions with which Rust frameworks launch kernels.
const LAUNCHES: [u32; 4] =
    [cbid::LAUNCH_KERNEL, cbid::LAUNCH_KERNEL_PTSZ, cbid::LAUNCH_KERNEL_EX, cbid::LAUNCH_KERNEL_EX_PTSZ];

/// Starts recording kernels and copies, and launches by records (`calls`) or by empty callbacks (`callbacks`). With
/// `memory` there is an empty callback for each allocation and free. Buffers are discarded.
///
/// # Panics
///
/// If CUPTI fails.
#[allow(unsafe_code, reason = "CUPTI is a C library")]
pub fn on(cupti: &Cupti, calls: bool, callbacks: bool, memory: bool) -> Subscriber {
    unsafe extern "C" fn called(_: *mut c_void, _: u32, _: u32, _: *const c_void) {}
    unsafe extern "C" fn requested(buffer: *mut *mut u8, size: *mut usize, max_records: *mut usize) {
        let memory = Box::leak(vec![0_u64; 1 << 15].into_boxed_slice());
        // SAFETY: CUPTI passes valid pointers.
        unsafe {
            *buffer = memory.as_mut_ptr().cast();
            *size = 1 << 18;
            *max_records = 0;
        }
    }
    unsafe extern "C" fn completed(_: *mut c_void, _: u32, buffer: *mut u8, size: usize, _: usize) {
        // SAFETY: it is a buffer from `requested`.
        drop(unsafe { Box::from_raw(std::ptr::slice_from_raw_parts_mut(buffer.cast::<u64>(), size / 8)) });
    }
    // SAFETY: the callback does nothing.
    let subscriber = unsafe { cupti.subscribe(called, std::ptr::null_mut()) }.expect("CUPTI");
    cupti.set_thread_id_type(thread_id_type::SYSTEM).expect("CUPTI");
    // SAFETY: both callbacks do not unwind, and buffers stay valid until they are given back.
    unsafe { cupti.activity_register_callbacks(requested, completed) }.expect("CUPTI");
    for kind in [kind::CONCURRENT_KERNEL, kind::MEMCPY, kind::MEMSET] {
        cupti.activity_enable(kind).expect("CUPTI");
    }
    for function in LAUNCHES {
        if calls {
            cupti.activity_enable_driver_api(function, true).expect("CUPTI");
        }
        if callbacks {
            cupti.enable_callback(subscriber, domain::DRIVER_API, function, true).expect("CUPTI");
        }
    }
    for function in [cbid::MEM_ALLOC_ASYNC, cbid::MEM_FREE_ASYNC].into_iter().filter(|_| memory) {
        cupti.enable_callback(subscriber, domain::DRIVER_API, function, true).expect("CUPTI");
    }
    subscriber
}

/// Stops recording, and detaches CUPTI.
///
/// # Panics
///
/// If CUPTI fails.
#[allow(unsafe_code, reason = "CUPTI is a C library")]
pub fn off(cupti: &Cupti, subscriber: Subscriber) {
    for kind in [kind::CONCURRENT_KERNEL, kind::MEMCPY, kind::MEMSET] {
        cupti.activity_disable(kind).expect("CUPTI");
    }
    for function in LAUNCHES {
        let _ = cupti.activity_enable_driver_api(function, false);
    }
    cupti.activity_flush_all(flush::FORCED).expect("CUPTI");
    cupti.unsubscribe(subscriber).expect("CUPTI");
    // SAFETY: nothing else uses CUPTI now, and all buffers are flushed.
    unsafe { cupti.finalize() }.expect("CUPTI");
}
