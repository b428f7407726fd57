//! Calls of the API, written into the lane of the thread that makes them, between the spans around them: so it is known exactly
//! which span each belongs to.

use crate::{
    clock::Ticks,
    gpu::{Activities, Activity},
    host::{Host, MemoryCall, MemoryFacts},
    trace::MemoryChange,
};
use cupti_sys::{CallbackData, MemAllocParams, MemAllocPitchParams, MemFreeParams, cbid, domain, site};
use std::{ffi::c_void, sync::Arc};

/// Whom CUPTI's callbacks tell.
#[derive(Debug)]
pub(super) struct Watch {
    pub(super) host: Arc<Host>,
    /// Whether what calls do to memory is asked for.
    pub(super) memory: bool,
    /// Whether all calls are asked for.
    pub(super) all: bool,
}

/// The functions of the driver to be called back for.
pub(super) fn functions(activities: Activities) -> impl Iterator<Item = u32> {
    cbid::ALL.iter().filter(move |(name, _)| is_wanted(name, activities)).map(|(_, function)| *function)
}

fn is_wanted(name: &str, activities: Activities) -> bool {
    let function = name.trim_start_matches("CUPTI_DRIVER_TRACE_CBID_");
    let starts = |prefixes: &[&str]| prefixes.iter().any(|prefix| function.starts_with(prefix));
    let launches = ["cuLaunch", "cuGraphLaunch", "cuStreamBeginCapture", "cuStreamEndCapture"];
    let waits = ["cuStreamSynchronize", "cuEventSynchronize", "cuCtxSynchronize", "cuStreamWaitEvent"];
    (activities.has(Activity::Kernels) && starts(&launches))
        || (activities.has(Activity::Copies) && starts(&["cuMemcpy", "cuMemset"]))
        || (activities.has(Activity::Memory) && starts(&["cuMemAlloc", "cuMemFree"]))
        || (activities.has(Activity::Sync) && starts(&waits))
}

/// CUPTI calls this on entering and on leaving each of the functions, on the thread that calls them.
///
/// # Safety
///
/// `watch` is a `Watch` that stays, and `about` a `CallbackData`: so CUPTI was told.
pub(super) unsafe extern "C" fn called(watch: *mut c_void, api: u32, function: u32, about: *const c_void) {
    // SAFETY: as above; CUPTI gives no null.
    let (watch, about) = unsafe { (&*watch.cast::<Watch>(), &*about.cast::<CallbackData>()) };
    let host = &*watch.host;
    if about.correlation_data.is_null() {
        return;
    }
    if about.callback_site == site::ENTER {
        let entered = host.enter_call().map_or(0, |entered| entered.0);
        // SAFETY: it is a word that CUPTI keeps for this call.
        unsafe { *about.correlation_data = entered };
        return;
    }
    // SAFETY: as above.
    let start = Ticks(unsafe { *about.correlation_data });
    if about.callback_site != site::EXIT || start == Ticks(0) {
        return;
    }
    // SAFETY: on leaving a function of the driver or the runtime, CUPTI points to what it returns.
    let result = if about.function_return_value.is_null() { 0 } else { unsafe { *about.function_return_value } };
    // SAFETY: `about` is of this call.
    let memory = if watch.memory { unsafe { memory(api, function, about) } } else { None };
    if let Some((address, facts)) = memory
        && result == 0
    {
        host.write_memory(MemoryCall::new(start, address, facts));
    }
    if memory.is_none() || watch.all {
        host.exit_call(start, about.correlation_id, api as u8, function, result);
    }
}

/// What a call did to memory, if that is what its function does.
///
/// # Safety
///
/// `about` is of a call of this function that has returned.
unsafe fn memory(api: u32, function: u32, about: &CallbackData) -> Option<(u64, MemoryFacts)> {
    use cbid::{
        MEM_ALLOC_ASYNC, MEM_ALLOC_ASYNC_PTSZ, MEM_ALLOC_FROM_POOL_ASYNC, MEM_ALLOC_FROM_POOL_ASYNC_PTSZ,
        MEM_ALLOC_MANAGED, MEM_ALLOC_PITCH_V2, MEM_ALLOC_V2, MEM_FREE_ASYNC, MEM_FREE_ASYNC_PTSZ, MEM_FREE_V2,
    };
    if api != domain::DRIVER_API || about.function_params.is_null() {
        return None;
    }
    let pooled = !matches!(function, MEM_ALLOC_V2 | MEM_ALLOC_MANAGED | MEM_ALLOC_PITCH_V2 | MEM_FREE_V2);
    let context = u16::try_from(about.context_uid).unwrap_or(u16::MAX);
    let facts = |change, bytes| MemoryFacts { bytes, context, change, pooled };
    // SAFETY: where a function succeeded it has written the address; where it failed, nobody looks at this one.
    let address = |place: *const u64| if place.is_null() { 0 } else { unsafe { *place } };
    match function {
        MEM_FREE_V2 | MEM_FREE_ASYNC | MEM_FREE_ASYNC_PTSZ => {
            // SAFETY: these are the first parameters of these functions.
            let MemFreeParams { dptr } = unsafe { *about.function_params.cast() };
            Some((dptr, facts(MemoryChange::Free, 0)))
        }
        MEM_ALLOC_PITCH_V2 => {
            // SAFETY: as above.
            let MemAllocPitchParams { dptr, pitch, height, .. } = unsafe { *about.function_params.cast() };
            // SAFETY: as for the address.
            let pitch = if pitch.is_null() { 0 } else { unsafe { *pitch } };
            Some((address(dptr), facts(MemoryChange::Allocate, pitch.saturating_mul(height) as u64)))
        }
        MEM_ALLOC_V2
        | MEM_ALLOC_MANAGED
        | MEM_ALLOC_ASYNC
        | MEM_ALLOC_ASYNC_PTSZ
        | MEM_ALLOC_FROM_POOL_ASYNC
        | MEM_ALLOC_FROM_POOL_ASYNC_PTSZ => {
            // SAFETY: as above.
            let MemAllocParams { dptr, bytesize } = unsafe { *about.function_params.cast() };
            Some((address(dptr), facts(MemoryChange::Allocate, bytesize as u64)))
        }
        _ => None,
    }
}
