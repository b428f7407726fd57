//! Allocations and frees, as CUPTI's callback sees them: what a call changes, and the ledger that follows all changes.

use crate::{
    gpu::ledger::{Holding, Ledger},
    heap::Uncounted,
    recording::MemoryFacts,
    trace::{DeviceId, MemoryChange},
};
use cupti_sys::{CallbackData, Cupti, MemAllocParams, MemAllocPitchParams, MemFreeParams, cbid, domain};
use std::{cell::Cell, sync::Arc};

/// The ledger of allocations, and what it takes to know their GPU.
#[derive(Debug)]
pub(super) struct Followed {
    pub(super) ledger: Arc<Ledger>,
    /// CUPTI, if there are several GPUs to choose from.
    pub(super) cupti: Option<&'static Cupti>,
}

impl Followed {
    /// Returns the GPU of a call's context.
    fn device(&self, data: &CallbackData) -> DeviceId {
        // SAFETY: the context is that of the call, which has not returned.
        let device = self.cupti.and_then(|cupti| unsafe { cupti.device_of(data.context) }.ok());
        DeviceId::new(device.unwrap_or(0))
    }

    /// Strikes out what a call is about to free.
    ///
    /// # Safety
    ///
    /// `data` belongs to a call of this function.
    pub(super) unsafe fn enter(&self, api: u32, function: u32, data: &CallbackData) {
        // SAFETY: as above.
        if let Some(address) = unsafe { freed(api, function, data) } {
            let _uncounted = Uncounted::begin();
            STRUCK_OUT.set(self.ledger.free(address).map(|holding| (address, holding)));
        }
    }

    /// Enters what a call has allocated, or was to free but did not.
    pub(super) fn exit(&self, (address, facts): (u64, MemoryFacts), result: u32, data: &CallbackData) {
        /// `CUDA_ERROR_OUT_OF_MEMORY`.
        const OUT_OF_MEMORY: u32 = 2;
        let _uncounted = Uncounted::begin();
        match facts.change {
            MemoryChange::Allocate if result == 0 => self.ledger.allocate(address, facts.bytes, self.device(data)),
            MemoryChange::Allocate if result == OUT_OF_MEMORY => self.ledger.fail(facts.bytes, self.device(data)),
            MemoryChange::Allocate => {}
            MemoryChange::Free => {
                if let Some((address, holding)) = STRUCK_OUT.take().filter(|_| result != 0) {
                    self.ledger.restore(address, holding);
                }
            }
        }
    }
}

thread_local! {
    /// What the call that this thread is in is about to free.
    static STRUCK_OUT: Cell<Option<(u64, Holding)>> = const { Cell::new(None) };
}

/// Returns the address that a call frees, if its function does.
///
/// # Safety
///
/// `data` belongs to a call of this function.
unsafe fn freed(api: u32, function: u32, data: &CallbackData) -> Option<u64> {
    let frees = matches!(function, cbid::MEM_FREE_V2 | cbid::MEM_FREE_ASYNC | cbid::MEM_FREE_ASYNC_PTSZ);
    (frees && api == domain::DRIVER_API && !data.function_params.is_null()).then(|| {
        // SAFETY: these are the first parameters of these functions.
        let MemFreeParams { dptr } = unsafe { *data.function_params.cast() };
        dptr
    })
}

/// Returns the address and the change of memory that a call made, if its function allocates or frees.
///
/// # Safety
///
/// `data` belongs to a call of this function that has returned.
pub(super) unsafe fn change(api: u32, function: u32, data: &CallbackData) -> Option<(u64, MemoryFacts)> {
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
            // SAFETY: as above.
            unsafe { freed(api, function, data) }.map(|address| (address, facts(MemoryChange::Free, 0)))
        }
        MEM_ALLOC_PITCH_V2 => {
            // SAFETY: these are the first parameters of this function.
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
            // SAFETY: these are the first parameters of these functions.
            let MemAllocParams { dptr, bytesize } = unsafe { *data.function_params.cast() };
            Some((address(dptr), facts(MemoryChange::Allocate, bytesize as u64)))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::calls::{CallbackState, call_back},
        Followed,
    };
    use crate::{
        Activity, Profiler, Schedule,
        analysis::{MemoryHolder, MemorySnapshot, SnapshotReason},
        gpu::ledger::{Ledger, Wake},
        trace::DeviceId,
    };
    use cupti_sys::{MemAllocParams, MemFreeParams, cbid};
    use proptest::prelude::*;
    use std::{
        collections::HashMap,
        sync::{
            Arc, Mutex,
            mpsc::{self, Receiver},
        },
    };
    use tracing::info_span;
    use tracing_subscriber::prelude::*;

    /// A program whose allocations are followed, while no window is open.
    struct Program {
        callbacks: CallbackState,
        ledger: Arc<Ledger>,
        profiler: Profiler,
        failures: Mutex<Receiver<Wake>>,
    }

    impl Program {
        fn run(program: impl FnOnce(&Self)) {
            let never = Profiler::builder().activities([Activity::Host]).schedule(Schedule::manual());
            let (layer, profiler) = never.build().unwrap();
            let (keeper, failures) = mpsc::channel();
            let host = Arc::clone(profiler.session().host());
            let ledger = Arc::new(Ledger::new(Arc::clone(&host), keeper));
            let followed = Followed { ledger: Arc::clone(&ledger), cupti: None };
            let callbacks = CallbackState::new(host, [Activity::Memory].into_iter().collect(), Some(followed));
            let running = Self { callbacks, ledger, profiler, failures: Mutex::new(failures) };
            tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || program(&running));
            running.profiler.finish().unwrap();
        }

        fn allocate(&self, address: u64, bytes: usize, result: u32) {
            let parameters = MemAllocParams { dptr: &address, bytesize: bytes };
            call_back(&self.callbacks, cbid::MEM_ALLOC_ASYNC, 1, &parameters, result);
        }

        fn free(&self, address: u64, result: u32) {
            call_back(&self.callbacks, cbid::MEM_FREE_ASYNC, 1, &MemFreeParams { dptr: address }, result);
        }

        fn snapshot(&self) -> MemorySnapshot {
            self.ledger.snapshot(SnapshotReason::Asked)
        }
    }

    fn names<'a>(holder: &MemoryHolder<'a>) -> Vec<&'a str> {
        holder.frames.iter().map(|frame| &*frame.name).collect()
    }

    #[test]
    fn what_is_held_belongs_to_its_spans_and_step_though_no_window_is_open() {
        Program::run(|program| {
            program.allocate(0x1000, 100, 0);
            for step in 0..3_u64 {
                let _step = info_span!("train_step").entered();
                info_span!("forward").in_scope(|| program.allocate(0x2000 + (step << 12), 10, 0));
                let module = info_span!("module", op.name = "attention");
                module.in_scope(|| program.allocate(0x9000, 5, 0));
                program.free(0x9000, 0);
                program.profiler.step();
            }
            info_span!("module", op.name = "attention").in_scope(|| program.allocate(0x9000, 1, 0));
            let snapshot = program.snapshot();
            let holders = snapshot.holders();
            assert_eq!(holders.iter().map(|holder| holder.bytes).collect::<Vec<_>>(), [100, 30, 1]);
            assert_eq!(names(&holders[0]), [""; 0]);
            assert_eq!(names(&holders[1]), ["forward", "train_step"]);
            assert!(holders[1].frames[0].file.unwrap().ends_with("followed.rs"));
            assert_eq!((holders[1].allocations, holders[1].first_step, holders[1].last_step), (3, 0, 2));
            assert_eq!((names(&holders[2]), holders[2].first_step), (vec!["attention"], 3));
            assert_eq!((program.ledger.bytes(DeviceId::new(0)), program.ledger.peak(DeviceId::new(0))), (131, 135));
        });
    }

    #[test]
    fn threads_have_their_own_spans_and_free_for_others() {
        Program::run(|program| {
            let dispatch = tracing::dispatcher::get_default(Clone::clone);
            info_span!("main").in_scope(|| program.allocate(0x1000, 7, 0));
            std::thread::scope(|scope| {
                let worker = scope.spawn(|| {
                    tracing::dispatcher::with_default(&dispatch, || {
                        program.free(0x1000, 0);
                        info_span!("worker").in_scope(|| program.allocate(0x1000, 8, 0));
                    });
                });
                worker.join().unwrap();
            });
            let snapshot = program.snapshot();
            let [holder] = snapshot.holders()[..] else { panic!("{snapshot}") };
            assert_eq!((names(&holder), holder.bytes), (vec!["worker"], 8));
        });
    }

    #[test]
    fn a_free_that_fails_frees_nothing_and_an_allocation_that_fails_is_reported_with_what_is_held() {
        const INVALID_VALUE: u32 = 1;
        const OUT_OF_MEMORY: u32 = 2;
        Program::run(|program| {
            info_span!("weights").in_scope(|| program.allocate(0x1000, 64, 0));
            program.free(0x1000, INVALID_VALUE);
            program.allocate(0, 1 << 33, INVALID_VALUE);
            assert!(program.failures.lock().unwrap().try_recv().is_err());
            for _ in 0..3 {
                info_span!("attention").in_scope(|| program.allocate(0, 1 << 33, OUT_OF_MEMORY));
            }
            let Ok(Wake::Failed(snapshot)) = program.failures.lock().unwrap().try_recv() else { panic!() };
            // Once a second at most.
            assert!(program.failures.lock().unwrap().try_recv().is_err());
            let text = snapshot.to_string();
            assert!(text.contains("when 8.00 GiB could not be allocated in attention ("), "{text}");
            assert_eq!((snapshot.holders().len(), snapshot.holders()[0].bytes), (1, 64));
            assert_eq!(program.ledger.bytes(DeviceId::new(0)), 64);
        });
    }

    #[test]
    fn the_allocation_that_exceeds_the_limit_wakes_the_keeper_once() {
        Program::run(|program| {
            let is_woken = || matches!(program.failures.lock().unwrap().try_recv(), Ok(Wake::Alarm));
            program.allocate(0x1000, 60, 0);
            program.ledger.set_alarm(DeviceId::new(0), 100);
            program.allocate(0x2000, 40, 0);
            assert!(!is_woken(), "100 bytes do not exceed 100");
            program.allocate(0x3000, 1, 0);
            program.allocate(0x4000, 1, 0);
            assert!(is_woken() && !is_woken());
        });
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 2 } else { 16 }))]
        /// Double frees, unknown addresses, addresses allocated twice, sizes of nothing and of nearly everything.
        #[test]
        fn the_books_are_consistent_whatever_is_allocated_and_freed(
            calls in prop::collection::vec((0..12_u64, any::<bool>(), prop_oneof![Just(0), 1..4096_u64, Just(1 << 62)],
                prop::bool::weighted(0.2)), 0..200),
        ) {
            Program::run(|program| {
                let mut model: HashMap<u64, u64> = HashMap::new();
                for (index, allocates, bytes, fails) in calls {
                    let (address, result) = (index << 8, u32::from(fails));
                    match allocates {
                        true => program.allocate(address, bytes as usize, result),
                        false => program.free(address, result),
                    }
                    if fails {
                        continue;
                    }
                    match allocates {
                        true => _ = model.insert(address, bytes),
                        false => _ = model.remove(&address),
                    }
                    let total = model.values().fold(0_u64, |sum, bytes| sum.wrapping_add(*bytes));
                    assert_eq!(program.ledger.bytes(DeviceId::new(0)), total);
                }
                let mut held: Vec<_> =
                    program.snapshot().allocations().iter().map(|held| (held.address, held.bytes)).collect();
                let mut expected: Vec<_> = model.into_iter().collect();
                held.sort_unstable();
                expected.sort_unstable();
                assert_eq!(held, expected);
            });
        }
    }
}
