//! Callbacks that CUPTI calls, and the structs it passes to them.

use crate::layout::structs;
use std::ffi::{c_char, c_void};

/// A callback that hands out a buffer: its address, its size in bytes, and the most records it may hold (0: no limit).
#[doc(alias = "CUpti_BuffersCallbackRequestFunc")]
pub type BufferRequested = unsafe extern "C" fn(buffer: *mut *mut u8, size: *mut usize, max_records: *mut usize);

/// A callback that takes a buffer back, with the number of its bytes that hold records.
#[doc(alias = "CUpti_BuffersCallbackCompleteFunc")]
pub type BufferCompleted =
    unsafe extern "C" fn(context: *mut c_void, stream: u32, buffer: *mut u8, size: usize, valid: usize);

/// A callback for the beginning and the end of API calls; `about` points to a [`CallbackData`].
#[doc(alias = "CUpti_CallbackFunc")]
pub type Callback = unsafe extern "C" fn(data: *mut c_void, domain: u32, cbid: u32, about: *const c_void);

/// A handle for a subscribed [`Callback`], made by [`Cupti::subscribe`](crate::Cupti::subscribe).
#[doc(alias = "CUpti_SubscriberHandle")]
#[derive(Clone, Copy, Debug)]
pub struct Subscriber(pub(crate) *mut c_void);

// SAFETY: it is a handle that CUPTI accepts from any thread.
unsafe impl Send for Subscriber {}
// SAFETY: as above.
unsafe impl Sync for Subscriber {}

structs! {
    /// An API call, as passed to a [`Callback`] at the call's beginning and end.
    CallbackData, "CUpti_CallbackData" {
        /// The beginning or the end of the call: see [`site`](crate::site).
        0 callback_site: u32,
        /// The function's name.
        8 function_name: *const c_char,
        /// A struct of the function's parameters, such as [`MemAllocParams`] for `cuMemAlloc_v2`.
        16 function_params: *const c_void,
        /// The function's return value, a `CUresult` or a `cudaError_t`; only at the call's end.
        24 function_return_value: *const u32,
        /// The kernel's mangled name; only for launches.
        32 symbol_name: *const c_char,
        /// The current context.
        40 context: *mut c_void,
        /// The id of the current context, the same as in records.
        48 context_uid: u32,
        /// A word for the subscriber's use, shared between the call's beginning and its end.
        56 correlation_data: *mut u64,
        /// The correlation id of the call, the same as in records.
        64 correlation_id: u32,
    }

    /// The parameters of `cuMemAlloc_v2`, and the first ones of `cuMemAllocAsync`, `cuMemAllocManaged` and
    /// `cuMemAllocFromPoolAsync`.
    MemAllocParams, "cuMemAlloc_v2_params" {
        /// Receives the address.
        0 dptr: *const u64,
        /// The number of bytes.
        8 bytesize: usize,
    }

    /// The parameters of `cuMemAllocPitch_v2`.
    MemAllocPitchParams, "cuMemAllocPitch_v2_params" {
        /// Receives the address.
        0 dptr: *const u64,
        /// Receives the bytes of a row.
        8 pitch: *const usize,
        /// The requested bytes of a row.
        16 width: usize,
        /// The number of rows.
        24 height: usize,
    }

    /// The parameters of `cuMemFree_v2`, and the first one of `cuMemFreeAsync`.
    MemFreeParams, "cuMemFree_v2_params" {
        /// The address.
        0 dptr: u64,
    }

    /// The first parameters of `cuMemcpyHtoDAsync_v2`.
    MemcpyToDeviceParams, "cuMemcpyHtoDAsync_v2_params" {
        /// The address on the device.
        0 dst_device: u64,
        /// The address on the host.
        8 src_host: *const c_void,
        /// The number of bytes.
        16 byte_count: usize,
    }
}
