use crate::error::{Error, LoadError, reason};
use std::{
    ffi::{CStr, c_char, c_int, c_void},
    path::Path,
    ptr,
};

/// NVIDIA's driver, loaded and initialised, with at least one device. It is required before any call of CUPTI.
///
/// It stays loaded until the process ends. Only the functions that a profiler needs are here.
#[derive(Clone, Copy, Debug)]
pub struct Driver {
    functions: &'static Functions,
    devices: u32,
}

/// A handle of a CUDA context.
#[doc(alias = "CUcontext")]
pub type Context = *mut c_void;

/// A handle of a CUDA device.
#[doc(alias = "CUdevice")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Device(c_int);

/// Pointers to the driver's functions; `None` for one that it does not have.
#[derive(Debug)]
struct Functions {
    init: unsafe extern "C" fn(u32) -> u32,
    driver_get_version: Option<unsafe extern "C" fn(*mut c_int) -> u32>,
    get_error_string: Option<unsafe extern "C" fn(u32, *mut *const c_char) -> u32>,
    device_get_count: Option<unsafe extern "C" fn(*mut c_int) -> u32>,
    device_get: Option<unsafe extern "C" fn(*mut c_int, c_int) -> u32>,
    device_get_name: Option<unsafe extern "C" fn(*mut c_char, c_int, c_int) -> u32>,
    device_get_uuid: Option<unsafe extern "C" fn(*mut [u8; 16], c_int) -> u32>,
    device_total_mem: Option<unsafe extern "C" fn(*mut usize, c_int) -> u32>,
    device_get_attribute: Option<unsafe extern "C" fn(*mut c_int, c_int, c_int) -> u32>,
    device_primary_ctx_get_state: Option<unsafe extern "C" fn(c_int, *mut u32, *mut c_int) -> u32>,
    device_get_default_mem_pool: Option<unsafe extern "C" fn(*mut *mut c_void, c_int) -> u32>,
    mem_pool_get_attribute: Option<unsafe extern "C" fn(*mut c_void, c_int, *mut c_void) -> u32>,
    mem_pool_set_attribute: Option<unsafe extern "C" fn(*mut c_void, c_int, *mut c_void) -> u32>,
}

impl Driver {
    /// Loads and initialises the driver.
    ///
    /// # Errors
    ///
    /// If there is no driver, it cannot be initialised, or it sees no device.
    #[doc(alias = "cuInit")]
    pub fn load() -> Result<Self, LoadError> {
        // SAFETY: loading runs NVIDIA's initialisers, on which every CUDA program relies.
        let library = unsafe { libloading::Library::new(Path::new("libcuda.so.1")) };
        let library = library.map_err(|error| LoadError::NoDriver { message: reason(&error) })?;
        // The driver runs threads of its own, so it must never be unloaded.
        let library: &'static libloading::Library = Box::leak(Box::new(library));
        macro_rules! function {
            ($name:literal) => {
                // SAFETY: the type is that of NVIDIA's header; it has not changed since CUDA 11.
                unsafe { library.get($name) }.ok().map(|symbol| *symbol)
            };
        }
        let init = function!("cuInit").ok_or(Error::Missing { function: "cuInit" })?;
        let functions = Box::leak(Box::new(Functions {
            init,
            driver_get_version: function!("cuDriverGetVersion"),
            get_error_string: function!("cuGetErrorString"),
            device_get_count: function!("cuDeviceGetCount"),
            device_get: function!("cuDeviceGet"),
            device_get_name: function!("cuDeviceGetName"),
            device_get_uuid: function!("cuDeviceGetUuid"),
            device_total_mem: function!("cuDeviceTotalMem_v2"),
            device_get_attribute: function!("cuDeviceGetAttribute"),
            device_primary_ctx_get_state: function!("cuDevicePrimaryCtxGetState"),
            device_get_default_mem_pool: function!("cuDeviceGetDefaultMemPool"),
            mem_pool_get_attribute: function!("cuMemPoolGetAttribute"),
            mem_pool_set_attribute: function!("cuMemPoolSetAttribute"),
        }));
        let driver = Self { functions, devices: 0 };
        const NO_DEVICE: u32 = 100;
        // SAFETY: it takes a number, and may be called any number of times.
        match unsafe { (functions.init)(0) } {
            0 => {}
            NO_DEVICE => return Err(LoadError::NoDevice),
            code => return Err(driver.failed("cuInit", code).into()),
        }
        let mut devices = 0;
        // SAFETY: it writes one number.
        driver.call("cuDeviceGetCount", functions.device_get_count, |f| unsafe { f(&mut devices) })?;
        match u32::try_from(devices) {
            Ok(devices) if devices > 0 => Ok(Self { functions, devices }),
            _ => Err(LoadError::NoDevice),
        }
    }

    /// Returns the number of devices.
    #[doc(alias = "cuDeviceGetCount")]
    pub fn device_count(self) -> u32 {
        self.devices
    }

    /// Returns the newest version of CUDA that the driver supports: 13000 for 13.0.
    ///
    /// # Errors
    ///
    /// If the call fails.
    #[doc(alias = "cuDriverGetVersion")]
    pub fn version(self) -> Result<u32, Error> {
        let mut version = 0;
        // SAFETY: it writes one number.
        self.call("cuDriverGetVersion", self.functions.driver_get_version, |f| unsafe { f(&mut version) })?;
        Ok(version.unsigned_abs())
    }

    /// Returns the device with this ordinal number.
    ///
    /// # Errors
    ///
    /// If there is no such device.
    #[doc(alias = "cuDeviceGet")]
    pub fn device(self, ordinal: u32) -> Result<Device, Error> {
        let (mut device, ordinal) = (0, c_int::try_from(ordinal).unwrap_or(c_int::MAX));
        // SAFETY: it writes one number.
        self.call("cuDeviceGet", self.functions.device_get, |f| unsafe { f(&mut device, ordinal) })?;
        Ok(Device(device))
    }

    /// Returns the name of a device.
    ///
    /// # Errors
    ///
    /// If the call fails.
    #[doc(alias = "cuDeviceGetName")]
    pub fn device_name(self, device: Device) -> Result<String, Error> {
        let mut name = [0_u8; 256];
        // SAFETY: it writes at most the given number of bytes, with a zero at the end.
        self.call("cuDeviceGetName", self.functions.device_get_name, |f| unsafe {
            f(name.as_mut_ptr().cast(), name.len() as c_int, device.0)
        })?;
        let name = CStr::from_bytes_until_nul(&name).map(|name| name.to_string_lossy().into_owned());
        Ok(name.unwrap_or_default())
    }

    /// Returns the UUID of a device.
    ///
    /// # Errors
    ///
    /// If the call fails.
    #[doc(alias = "cuDeviceGetUuid")]
    pub fn device_uuid(self, device: Device) -> Result<[u8; 16], Error> {
        let mut uuid = [0; 16];
        // SAFETY: it writes sixteen bytes.
        self.call("cuDeviceGetUuid", self.functions.device_get_uuid, |f| unsafe { f(&mut uuid, device.0) })?;
        Ok(uuid)
    }

    /// Returns the memory of a device in bytes.
    ///
    /// # Errors
    ///
    /// If the call fails.
    #[doc(alias = "cuDeviceTotalMem")]
    pub fn device_memory(self, device: Device) -> Result<usize, Error> {
        let mut bytes = 0;
        // SAFETY: it writes one number.
        self.call("cuDeviceTotalMem", self.functions.device_total_mem, |f| unsafe { f(&mut bytes, device.0) })?;
        Ok(bytes)
    }

    /// Returns an attribute of a device, by its number in `CUdevice_attribute`.
    ///
    /// # Errors
    ///
    /// If the driver does not know the attribute.
    #[doc(alias = "cuDeviceGetAttribute")]
    pub fn device_attribute(self, device: Device, attribute: u32) -> Result<i32, Error> {
        let mut value = 0;
        // SAFETY: it writes one number.
        self.call("cuDeviceGetAttribute", self.functions.device_get_attribute, |f| unsafe {
            f(&mut value, attribute.cast_signed(), device.0)
        })?;
        Ok(value)
    }

    /// Returns the bytes that the device's default memory pool has reserved, and the bytes in use. Returns `None` while
    /// the device has no primary context, because asking would create one.
    ///
    /// # Errors
    ///
    /// If the call fails.
    #[doc(alias = "cuMemPoolGetAttribute")]
    pub fn memory_pool(self, device: Device) -> Result<Option<(u64, u64)>, Error> {
        const RESERVED_CURRENT: c_int = 5;
        const USED_CURRENT: c_int = 7;
        let Some(pool) = self.default_pool(device)? else { return Ok(None) };
        Ok(Some((self.pool_attribute(pool, RESERVED_CURRENT)?, self.pool_attribute(pool, USED_CURRENT)?)))
    }

    /// Returns the most bytes of the device's default memory pool that were in use since the last
    /// [reset](Self::reset_memory_pool_peak), or ever. Returns `None` while the device has no primary context.
    ///
    /// # Errors
    ///
    /// If the call fails.
    #[doc(alias = "CU_MEMPOOL_ATTR_USED_MEM_HIGH")]
    pub fn memory_pool_peak(self, device: Device) -> Result<Option<u64>, Error> {
        self.default_pool(device)?.map(|pool| self.pool_attribute(pool, Self::USED_HIGH)).transpose()
    }

    /// Resets the peak: see [`memory_pool_peak`](Self::memory_pool_peak). Does nothing
    /// while the device has no primary context.
    ///
    /// # Errors
    ///
    /// If the call fails.
    #[doc(alias = "cuMemPoolSetAttribute")]
    pub fn reset_memory_pool_peak(self, device: Device) -> Result<(), Error> {
        let Some(pool) = self.default_pool(device)? else { return Ok(()) };
        let mut zero = 0_u64;
        // SAFETY: the handle comes from the driver, and the attribute has 64 bits, of which only zero may be set.
        self.call("cuMemPoolSetAttribute", self.functions.mem_pool_set_attribute, |f| unsafe {
            f(pool, Self::USED_HIGH, ptr::from_mut(&mut zero).cast())
        })
    }

    /// `CU_MEMPOOL_ATTR_USED_MEM_HIGH`.
    const USED_HIGH: c_int = 8;

    /// Returns the device's default memory pool, or `None` while the device has no primary context.
    fn default_pool(self, device: Device) -> Result<Option<*mut c_void>, Error> {
        let (mut flags, mut active) = (0, 0);
        // SAFETY: it writes two numbers.
        self.call("cuDevicePrimaryCtxGetState", self.functions.device_primary_ctx_get_state, |f| unsafe {
            f(device.0, &mut flags, &mut active)
        })?;
        if active == 0 {
            return Ok(None);
        }
        let mut pool = ptr::null_mut();
        // SAFETY: it writes one handle.
        self.call("cuDeviceGetDefaultMemPool", self.functions.device_get_default_mem_pool, |f| unsafe {
            f(&mut pool, device.0)
        })?;
        Ok(Some(pool))
    }

    /// Returns an attribute of 64 bits of a pool that comes from the driver.
    fn pool_attribute(self, pool: *mut c_void, attribute: c_int) -> Result<u64, Error> {
        let mut bytes = 0_u64;
        // SAFETY: the handle comes from the driver, and it writes 64 bits.
        self.call("cuMemPoolGetAttribute", self.functions.mem_pool_get_attribute, |f| unsafe {
            f(pool, attribute, ptr::from_mut(&mut bytes).cast())
        })?;
        Ok(bytes)
    }

    fn call<F>(self, function: &'static str, pointer: Option<F>, call: impl FnOnce(F) -> u32) -> Result<(), Error> {
        match call(pointer.ok_or(Error::Missing { function })?) {
            0 => Ok(()),
            code => Err(self.failed(function, code)),
        }
    }

    fn failed(self, function: &'static str, code: u32) -> Error {
        let mut text = ptr::null();
        if let Some(get_error_string) = self.functions.get_error_string {
            // SAFETY: it writes a pointer to a static text, or null.
            unsafe { get_error_string(code, &mut text) };
        }
        // SAFETY: if it is not null it points to a static text.
        let message = (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned());
        Error::Failed { function, code, message: message.unwrap_or_else(|| "unknown error".to_owned()) }
    }
}
