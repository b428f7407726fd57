//! What a callback is given.

use crate::layout::structs;
use std::ffi::{c_char, c_void};

structs! {
    /// What CUPTI knows of a call, on entering and on leaving it.
    CallbackData, "CUpti_CallbackData" {
        /// Whether the function is entered or left: see [`site`](crate::site).
        0 callback_site: u32,
        /// The function's name.
        8 function_name: *const c_char,
        /// A struct with the function's parameters: [`MemAllocParams`] for `cuMemAlloc_v2`, and so on.
        16 function_params: *const c_void,
        /// On leaving, what the function returns: a `CUresult` or a `cudaError_t`.
        24 function_return_value: *const u32,
        /// For a launch, the kernel's mangled name.
        32 symbol_name: *const c_char,
        /// The current context.
        40 context: *mut c_void,
        /// The number of the current context, as records have it.
        48 context_uid: u32,
        /// A word that is the same on entering and on leaving.
        56 correlation_data: *mut u64,
        /// The number of the call, as records have it.
        64 correlation_id: u32,
    }

    /// The parameters of `cuMemAlloc_v2`, and the first ones of `cuMemAllocAsync`, `cuMemAllocManaged` and
    /// `cuMemAllocFromPoolAsync`.
    MemAllocParams, "cuMemAlloc_v2_params" {
        /// Where the address goes.
        0 dptr: *const u64,
        /// How many bytes.
        8 bytesize: usize,
    }

    /// The parameters of `cuMemAllocPitch_v2`.
    MemAllocPitchParams, "cuMemAllocPitch_v2_params" {
        /// Where the address goes.
        0 dptr: *const u64,
        /// Where the bytes of a row go.
        8 pitch: *const usize,
        /// The bytes of a row that were asked for.
        16 width: usize,
        /// How many rows.
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
        /// How many bytes.
        16 byte_count: usize,
    }
}
