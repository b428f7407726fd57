//! Follows the user's threads, and has the device's threads know where they are.

use crate::{
    attach::{AttachError, Sight},
    device_thread::DeviceThread,
    observed::Observed,
    queue::Downstream,
    streams::Threads,
};
#[cfg(feature = "fusion")]
use crate::{fusion::FusionThread, queue::Upstream};
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
#[cfg(feature = "fusion")]
use kernspan::Activity;
use kernspan::{
    Profiler,
    framework::{Origin, Watcher},
};
use std::{
    fmt,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Mutex, PoisonError},
};

/// Passes on to a device's threads where the user's threads are, through their own queues.
pub(crate) struct Follower {
    device: Device,
    sight: Sight,
    threads: Threads,
    launches: DeviceHandle<Downstream>,
    #[cfg(feature = "fusion")]
    fuses: DeviceHandle<Upstream>,
    /// While a window is open.
    observed: Mutex<Option<Arc<Observed>>>,
}

/// Whether the calling thread is one of Burn's, of whichever device. What it does is not on its own behalf.
fn is_burns() -> bool {
    thread_local!(static IS_BURNS: bool = {
        let thread = std::thread::current();
        thread.name().is_some_and(|name| name.starts_with("DSU-") || name.starts_with("DSD-"))
    });
    IS_BURNS.try_with(|is_burns| *is_burns).unwrap_or(true)
}

impl Follower {
    /// For a device that has threads of its own.
    pub(crate) fn of(profiler: &Profiler, device: &Device) -> Result<Option<Self>, AttachError> {
        // The variant that is such a device is only there if a backend of Burn's is, which this crate cannot know.
        let id = device.as_dispatch().to_id();
        if id.type_id >> RuntimeId::OUTER_MASK.trailing_zeros() != u16::from(DispatchDeviceId::Cube) {
            return Ok(None);
        }
        let cube = CubeDevice::from_id(id);
        if Observed::is_taken() {
            return Err(AttachError::Observed);
        }
        if policy() == StreamPolicy::Single {
            return Err(AttachError::OneStream);
        }
        // Without what fusion tells, a kernel would be in the span that is open when it is launched at last.
        let fuses = Dispatch::name(device.as_dispatch()).contains("fusion<");
        if fuses && cfg!(not(feature = "fusion")) {
            return Err(AttachError::Feature("fusion"));
        }
        // Its threads are there when it has done something.
        device.sync().map_err(|error| AttachError::Device(error.to_string()))?;
        let (hand_over, threads) = (profiler.hand_over(), Threads::default());
        let launches = DeviceHandle::<Downstream>::new(cube.client().service_id().device);
        let begun = {
            let (threads, hand_over) = (threads.clone(), hand_over.clone());
            launches.submit_blocking(move |_| DeviceThread::begin(hand_over, threads))
        };
        if !begun.map_err(|error| AttachError::Device(format!("{error:?}")))? {
            return Err(AttachError::Attached);
        }
        #[cfg(feature = "fusion")]
        let upstream = {
            let handle = DeviceHandle::<Upstream>::new(cube.to_id());
            let (hand_over, threads, launches) = (hand_over.clone(), threads.clone(), launches.clone());
            let memory = profiler.records(Activity::Memory);
            handle.submit(move |_| FusionThread::begin(hand_over, threads, launches, memory));
            handle
        };
        threads.arrived(hand_over.origin());
        Ok(Some(Self {
            device: device.clone(),
            sight: Sight { operations: fuses, kernels: matches!(cube, CubeDevice::Cuda(_)) },
            threads,
            launches,
            #[cfg(feature = "fusion")]
            fuses: upstream,
            observed: Mutex::new(None),
        }))
    }

    pub(crate) fn sight(&self) -> Sight {
        self.sight
    }

    /// Nobody watches any more.
    pub(crate) fn end(&self) {
        self.closed();
        #[cfg(feature = "fusion")]
        self.fuses.submit(|_| FusionThread::end());
        self.launches.submit(|_| DeviceThread::end());
    }
}

impl Watcher for Follower {
    fn arrived(&self, origin: Origin) {
        if !is_burns() {
            self.threads.arrived(origin);
        }
    }

    fn changed(&self, origin: Origin) {
        if is_burns() {
            return;
        }
        #[cfg(feature = "fusion")]
        self.fuses.submit(move |_| FusionThread::changes(origin));
        self.launches.submit(move |_| DeviceThread::changes(origin));
    }

    fn settle(&self) {
        // A device that has failed, or whose thread has, tells whoever asks it for results; not in the middle of another panic.
        if !is_burns() && !std::thread::panicking() {
            let _ = catch_unwind(AssertUnwindSafe(|| self.device.sync()));
        }
    }

    fn opened(&self, origin: Origin) {
        // One window may follow another: then all stays as it is.
        self.observed.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_with(Observed::shared);
        // The thread that launches comes first, as the one that fuses tells it that it is in the window, too.
        self.launches.submit(move |_| DeviceThread::opens(origin));
        #[cfg(feature = "fusion")]
        self.fuses.submit(move |_| FusionThread::opens(origin));
    }

    fn closed(&self) {
        let observed = self.observed.lock().unwrap_or_else(PoisonError::into_inner).take();
        drop(observed);
        #[cfg(feature = "fusion")]
        self.fuses.submit(|_| FusionThread::closes());
        self.launches.submit(|_| DeviceThread::closes());
    }
}

impl fmt::Debug for Follower {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Follower").field("device", &self.device).finish_non_exhaustive()
    }
}
