//! What a callback is given.

use std::{
    ffi::{c_char, c_void},
    mem::offset_of,
};

/// What CUPTI knows of a call, on entering and on leaving it.
#[doc(alias = "CUpti_CallbackData")]
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct CallbackData {
    /// Whether the function is entered or left: see [`site`](crate::site).
    pub callback_site: u32,
    /// The function's name.
    pub function_name: *const c_char,
    /// A struct with the function's parameters: [`MemAllocParams`] for `cuMemAlloc_v2`, and so on.
    pub function_params: *const c_void,
    /// On leaving, what the function returns: a `CUresult` or a `cudaError_t`.
    pub function_return_value: *const u32,
    /// For a launch, the kernel's mangled name.
    pub symbol_name: *const c_char,
    /// The current context.
    pub context: *mut c_void,
    /// The number of the current context, as records have it.
    pub context_uid: u32,
    /// A word that is the same on entering and on leaving.
    pub correlation_data: *mut u64,
    /// The number of the call, as records have it.
    pub correlation_id: u32,
}

const _: () = assert!(offset_of!(CallbackData, function_name) == 8);
const _: () = assert!(offset_of!(CallbackData, context_uid) == 48);
const _: () = assert!(offset_of!(CallbackData, correlation_id) == 64);

/// The parameters of `cuMemAlloc_v2`, and the first ones of `cuMemAllocAsync`, `cuMemAllocManaged` and
/// `cuMemAllocFromPoolAsync`.
#[doc(alias = "cuMemAlloc_v2_params")]
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct MemAllocParams {
    /// Where the address goes.
    pub dptr: *const u64,
    /// How many bytes.
    pub bytesize: usize,
}

/// The parameters of `cuMemAllocPitch_v2`.
#[doc(alias = "cuMemAllocPitch_v2_params")]
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct MemAllocPitchParams {
    /// Where the address goes.
    pub dptr: *const u64,
    /// Where the bytes of a row go.
    pub pitch: *const usize,
    /// The bytes of a row that were asked for.
    pub width: usize,
    /// How many rows.
    pub height: usize,
}

/// The parameters of `cuMemFree_v2`, and the first one of `cuMemFreeAsync`.
#[doc(alias = "cuMemFree_v2_params")]
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct MemFreeParams {
    /// The address.
    pub dptr: u64,
}
