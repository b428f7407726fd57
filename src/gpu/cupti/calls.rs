//! CUPTI's callback for API calls, which writes each call into its thread's lane, between the spans around it. So it is
//! known exactly which span a call belongs to.

use super::gate::{Entered, Function, Gate};
use crate::{
    activity::{Activities, Activity},
    clock::Ticks,
    host::{DeviceWork, Host},
    recording::{DeviceCall, MemoryCall, MemoryFacts},
    trace::MemoryChange,
};
use cupti_sys::{
    CallbackData, MemAllocParams, MemAllocPitchParams, MemFreeParams, MemcpyToDeviceParams, cbid, domain, site,
};
use std::{
    ffi::c_void,
    sync::{
        Arc, LazyLock,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
};

/// The state that CUPTI's callbacks work on.
#[derive(Debug)]
pub(super) struct CallbackState {
    pub(super) host: Arc<Host>,
    /// Whether allocations and frees are recorded.
    pub(super) memory: bool,
    /// Whether all calls are recorded, including those of a memory pool.
    pub(super) all: bool,
    /// The gate at which threads wait while CUPTI is being switched.
    pub(super) gate: Gate,
    /// Whether each of the driver's functions only waits, so that CUPTI has no record of it.
    waits: Vec<bool>,
    /// Whether CUPTI records. It changes while the gate is closed.
    is_on: AtomicBool,
    /// Whether a graph was launched since CUPTI was last switched off.
    pub(super) graphs: AtomicBool,
    /// The highest correlation id of a call that CUPTI recorded and that was entered while no window was open.
    before: AtomicU32,
}

impl CallbackState {
    pub(super) fn new(host: Arc<Host>, activities: Activities) -> Self {
        let (memory, all) = (activities.has(Activity::Memory), activities.has(Activity::ApiCalls));
        let (gate, is_on, graphs) = (Gate::default(), AtomicBool::new(false), AtomicBool::new(false));
        let is_recorded = all || activities.has(Activity::Sync);
        let waits = if is_recorded { Vec::new() } else { by_function(false, is_blocking) };
        Self { host, memory, all, gate, waits, is_on, graphs, before: AtomicU32::new(0) }
    }

    /// Resets the state: CUPTI is about to be attached and to count correlation ids from the beginning. Returns the
    /// number of threads it called back on when it was last attached.
    pub(super) fn reset(&self) -> u32 {
        self.before.store(0, Ordering::Relaxed);
        self.gate.reset()
    }

    pub(super) fn set_on(&self, on: bool) {
        self.is_on.store(on, Ordering::Relaxed);
    }

    /// Passes the gate into a driver function.
    #[inline]
    fn go_inside(&self, function: u32) -> Entered<'_> {
        let is_wait = self.waits.get(function as usize).copied().unwrap_or(false);
        self.gate.enter(if is_wait { Function::Wait } else { Function::Work })
    }

    /// Begins a call that CUPTI records, and returns the moment.
    #[inline]
    fn enter(&self, correlation: u32) -> Ticks {
        self.host.enter_call().unwrap_or_else(|| {
            self.note_before(correlation);
            OUTSIDE
        })
    }

    /// Notes the correlation id of a call that CUPTI may have recorded but that belongs to no window.
    #[inline]
    fn note_before(&self, correlation: u32) {
        if self.before.load(Ordering::Relaxed) < correlation {
            self.before.fetch_max(correlation, Ordering::Relaxed);
        }
    }

    /// The highest correlation id of a call entered before the open window.
    pub(super) fn last_before(&self) -> u32 {
        self.before.load(Ordering::Relaxed)
    }
}

/// The start of calls that were entered while no window was open.
const OUTSIDE: Ticks = Ticks(1);

/// Returns the driver functions that callbacks are enabled for.
pub(super) fn functions(activities: Activities) -> impl Iterator<Item = u32> {
    cbid::ALL.iter().filter(move |(name, _)| is_wanted(name, activities)).map(|(_, function)| *function)
}

fn is_wanted(name: &str, activities: Activities) -> bool {
    let function = name.trim_start_matches("CUPTI_DRIVER_TRACE_CBID_");
    let starts = |prefixes: &[&str]| prefixes.iter().any(|prefix| function.starts_with(prefix));
    let launches = ["cuLaunch", "cuGraphLaunch", "cuStreamBeginCapture", "cuStreamEndCapture"];
    // Kernels are loaded, or the host waits: rare, and often the reason for a slow step.
    let loads = ["cuModuleLoad", "cuLibraryLoad"];
    (activities.has(Activity::Kernels) && (starts(&launches) || starts(&loads) || is_blocking(name)))
        || (activities.has(Activity::Copies) && starts(&["cuMemcpy", "cuMemset"]))
        || (activities.has(Activity::Memory) && starts(&["cuMemAlloc", "cuMemFree"]))
        || (activities.has(Activity::Sync) && (starts(&WAITS) || starts(&["cuStreamWaitEvent"])))
}

/// The functions in which the host waits for the GPU.
const WAITS: [&str; 3] = ["cuStreamSynchronize", "cuEventSynchronize", "cuCtxSynchronize"];

/// Whether a function gives the GPU no work and may wait for it: a synchronisation, an allocation without a pool, or
/// unloading a module.
fn is_blocking(name: &str) -> bool {
    let function = name.trim_start_matches("CUPTI_DRIVER_TRACE_CBID_");
    let starts = |prefixes: &[&str]| prefixes.iter().any(|prefix| function.starts_with(prefix));
    let memory = ["cuMemAlloc", "cuMemFree", "cuMemHostAlloc", "cuMemHostRegister"];
    starts(&WAITS) || starts(&["cuModuleUnload", "cuLibraryUnload"]) || (starts(&memory) && !function.contains("Async"))
}

/// Returns a property of each of the driver's functions, by its number; `unknown` for numbers without a function.
fn by_function<T: Copy>(unknown: T, of_name: impl Fn(&str) -> T) -> Vec<T> {
    let last = cbid::ALL.iter().map(|&(_, function)| function).max().unwrap_or(0);
    let mut by_function = vec![unknown; last as usize + 1];
    cbid::ALL.iter().for_each(|&(name, function)| by_function[function as usize] = of_name(name));
    by_function
}

/// Writes an API call. CUPTI calls this on entering and leaving each function, on the calling thread.
///
/// # Safety
///
/// `callbacks` points to a `CallbackState` that is never freed, and `data` to a `CallbackData`.
pub(super) unsafe extern "C" fn on_api_call(callbacks: *mut c_void, api: u32, function: u32, data: *const c_void) {
    // SAFETY: as above; CUPTI never passes null.
    let (callbacks, data) = unsafe { (&*callbacks.cast::<CallbackState>(), &*data.cast::<CallbackData>()) };
    let host = &*callbacks.host;
    if data.correlation_data.is_null() {
        return;
    }
    if data.callback_site == site::ENTER {
        let _entered = callbacks.go_inside(function);
        let start =
            if callbacks.is_on.load(Ordering::Relaxed) { callbacks.enter(data.correlation_id) } else { OUTSIDE };
        // SAFETY: it is a word that CUPTI keeps for this call.
        unsafe { *data.correlation_data = start.0 };
        return;
    }
    // SAFETY: as above.
    let start = Ticks(unsafe { *data.correlation_data });
    if data.callback_site != site::EXIT {
        return;
    }
    if start <= OUTSIDE || !callbacks.gate.is_inside() {
        // It was entered before the window, or before callbacks began, so its work does not belong to the window.
        if callbacks.is_on.load(Ordering::Relaxed) && !host.exit_earlier_call(data.correlation_id) {
            callbacks.note_before(data.correlation_id);
        }
        return callbacks.gate.leave();
    }
    // SAFETY: on leaving a function of the driver or the runtime, CUPTI points to its return value.
    let result = if data.function_return_value.is_null() { 0 } else { unsafe { *data.function_return_value } };
    // SAFETY: `data` belongs to this call.
    let memory = if callbacks.memory { unsafe { memory(api, function, data) } } else { None };
    if let Some((address, facts)) = memory
        && result == 0
    {
        host.write_memory(MemoryCall::new(start, address, facts));
    }
    // A pool's functions return at once. The others may wait for the GPU, so their time matters.
    if callbacks.all || memory.is_none_or(|(_, facts)| !facts.pooled) {
        let now = host.clock().now();
        let call = DeviceCall::new(start, now, data.correlation_id, api as u8, function, result);
        if matches!(function, cbid::GRAPH_LAUNCH | cbid::GRAPH_LAUNCH_PTSZ) && api == domain::DRIVER_API {
            callbacks.graphs.store(true, Ordering::Relaxed);
        }
        // SAFETY: `data` belongs to this call.
        host.exit_call(unsafe { work(api, function, data) }, call);
    }
    host.leave_call();
    callbacks.gate.leave();
}

/// Returns the kind of work that a call gave the GPU.
///
/// # Safety
///
/// `data` belongs to a call of this function.
unsafe fn work(api: u32, function: u32, data: &CallbackData) -> DeviceWork {
    static BY_FUNCTION: LazyLock<Vec<DeviceWork>> = LazyLock::new(|| {
        let work = |name: &str| match name.trim_start_matches("CUPTI_DRIVER_TRACE_CBID_") {
            name if name.starts_with("cuLaunch") || name.starts_with("cuGraphLaunch") => DeviceWork::Launch,
            name if name.starts_with("cuMemcpy") || name.starts_with("cuMemset") => DeviceWork::Copy { bytes: None },
            name if name.starts_with("cuMemAlloc") || name.starts_with("cuMemFree") => DeviceWork::Memory,
            name if name.starts_with("cuModuleLoad") || name.starts_with("cuLibraryLoad") => DeviceWork::Load,
            _ => DeviceWork::Other,
        };
        by_function(DeviceWork::Other, work)
    });
    match function {
        _ if api != domain::DRIVER_API => DeviceWork::Other,
        cbid::MEMCPY_HTOD_ASYNC_V2 | cbid::MEMCPY_HTOD_ASYNC_V2_PTSZ if !data.function_params.is_null() => {
            // SAFETY: these are the first parameters of these functions.
            let MemcpyToDeviceParams { byte_count: bytes, .. } = unsafe { *data.function_params.cast() };
            DeviceWork::Copy { bytes: Some(bytes as u64) }
        }
        _ => BY_FUNCTION.get(function as usize).copied().unwrap_or(DeviceWork::Other),
    }
}

/// Returns the address and the change of memory that a call made, if its function allocates or frees.
///
/// # Safety
///
/// `data` belongs to a call of this function that has returned.
unsafe fn memory(api: u32, function: u32, data: &CallbackData) -> Option<(u64, MemoryFacts)> {
    use cbid::{
        MEM_ALLOC_ASYNC, MEM_ALLOC_ASYNC_PTSZ, MEM_ALLOC_FROM_POOL_ASYNC, MEM_ALLOC_FROM_POOL_ASYNC_PTSZ,
        MEM_ALLOC_MANAGED, MEM_ALLOC_PITCH_V2, MEM_ALLOC_V2, MEM_FREE_ASYNC, MEM_FREE_ASYNC_PTSZ, MEM_FREE_V2,
    };
    if api != domain::DRIVER_API || data.function_params.is_null() {
        return None;
    }
    let pooled = !matches!(function, MEM_ALLOC_V2 | MEM_ALLOC_MANAGED | MEM_ALLOC_PITCH_V2 | MEM_FREE_V2);
    let context = u16::try_from(data.context_uid).unwrap_or(u16::MAX);
    let facts = |change, bytes| MemoryFacts { bytes, context, change, pooled, by_framework: false };
    // SAFETY: a function that succeeded has written the address; if it failed, the address is not used.
    let address = |pointer: *const u64| if pointer.is_null() { 0 } else { unsafe { *pointer } };
    match function {
        MEM_FREE_V2 | MEM_FREE_ASYNC | MEM_FREE_ASYNC_PTSZ => {
            // SAFETY: these are the first parameters of these functions.
            let MemFreeParams { dptr } = unsafe { *data.function_params.cast() };
            Some((dptr, facts(MemoryChange::Free, 0)))
        }
        MEM_ALLOC_PITCH_V2 => {
            // SAFETY: as above.
            let MemAllocPitchParams { dptr, pitch, height, .. } = unsafe { *data.function_params.cast() };
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
            let MemAllocParams { dptr, bytesize } = unsafe { *data.function_params.cast() };
            Some((address(dptr), facts(MemoryChange::Allocate, bytesize as u64)))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::{CallbackState, functions, on_api_call};
    use crate::{
        Activity, Collected, Profiler, Trace,
        activity::Activities,
        trace::{ApiCall, Attribution, MemoryChange},
    };
    use cupti_sys::{CallbackData, MemAllocParams, MemAllocPitchParams, MemFreeParams, cbid, domain, site};
    use std::{ffi::c_void, ptr, sync::Arc};
    use tracing::info_span;
    use tracing_subscriber::prelude::*;

    /// Calls the callback as CUPTI does, on entering and on leaving.
    fn call_back<T>(callbacks: &CallbackState, function: u32, correlation: u32, parameters: &T, result: u32) {
        let mut word = 0;
        let mut data = CallbackData {
            callback_site: site::ENTER,
            function_name: ptr::null(),
            function_params: ptr::from_ref(parameters).cast(),
            function_return_value: ptr::null(),
            symbol_name: ptr::null(),
            context: ptr::null_mut(),
            context_uid: 1,
            correlation_data: &mut word,
            correlation_id: correlation,
        };
        let callbacks = ptr::from_ref(callbacks).cast_mut().cast::<c_void>();
        // SAFETY: the arguments are those that CUPTI passes.
        unsafe { on_api_call(callbacks, domain::DRIVER_API, function, ptr::from_ref(&data).cast()) };
        (data.callback_site, data.function_return_value) = (site::EXIT, &result);
        // SAFETY: the arguments are those that CUPTI passes.
        unsafe { on_api_call(callbacks, domain::DRIVER_API, function, ptr::from_ref(&data).cast()) };
    }

    fn trace_of(memory: bool, program: impl FnOnce(&CallbackState)) -> Arc<Trace> {
        let collected = Collected::new();
        let (layer, profiler) =
            Profiler::builder().activities([Activity::Host]).export(collected.clone()).build().unwrap();
        let activities = memory.then_some(Activity::Memory).into_iter().collect();
        let callbacks = CallbackState::new(Arc::clone(profiler.session().host()), activities);
        callbacks.set_on(true);
        tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || program(&callbacks));
        profiler.finish().unwrap();
        collected.only()
    }

    #[test]
    fn a_launch_is_a_call_in_its_span() {
        let trace = trace_of(true, |callbacks| {
            info_span!("forward").in_scope(|| call_back(callbacks, cbid::LAUNCH_KERNEL, 7, &(), 0));
            call_back(callbacks, cbid::LAUNCH_KERNEL, 8, &(), 700);
        });
        let calls: Vec<_> = trace.api_calls().collect();
        assert_eq!(calls.len(), 2);
        assert_eq!((calls[0].correlation(), calls[0].result(), calls[0].function()), (7, 0, 307));
        assert_eq!(calls[0].span().unwrap().name(), "forward");
        assert!(calls[0].start() <= calls[0].end());
        assert_eq!((calls[1].result(), calls[1].attribution()), (700, Attribution::Unattributed));
    }

    #[test]
    fn allocations_and_frees_are_read_from_the_parameters_of_calls() {
        let (address, pitch) = (0x7f00_0000_1000_u64, 512_usize);
        let alloc = MemAllocParams { dptr: &address, bytesize: 4096 };
        let pitched = MemAllocPitchParams { dptr: &address, pitch: &pitch, width: 500, height: 3 };
        let free = MemFreeParams { dptr: address };
        let nowhere = MemAllocParams { dptr: ptr::null(), bytesize: 64 };
        let trace = trace_of(true, |callbacks| {
            info_span!("work").in_scope(|| {
                call_back(callbacks, cbid::MEM_ALLOC_ASYNC, 1, &alloc, 0);
                call_back(callbacks, cbid::MEM_FREE_ASYNC, 2, &free, 0);
                call_back(callbacks, cbid::MEM_ALLOC_PITCH_V2, 3, &pitched, 0);
                call_back(callbacks, cbid::MEM_FREE_V2, 4, &free, 0);
                // Out of memory: nothing has changed.
                call_back(callbacks, cbid::MEM_ALLOC_V2, 5, &nowhere, 2);
            });
        });
        let seen: Vec<_> = trace
            .allocations()
            .map(|memory| (memory.change(), memory.address(), memory.bytes(), memory.pooled()))
            .collect();
        let expected = [
            (MemoryChange::Allocate, address, Some(4096), true),
            (MemoryChange::Free, address, Some(4096), true),
            (MemoryChange::Allocate, address, Some(1536), false),
            (MemoryChange::Free, address, Some(1536), false),
        ];
        assert_eq!(seen, expected);
        let called: Vec<_> = trace.api_calls().map(ApiCall::function).collect();
        let without_pool = [cbid::MEM_ALLOC_PITCH_V2, cbid::MEM_FREE_V2, cbid::MEM_ALLOC_V2];
        assert_eq!(called, without_pool, "a pool's functions return at once");
    }

    #[test]
    fn an_allocation_is_a_call_like_any_other_if_memory_is_not_recorded() {
        let address = 1_u64;
        let alloc = MemAllocParams { dptr: &address, bytesize: 4096 };
        let trace = trace_of(false, |callbacks| call_back(callbacks, cbid::MEM_ALLOC_ASYNC, 1, &alloc, 0));
        assert_eq!((trace.api_calls().len(), trace.allocations().len()), (1, 0));
    }

    #[test]
    fn callbacks_are_enabled_for_the_chosen_activities_only() {
        let of = |activities: &[Activity]| -> Vec<u32> {
            functions(activities.iter().copied().collect::<Activities>()).collect()
        };
        assert!(of(&[Activity::Host]).is_empty());
        let kernels = of(&[Activity::Kernels]);
        assert!(kernels.contains(&cbid::LAUNCH_KERNEL) && kernels.contains(&cbid::GRAPH_LAUNCH_PTSZ));
        assert!(kernels.contains(&cbid::STREAM_SYNCHRONIZE) && kernels.contains(&cbid::MEM_FREE_V2));
        assert!(!kernels.contains(&cbid::MEMCPY_HTOD_ASYNC_V2) && !kernels.contains(&cbid::MEM_FREE_ASYNC));
        assert!(of(&[Activity::Copies]).contains(&cbid::MEMSET_D8_ASYNC));
        assert!(of(&[Activity::Memory]).contains(&cbid::MEM_FREE_ASYNC));
        assert_eq!(of(&[Activity::Sync]).len(), 7);
    }
}
