//! Preparing PM sampling: whether a device supports it, and which metrics its counters can measure at once.

use crate::{
    constants::result,
    cupti::Cupti,
    error::{Error, reason},
    pm_params as pm,
};
use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_NOW};
use std::{
    ffi::{CStr, CString, c_char, c_void},
    fmt,
    path::{Path, PathBuf},
    sync::Arc,
};

/// The metrics that a [`PmSampler`](crate::PmSampler) measures on one kind of chip, scheduled on its counters.
///
/// ```
/// use cupti_sys::{Cupti, Driver, PmConfig, PmDevice, PmSampler};
///
/// let sample = || -> Result<(), Box<dyn std::error::Error>> {
///     // It lives as long as the process, as the library does.
///     let cupti: &'static Cupti = Box::leak(Box::new(Cupti::find(Driver::load()?)?));
///     let device = PmDevice::new(cupti, 0)?;
///     let config = PmConfig::new(&device, ["dram__throughput.avg.pct_of_peak_sustained_elapsed"])?;
///     let mut sampler = PmSampler::new(&config, 1_000_000, 8 << 20, 100)?;
///     sampler.start()?;
///     std::thread::sleep(std::time::Duration::from_millis(10));
///     sampler.stop()?;
///     sampler.decode(|start, end, values| println!("{} ns: {} %", end - start, values[0]))?;
///     Ok(())
/// };
/// if let Err(why) = sample() {
///     println!("no counters here: {why}");
/// }
/// ```
#[derive(Debug)]
pub struct PmConfig {
    pub(crate) host: Arc<HostObject>,
    pub(crate) device: u32,
    pub(crate) metrics: Vec<CString>,
    pub(crate) image: Vec<u8>,
    passes: usize,
}

/// A device whose counters can be sampled.
#[derive(Clone, Debug)]
pub struct PmDevice {
    cupti: &'static Cupti,
    device: u32,
    /// The name of the chip, such as `GH100`.
    chip: CString,
    /// The counters that are available, in CUPTI's own format.
    availability: Arc<[u8]>,
}

/// CUPTI's object that schedules and evaluates metrics.
pub(crate) struct HostObject {
    pub(crate) cupti: &'static Cupti,
    pub(crate) object: *mut c_void,
    /// CUPTI may refer to them as long as the object exists.
    _availability: Arc<[u8]>,
    _chip: CString,
}

// SAFETY: CUPTI accepts the object from any thread, and we never use it on two at once: see `PmSampler::decode`.
unsafe impl Send for HostObject {}
// SAFETY: nothing is done through a shared reference but evaluating, which `PmSampler` does with `&mut self`.
unsafe impl Sync for HostObject {}

impl fmt::Debug for HostObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostObject").finish_non_exhaustive()
    }
}

impl Drop for HostObject {
    fn drop(&mut self) {
        let mut params = pm::HostDeinitialize { host: self.object, ..Default::default() };
        let function = self.cupti.functions.host_deinitialize;
        // SAFETY: the object was made by `cuptiProfilerHostInitialize`, and nobody else has it. Errors change nothing.
        let _ = self.cupti.call("cuptiProfilerHostDeinitialize", function, |f| unsafe { f(&mut params) });
    }
}

impl Cupti {
    /// The layouts of the parameter structs, for checks against NVIDIA's headers.
    #[doc(hidden)]
    pub const PARAMS: &'static [pm::ParamsLayout] = pm::LAYOUTS;

    /// Initialises the profiler, which takes about 0.1 s the first time. It needs `libnvperf_host.so`, which NVIDIA
    /// ships in the same folder as libcupti, and loads it from there.
    ///
    /// # Errors
    ///
    /// If the call fails; with the code [`NOT_INITIALIZED`](result::NOT_INITIALIZED) if `libnvperf_host.so` is missing.
    #[doc(alias = "cuptiProfilerInitialize")]
    pub fn profiler_initialize(&self) -> Result<(), Error> {
        // CUPTI opens it by its bare name, which succeeds if it is loaded already.
        let loaded = self.load_nvperf();
        let mut params = pm::ProfilerInitialize::default();
        let function = self.functions.profiler_initialize;
        // SAFETY: the struct is NVIDIA's.
        let initialized = self.call("cuptiProfilerInitialize", function, |f| unsafe { f(&mut params) });
        match (initialized, loaded) {
            (Err(Error::Failed { function, code: code @ result::NOT_INITIALIZED, message }), Err(reason)) => {
                Err(Error::Failed { function, code, message: format!("{message}; {reason}") })
            }
            (initialized, _) => initialized,
        }
    }

    /// Ends what [`profiler_initialize`](Self::profiler_initialize) began. There must be no sampler or configuration
    /// left. It is required before [`finalize`](Self::finalize): without it, CUPTI does not record again.
    ///
    /// # Errors
    ///
    /// If the call fails.
    #[doc(alias = "cuptiProfilerDeInitialize")]
    pub fn profiler_deinitialize(&self) -> Result<(), Error> {
        let mut params = pm::ProfilerDeInitialize::default();
        let function = self.functions.profiler_deinitialize;
        // SAFETY: the struct is NVIDIA's.
        self.call("cuptiProfilerDeInitialize", function, |f| unsafe { f(&mut params) })
    }

    /// Loads `libnvperf_host.so` from the folder of libcupti, for good.
    fn load_nvperf(&self) -> Result<(), String> {
        const NAME: &str = "libnvperf_host.so";
        let beside = self.folder().map(|folder| folder.join(NAME));
        let mut reasons = Vec::new();
        for path in beside.into_iter().chain([PathBuf::from(NAME)]) {
            // SAFETY: loading runs NVIDIA's initialisers, as CUPTI itself would.
            match unsafe { Library::open(Some(&path), RTLD_NOW | RTLD_GLOBAL) } {
                Ok(library) => {
                    std::mem::forget(library);
                    return Ok(());
                }
                Err(error) => reasons.push(reason(&error)),
            }
        }
        Err(reasons.join("; "))
    }

    /// Returns the folder that libcupti was loaded from: that of its path, or if that is a bare name, of its mapping.
    fn folder(&self) -> Option<PathBuf> {
        let parent = self.path().parent().filter(|parent| !parent.as_os_str().is_empty());
        if let Some(parent) = parent {
            return Some(parent.to_owned());
        }
        let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
        let path = maps.lines().filter_map(|line| line.find('/').map(|at| Path::new(&line[at..])));
        let is_cupti =
            |path: &&Path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("libcupti."));
        path.into_iter().find(is_cupti)?.parent().map(Path::to_owned)
    }

    /// Returns why PM sampling does not work on a device, in the words of `cuptiProfilerDeviceSupported`; `None` if it
    /// works. The profiler must be [initialised](Self::profiler_initialize).
    ///
    /// # Errors
    ///
    /// If the call fails.
    #[doc(alias = "cuptiProfilerDeviceSupported")]
    pub fn pm_sampling_problem(&self, device: u32) -> Result<Option<&'static str>, Error> {
        const PM_SAMPLING: u32 = 3;
        const SUPPORTED: u32 = 3;
        let mut params = pm::DeviceSupported { device: device.cast_signed(), api: PM_SAMPLING, ..Default::default() };
        let function = self.functions.profiler_device_supported;
        // SAFETY: the struct is NVIDIA's.
        self.call("cuptiProfilerDeviceSupported", function, |f| unsafe { f(&mut params) })?;
        let parts = [
            (params.architecture, "architecture"),
            (params.sli, "SLI"),
            (params.vgpu, "vGPU"),
            (params.confidential, "confidential computing"),
            (params.mining, "CMP"),
            (params.wsl, "WSL"),
        ];
        let part = parts.into_iter().find(|&(level, _)| level != SUPPORTED).map_or("configuration", |(_, part)| part);
        Ok((params.supported != SUPPORTED).then_some(part))
    }
}

impl PmDevice {
    /// Asks a device for its chip and counters, which takes about 0.2 s. It initialises the profiler first.
    ///
    /// # Errors
    ///
    /// If a call fails.
    #[doc(alias = "cuptiDeviceGetChipName")]
    #[doc(alias = "cuptiPmSamplingGetCounterAvailability")]
    pub fn new(cupti: &'static Cupti, device: u32) -> Result<Self, Error> {
        // Before that, CUPTI crashes when it is asked for the chip.
        cupti.profiler_initialize()?;
        let mut params = pm::GetChipName { device: device as usize, ..Default::default() };
        let function = cupti.functions.device_get_chip_name;
        // SAFETY: the struct is NVIDIA's.
        cupti.call("cuptiDeviceGetChipName", function, |f| unsafe { f(&mut params) })?;
        let chip = match params.chip_name.is_null() {
            true => CString::default(),
            // SAFETY: it points to a static text.
            false => unsafe { CStr::from_ptr(params.chip_name) }.into(),
        };
        let (name, function) = ("cuptiPmSamplingGetCounterAvailability", cupti.functions.pm_get_counter_availability);
        let mut params = pm::CounterAvailability { device: device as usize, ..Default::default() };
        // SAFETY: without an image, it writes the size.
        cupti.call(name, function, |f| unsafe { f(&mut params) })?;
        let mut availability = vec![0; params.image_size];
        params.image = availability.as_mut_ptr();
        // SAFETY: the image has the size that CUPTI asked for.
        cupti.call(name, function, |f| unsafe { f(&mut params) })?;
        Ok(Self { cupti, device, chip, availability: availability.into() })
    }
}

impl PmConfig {
    /// Schedules metrics, by the names that `ncu --query-metrics` prints, with a suffix such as `.avg`, on a device's
    /// counters.
    ///
    /// # Errors
    ///
    /// If a call fails; with the code [`INVALID_PARAMETER`](result::INVALID_PARAMETER) if a metric is unknown.
    #[doc(alias = "cuptiProfilerHostInitialize")]
    pub fn new<M: AsRef<str>>(device: &PmDevice, metrics: impl IntoIterator<Item = M>) -> Result<Self, Error> {
        const PM_SAMPLING: u32 = 1;
        let PmDevice { cupti, device, chip, availability } = device.clone();
        // A name with a NUL inside becomes empty, which CUPTI does not know.
        let metrics = metrics.into_iter().map(|metric| CString::new(metric.as_ref()).unwrap_or_default()).collect();
        let mut params = pm::HostInitialize {
            profiler_type: PM_SAMPLING,
            chip_name: chip.as_ptr(),
            availability: availability.as_ptr(),
            ..Default::default()
        };
        let function = cupti.functions.host_initialize;
        // SAFETY: the name and the image live as long as the object.
        cupti.call("cuptiProfilerHostInitialize", function, |f| unsafe { f(&mut params) })?;
        let host = HostObject { cupti, object: params.host, _availability: availability, _chip: chip };
        let mut config = Self { host: Arc::new(host), device, metrics, image: Vec::new(), passes: 0 };
        config.schedule()?;
        Ok(config)
    }

    fn schedule(&mut self) -> Result<(), Error> {
        let (cupti, host) = (self.host.cupti, self.host.object);
        let names = pointers(&self.metrics);
        let mut params =
            pm::ConfigAddMetrics { host, metrics: names.as_ptr(), metric_count: names.len(), ..Default::default() };
        let function = cupti.functions.host_config_add_metrics;
        // SAFETY: the names live until the call is over.
        cupti.call("cuptiProfilerHostConfigAddMetrics", function, |f| unsafe { f(&mut params) })?;

        let mut params = pm::GetConfigImageSize { host, ..Default::default() };
        let function = cupti.functions.host_get_config_image_size;
        // SAFETY: it writes the size.
        cupti.call("cuptiProfilerHostGetConfigImageSize", function, |f| unsafe { f(&mut params) })?;
        self.image = vec![0; params.size];
        let (size, image) = (self.image.len(), self.image.as_mut_ptr());
        let mut params = pm::GetConfigImage { host, size, image, ..Default::default() };
        let function = cupti.functions.host_get_config_image;
        // SAFETY: the image has the size that CUPTI asked for.
        cupti.call("cuptiProfilerHostGetConfigImage", function, |f| unsafe { f(&mut params) })?;

        let mut params = pm::GetNumOfPasses { size, image, ..Default::default() };
        let function = cupti.functions.host_get_num_of_passes;
        // SAFETY: it reads the image.
        cupti.call("cuptiProfilerHostGetNumOfPasses", function, |f| unsafe { f(&mut params) })?;
        self.passes = params.passes;
        Ok(())
    }

    /// Returns the number of times that work would have to run to measure all metrics. It must be 1 for sampling.
    #[doc(alias = "cuptiProfilerHostGetNumOfPasses")]
    pub fn passes(&self) -> usize {
        self.passes
    }
}

/// Returns pointers to the names, as CUPTI takes them.
pub(crate) fn pointers(names: &[CString]) -> Vec<*const c_char> {
    names.iter().map(|name| name.as_ptr()).collect()
}
