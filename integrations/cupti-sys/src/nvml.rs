use crate::error::Error;
use std::{
    ffi::{CStr, CString, c_char, c_uint, c_void},
    path::Path,
    ptr,
};

/// NVIDIA's management library, loaded and initialised: the memory of a device as all processes use it.
///
/// It stays loaded until the process ends. Only the functions that a profiler needs are here.
///
/// ```
/// use cupti_sys::Nvml;
///
/// if let Some(nvml) = Nvml::load() {
///     if let Ok(device) = nvml.device("GPU-00000000-0000-0000-0000-000000000000") {
///         println!("{} bytes are in use", nvml.memory_in_use(device)?);
///     }
/// }
/// # Ok::<(), cupti_sys::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Nvml {
    functions: &'static Functions,
}

/// NVML's handle of a device.
#[doc(alias = "nvmlDevice_t")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NvmlDevice(*mut c_void);

// SAFETY: it is a handle that NVML accepts from any thread.
unsafe impl Send for NvmlDevice {}
// SAFETY: as above.
unsafe impl Sync for NvmlDevice {}

/// Pointers to NVML's functions; `None` for one that it does not have.
#[derive(Debug)]
struct Functions {
    error_string: Option<unsafe extern "C" fn(u32) -> *const c_char>,
    device_by_uuid: Option<unsafe extern "C" fn(*const c_char, *mut *mut c_void) -> u32>,
    memory_info: Option<unsafe extern "C" fn(*mut c_void, *mut Memory) -> u32>,
    processes: Option<unsafe extern "C" fn(*mut c_void, *mut c_uint, *mut Process) -> u32>,
}

/// `nvmlMemory_t`.
#[derive(Clone, Copy, Default)]
#[repr(C)]
struct Memory {
    total: u64,
    free: u64,
    used: u64,
}

/// `nvmlProcessInfo_t`.
#[derive(Clone, Copy, Default)]
#[repr(C)]
struct Process {
    pid: u32,
    memory: u64,
    gpu_instance: u32,
    compute_instance: u32,
}

impl Nvml {
    /// Loads and initialises the library. Returns `None` if there is none, or if it cannot be used.
    #[doc(alias = "nvmlInit")]
    pub fn load() -> Option<Self> {
        // SAFETY: loading runs NVIDIA's initialisers, on which every monitor of GPUs relies.
        let library = unsafe { libloading::Library::new(Path::new("libnvidia-ml.so.1")) }.ok()?;
        let library: &'static libloading::Library = Box::leak(Box::new(library));
        macro_rules! function {
            ($name:literal) => {
                // SAFETY: the type is that of NVIDIA's header; it has not changed since CUDA 11.
                unsafe { library.get($name) }.ok().map(|symbol| *symbol)
            };
        }
        let init: unsafe extern "C" fn() -> u32 = function!("nvmlInit_v2")?;
        // SAFETY: it may be called any number of times.
        let is_ready = unsafe { init() } == 0;
        let functions = Functions {
            error_string: function!("nvmlErrorString"),
            device_by_uuid: function!("nvmlDeviceGetHandleByUUID"),
            memory_info: function!("nvmlDeviceGetMemoryInfo"),
            processes: function!("nvmlDeviceGetComputeRunningProcesses_v3"),
        };
        is_ready.then(|| Self { functions: Box::leak(Box::new(functions)) })
    }

    /// Returns the device with this UUID, in the form `GPU-…`.
    ///
    /// # Errors
    ///
    /// If there is no such device.
    #[doc(alias = "nvmlDeviceGetHandleByUUID")]
    pub fn device(self, uuid: &str) -> Result<NvmlDevice, Error> {
        // No UUID has a zero in it, so none is found.
        let uuid = CString::new(uuid).unwrap_or_default();
        let mut device = ptr::null_mut();
        // SAFETY: the text ends with a zero, and it writes one handle.
        self.call("nvmlDeviceGetHandleByUUID", self.functions.device_by_uuid, |f| unsafe {
            f(uuid.as_ptr(), &mut device)
        })?;
        Ok(NvmlDevice(device))
    }

    /// Returns the bytes in use of a device's memory, by all processes together.
    ///
    /// # Errors
    ///
    /// If the call fails.
    #[doc(alias = "nvmlDeviceGetMemoryInfo")]
    pub fn memory_in_use(self, device: NvmlDevice) -> Result<u64, Error> {
        let mut memory = Memory::default();
        // SAFETY: the handle comes from the library, and it writes one struct.
        self.call("nvmlDeviceGetMemoryInfo", self.functions.memory_info, |f| unsafe { f(device.0, &mut memory) })?;
        Ok(memory.used)
    }

    /// Returns the bytes of a device's memory that a process has. Returns `None` if the process is not in the list, as
    /// in a container with process ids of its own, or if the system does not say.
    ///
    /// # Errors
    ///
    /// If the call fails.
    #[doc(alias = "nvmlDeviceGetComputeRunningProcesses")]
    pub fn process_memory(self, device: NvmlDevice, pid: u32) -> Result<Option<u64>, Error> {
        /// More processes than use one device.
        const MOST: usize = 128;
        const NOT_AVAILABLE: u64 = u64::MAX;
        let (mut processes, mut count) = ([Process::default(); MOST], MOST as c_uint);
        // SAFETY: the handle comes from the library, and it writes at most as many structs as the count says.
        self.call("nvmlDeviceGetComputeRunningProcesses", self.functions.processes, |f| unsafe {
            f(device.0, &mut count, processes.as_mut_ptr())
        })?;
        let listed = processes.iter().take(count as usize);
        // It has one entry for each context of the process.
        let own = listed.filter(|process| process.pid == pid && process.memory != NOT_AVAILABLE);
        Ok(own.map(|process| process.memory).reduce(u64::max))
    }

    fn call<F>(self, function: &'static str, pointer: Option<F>, call: impl FnOnce(F) -> u32) -> Result<(), Error> {
        let code = call(pointer.ok_or(Error::Missing { function })?);
        if code == 0 {
            return Ok(());
        }
        // SAFETY: it returns a pointer to a static text for every number.
        let text = self.functions.error_string.map(|f| unsafe { CStr::from_ptr(f(code)) });
        let message = text.map_or_else(|| "unknown error".to_owned(), |text| text.to_string_lossy().into_owned());
        Err(Error::Failed { function, code, message })
    }
}
