use crate::{
    coverage::{AttachError, Coverage},
    device_thread::DeviceThread,
    observation::Observation,
    pool::DevicePool,
    queue::Downstream,
    stream_origins::ThreadOrigins,
};
#[cfg(feature = "fusion")]
use crate::{fusion_thread::FusionThread, queue::Upstream};
use burn::{
    backend::{Backend, Dispatch, DispatchDeviceId},
    cubecl::{Device as CubeDevice, RuntimeId},
    tensor::Device,
};
use burn_std::{
    device::Device as _,
    device_handle::DeviceHandle,
    stream::{StreamPolicy, policy},
};
use kernspan::{
    Activity, Profiler,
    framework::{FollowedPool, HandOver, Origin, Watcher},
};
use std::{
    fmt,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Mutex, PoisonError},
};

/// Forwards span changes of the user's threads to a device's threads, through the queues that also carry the work.
pub(crate) struct OriginForwarder {
    device: Device,
    coverage: Coverage,
    threads: ThreadOrigins,
    device_thread: DeviceHandle<Downstream>,
    #[cfg(feature = "fusion")]
    fusion_thread: DeviceHandle<Upstream>,
    /// The device's memory, if it is recorded.
    pool: Option<Arc<DevicePool>>,
    hand_over: HandOver,
    /// Present until the end of the attribution.
    followed: Mutex<Option<FollowedPool>>,
    /// Present while a window is open.
    observation: Mutex<Option<Arc<Observation>>>,
}

/// Returns whether the calling thread is one of Burn's device threads, of any device. Its spans are not forwarded,
/// because it works on behalf of other threads.
fn is_burn_thread() -> bool {
    thread_local!(static IS_BURN_THREAD: bool = {
        let thread = std::thread::current();
        thread.name().is_some_and(|name| name.starts_with("DSU-") || name.starts_with("DSD-"))
    });
    IS_BURN_THREAD.try_with(|is_burn_thread| *is_burn_thread).unwrap_or(true)
}

impl OriginForwarder {
    /// Makes a forwarder for a device; `None` if the device has no threads of its own.
    pub(crate) fn new(profiler: &Profiler, device: &Device) -> Result<Option<Self>, AttachError> {
        // The enum variant of such devices exists only if a backend is enabled in Burn, which this crate cannot know.
        let id = device.as_dispatch().to_id();
        if id.type_id >> RuntimeId::OUTER_MASK.trailing_zeros() != u16::from(DispatchDeviceId::Cube) {
            return Ok(None);
        }
        let cube = CubeDevice::from_id(id);
        if Observation::is_taken() {
            return Err(AttachError::ObserverTaken);
        }
        if policy() == StreamPolicy::Single {
            return Err(AttachError::SingleStream);
        }
        // Without the fusion thread's reports, a kernel would belong to the span that is open when it is launched at
        // last.
        let fuses = Dispatch::name(device.as_dispatch()).contains("fusion<");
        if fuses && cfg!(not(feature = "fusion")) {
            return Err(AttachError::MissingFeature("fusion"));
        }
        // The device's threads exist once it has done something.
        device.sync().map_err(|error| AttachError::Device(error.to_string()))?;
        let (hand_over, threads) = (profiler.hand_over(), ThreadOrigins::default());
        let device_thread = DeviceHandle::<Downstream>::new(cube.client().service_id().device);
        let begun = {
            let (threads, hand_over) = (threads.clone(), hand_over.clone());
            device_thread.submit_blocking(move |_| DeviceThread::begin(hand_over, threads))
        };
        if !begun.map_err(|error| AttachError::Device(format!("{error:?}")))? {
            return Err(AttachError::AlreadyAttached);
        }
        let pool = profiler.records(Activity::Memory).then(|| DevicePool::new(&cube, device_thread.clone()));
        #[cfg(feature = "fusion")]
        let fusion_thread = {
            let handle = DeviceHandle::<Upstream>::new(cube.to_id());
            let (hand_over, threads, device_thread) = (hand_over.clone(), threads.clone(), device_thread.clone());
            let memory_of = pool.as_ref().map(|pool| pool.number());
            handle.submit(move |_| FusionThread::begin(hand_over, threads, device_thread, memory_of));
            handle
        };
        threads.add(hand_over.origin());
        Ok(Some(Self {
            device: device.clone(),
            coverage: Coverage { operations: fuses, kernels: matches!(cube, CubeDevice::Cuda(_)) },
            threads,
            device_thread,
            #[cfg(feature = "fusion")]
            fusion_thread,
            followed: Mutex::new(pool.as_ref().map(|pool| pool.follow(&hand_over))),
            pool,
            hand_over,
            observation: Mutex::new(None),
        }))
    }

    pub(crate) fn coverage(&self) -> Coverage {
        self.coverage
    }

    /// Ends attribution on the device's threads.
    pub(crate) fn end(&self) {
        self.closed();
        *self.followed.lock().unwrap_or_else(PoisonError::into_inner) = None;
        #[cfg(feature = "fusion")]
        self.fusion_thread.submit(|_| FusionThread::end());
        self.device_thread.submit(|_| DeviceThread::end());
    }
}

impl Watcher for OriginForwarder {
    fn arrived(&self, origin: Origin) {
        if !is_burn_thread() {
            self.threads.add(origin);
        }
    }

    fn changed(&self, origin: Origin) {
        if is_burn_thread() {
            return;
        }
        #[cfg(feature = "fusion")]
        self.fusion_thread.submit(move |_| FusionThread::set_origin(origin));
        self.device_thread.submit(move |_| DeviceThread::set_origin(origin));
    }

    fn settle(&self) {
        // A failed device reports its failure to the code that asks it for results, so it is ignored here. During a
        // panic there is no sync, because it may panic again.
        if !is_burn_thread() && !std::thread::panicking() {
            let _ = catch_unwind(AssertUnwindSafe(|| self.device.sync()));
        }
    }

    fn opened(&self, origin: Origin) {
        // If one window follows another, the observation continues.
        self.observation.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_with(Observation::shared);
        // The device thread comes first, because the fusion thread then tells it that it is in the window, too.
        let memory = self.pool.clone().map(|pool| (pool, self.hand_over.clone()));
        self.device_thread.submit(move |_| {
            DeviceThread::open_window(origin);
            // Allocations of tensors are added to this.
            if let Some((pool, hand_over)) = memory
                && let Some(reading) = pool.read()
            {
                hand_over.pool(pool.number(), reading);
            }
        });
        #[cfg(feature = "fusion")]
        self.fusion_thread.submit(move |_| FusionThread::open_window(origin));
    }

    fn closed(&self) {
        let observation = self.observation.lock().unwrap_or_else(PoisonError::into_inner).take();
        drop(observation);
        #[cfg(feature = "fusion")]
        self.fusion_thread.submit(|_| FusionThread::close_window());
        self.device_thread.submit(|_| DeviceThread::close_window());
    }
}

impl fmt::Debug for OriginForwarder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OriginForwarder").field("device", &self.device).finish_non_exhaustive()
    }
}
