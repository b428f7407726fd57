use crate::{
    callback::{BufferCompleted, BufferRequested, Callback, Subscriber},
    constants::result,
    driver::Context,
    error::{Error, LoadError},
    functions::Functions,
};
use libloading::os::unix::Library;
use std::{
    ffi::{CStr, c_void},
    fmt,
    path::{Path, PathBuf},
    ptr,
};

/// NVIDIA's CUPTI library, loaded and checked to answer.
///
/// It stays loaded until the process ends, because the driver keeps pointers into it.
pub struct Cupti {
    pub(crate) functions: Functions,
    path: PathBuf,
    version: u32,
}

impl Cupti {
    /// The functions' C names and parameter types, for checks against real headers and libraries.
    #[doc(hidden)]
    pub const FUNCTIONS: &'static [(&'static str, &'static [&'static str])] = Functions::SIGNATURES;

    /// Wraps a library without calling any of its functions; the version is 0.
    pub(crate) fn unchecked(library: Library, path: PathBuf) -> Self {
        let functions = Functions::of(&library);
        std::mem::forget(library);
        Self { functions, path, version: 0 }
    }

    /// Wraps a library after asking for its version.
    pub(crate) fn new(library: Library, path: PathBuf) -> Result<Self, LoadError> {
        let mut cupti = Self::unchecked(library, path);
        let mut version = 0;
        // SAFETY: it writes one number. The caller has a driver, without which some releases recurse endlessly here.
        cupti.call("cuptiGetVersion", cupti.functions.get_version, |f| unsafe { f(&mut version) })?;
        cupti.version = version;
        const OF_CUDA_12_0: u32 = 18;
        if version < OF_CUDA_12_0 { Err(LoadError::TooOld { version }) } else { Ok(cupti) }
    }

    /// Returns the path that the library was loaded from.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the version as CUPTI counts it: 18 for CUDA 12.0, 26 for 12.8, 130001 for 13.0 update 1.
    #[doc(alias = "cuptiGetVersion")]
    pub fn version(&self) -> u32 {
        self.version
    }

    /// Returns the current time in nanoseconds, by the clock of all records. On Linux that is `CLOCK_REALTIME`.
    ///
    /// # Errors
    ///
    /// If the call fails.
    #[doc(alias = "cuptiGetTimestamp")]
    pub fn timestamp(&self) -> Result<u64, Error> {
        let mut nanos = 0;
        // SAFETY: it writes one number.
        self.call("cuptiGetTimestamp", self.functions.get_timestamp, |f| unsafe { f(&mut nanos) })?;
        Ok(nanos)
    }

    /// Returns the name of a function, such as `cuMemAlloc_v2`.
    ///
    /// # Errors
    ///
    /// If CUPTI does not know the function.
    #[doc(alias = "cuptiGetCallbackName")]
    pub fn callback_name(&self, domain: u32, cbid: u32) -> Result<String, Error> {
        let mut name = ptr::null();
        // SAFETY: it writes one pointer.
        self.call("cuptiGetCallbackName", self.functions.get_callback_name, |f| unsafe { f(domain, cbid, &mut name) })?;
        // SAFETY: it is null or points to a static text.
        Ok(if name.is_null() { String::new() } else { unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned() })
    }

    /// Chooses the meaning of `thread_id` in records: see [`thread_id_type`](crate::thread_id_type).
    ///
    /// # Errors
    ///
    /// If the call fails.
    #[doc(alias = "cuptiSetThreadIdType")]
    pub fn set_thread_id_type(&self, kind: u32) -> Result<(), Error> {
        // SAFETY: it takes a number.
        self.call("cuptiSetThreadIdType", self.functions.set_thread_id_type, |f| unsafe { f(kind) })
    }

    /// Starts recording a kind of activity: see [`kind`](crate::kind).
    ///
    /// # Errors
    ///
    /// If the call fails.
    #[doc(alias = "cuptiActivityEnable")]
    pub fn activity_enable(&self, kind: u32) -> Result<(), Error> {
        // SAFETY: it takes a number.
        self.call("cuptiActivityEnable", self.functions.activity_enable, |f| unsafe { f(kind) })
    }

    /// Stops recording a kind of activity.
    ///
    /// # Errors
    ///
    /// If the call fails.
    #[doc(alias = "cuptiActivityDisable")]
    pub fn activity_disable(&self, kind: u32) -> Result<(), Error> {
        // SAFETY: it takes a number.
        self.call("cuptiActivityDisable", self.functions.activity_disable, |f| unsafe { f(kind) })
    }

    /// Starts or stops recording the calls of one function of the driver API: see [`cbid`](crate::cbid). It has no
    /// effect once the kind [`DRIVER`](crate::kind::DRIVER) has been enabled.
    ///
    /// # Errors
    ///
    /// If CUPTI does not know the function; [`Error::Missing`] in releases before 12.5, which lack this call.
    #[doc(alias = "cuptiActivityEnableDriverApi")]
    pub fn activity_enable_driver_api(&self, cbid: u32, enable: bool) -> Result<(), Error> {
        let function = self.functions.activity_enable_driver_api;
        // SAFETY: it takes numbers.
        self.call("cuptiActivityEnableDriverApi", function, |f| unsafe { f(cbid, u8::from(enable)) })
    }

    /// Starts or stops recording the calls of one function of the runtime API.
    ///
    /// # Errors
    ///
    /// If CUPTI does not know the function; [`Error::Missing`] in releases before 12.5, which lack this call.
    #[doc(alias = "cuptiActivityEnableRuntimeApi")]
    pub fn activity_enable_runtime_api(&self, cbid: u32, enable: bool) -> Result<(), Error> {
        let function = self.functions.activity_enable_runtime_api;
        // SAFETY: it takes numbers.
        self.call("cuptiActivityEnableRuntimeApi", function, |f| unsafe { f(cbid, u8::from(enable)) })
    }

    /// Turns the `queued` and `submitted` timestamps of kernel records on or off.
    ///
    /// # Errors
    ///
    /// If the call fails.
    #[doc(alias = "cuptiActivityEnableLatencyTimestamps")]
    pub fn activity_enable_latency_timestamps(&self, enable: bool) -> Result<(), Error> {
        let function = self.functions.activity_enable_latency_timestamps;
        // SAFETY: it takes a number.
        self.call("cuptiActivityEnableLatencyTimestamps", function, |f| unsafe { f(u8::from(enable)) })
    }

    /// Sets an attribute that is a size: see [`attribute`](crate::attribute). It affects only contexts created
    /// afterwards.
    ///
    /// # Errors
    ///
    /// If the call fails.
    #[doc(alias = "cuptiActivitySetAttribute")]
    pub fn activity_set_size(&self, attribute: u32, mut size: usize) -> Result<(), Error> {
        let mut length = size_of::<usize>();
        // SAFETY: it reads one number of the given length.
        self.call("cuptiActivitySetAttribute", self.functions.activity_set_attribute, |f| unsafe {
            f(attribute, &mut length, ptr::from_mut(&mut size).cast())
        })
    }

    /// Makes CUPTI give buffers back: those in which all records are complete, or with
    /// [`flush::FORCED`](crate::flush::FORCED) all of them.
    ///
    /// # Errors
    ///
    /// If the call fails.
    #[doc(alias = "cuptiActivityFlushAll")]
    pub fn activity_flush_all(&self, flags: u32) -> Result<(), Error> {
        // SAFETY: it takes a number.
        self.call("cuptiActivityFlushAll", self.functions.activity_flush_all, |f| unsafe { f(flags) })
    }

    /// Returns how many records were dropped for lack of a buffer since the last call.
    ///
    /// # Errors
    ///
    /// If the call fails.
    #[doc(alias = "cuptiActivityGetNumDroppedRecords")]
    pub fn activity_dropped_records(&self) -> Result<usize, Error> {
        let mut dropped = 0;
        let function = self.functions.activity_get_num_dropped_records;
        // SAFETY: a null context stands for the global queue; it writes one number.
        self.call("cuptiActivityGetNumDroppedRecords", function, |f| unsafe { f(ptr::null_mut(), 0, &mut dropped) })?;
        Ok(dropped)
    }

    /// Returns the device of a context.
    ///
    /// # Errors
    ///
    /// If the call fails.
    ///
    /// # Safety
    ///
    /// The context exists.
    #[doc(alias = "cuptiGetDeviceId")]
    pub unsafe fn device_of(&self, context: Context) -> Result<u32, Error> {
        let mut device = 0;
        // SAFETY: the caller guarantees the context; it writes one number.
        self.call("cuptiGetDeviceId", self.functions.get_device_id, |f| unsafe { f(context, &mut device) })?;
        Ok(device)
    }

    /// Registers the callbacks that hand out buffers and take them back.
    ///
    /// # Errors
    ///
    /// If the call fails.
    ///
    /// # Safety
    ///
    /// Both callbacks may be called from any thread, at any time until the process ends, and must not unwind.
    /// `requested` hands out buffers that are aligned to eight bytes and stay valid until `completed` is called with
    /// them. It never hands out null, on which releases before 12.9 crash.
    #[doc(alias = "cuptiActivityRegisterCallbacks")]
    pub unsafe fn activity_register_callbacks(
        &self,
        requested: BufferRequested,
        completed: BufferCompleted,
    ) -> Result<(), Error> {
        let function = self.functions.activity_register_callbacks;
        // SAFETY: the caller guarantees the callbacks.
        self.call("cuptiActivityRegisterCallbacks", function, |f| unsafe { f(requested, completed) })
    }

    /// Registers the callback for API calls. A process can have one subscriber.
    ///
    /// # Errors
    ///
    /// If the call fails; with the code
    /// [`MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED`](result::MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED) if another profiler is
    /// subscribed.
    ///
    /// # Safety
    ///
    /// `callback` may be called with `data` from any thread until [`unsubscribe`](Self::unsubscribe) has returned and
    /// every call under way at that moment has ended. It must not unwind.
    #[doc(alias = "cuptiSubscribe")]
    pub unsafe fn subscribe(&self, callback: Callback, data: *mut c_void) -> Result<Subscriber, Error> {
        let mut subscriber = ptr::null_mut();
        // SAFETY: the caller guarantees the callback; it writes one handle.
        self.call("cuptiSubscribe", self.functions.subscribe, |f| unsafe { f(&mut subscriber, callback, data) })?;
        Ok(Subscriber(subscriber))
    }

    /// Ends a subscription made by [`subscribe`](Self::subscribe).
    ///
    /// # Errors
    ///
    /// If the call fails.
    #[doc(alias = "cuptiUnsubscribe")]
    pub fn unsubscribe(&self, subscriber: Subscriber) -> Result<(), Error> {
        // SAFETY: CUPTI checks the handle.
        self.call("cuptiUnsubscribe", self.functions.unsubscribe, |f| unsafe { f(subscriber.0) })
    }

    /// Turns callbacks for one function on or off: see [`domain`](crate::domain) and [`cbid`](crate::cbid).
    ///
    /// # Errors
    ///
    /// If CUPTI does not know the function.
    #[doc(alias = "cuptiEnableCallback")]
    pub fn enable_callback(&self, subscriber: Subscriber, domain: u32, cbid: u32, enable: bool) -> Result<(), Error> {
        // SAFETY: CUPTI checks the handle; the rest are numbers.
        self.call("cuptiEnableCallback", self.functions.enable_callback, |f| unsafe {
            f(u32::from(enable), subscriber.0, domain, cbid)
        })
    }

    /// Turns callbacks for all functions of a domain on or off: see [`domain`](crate::domain).
    ///
    /// # Errors
    ///
    /// If the call fails.
    #[doc(alias = "cuptiEnableDomain")]
    pub fn enable_domain(&self, subscriber: Subscriber, domain: u32, enable: bool) -> Result<(), Error> {
        // SAFETY: CUPTI checks the handle; the rest are numbers.
        self.call("cuptiEnableDomain", self.functions.enable_domain, |f| unsafe {
            f(u32::from(enable), subscriber.0, domain)
        })
    }

    /// Detaches CUPTI from the process, and so ends its overhead. CUPTI can be set up again afterwards, from the
    /// beginning.
    ///
    /// # Errors
    ///
    /// If the call fails.
    ///
    /// # Safety
    ///
    /// No other function of CUPTI is being called, all buffers have been flushed, and no pointer taken from a record is
    /// used afterwards.
    #[doc(alias = "cuptiFinalize")]
    pub unsafe fn finalize(&self) -> Result<(), Error> {
        // SAFETY: the caller guarantees what `cuptiFinalize` requires.
        self.call("cuptiFinalize", self.functions.finalize, |f| unsafe { f() })
    }

    pub(crate) fn call<F>(
        &self,
        function: &'static str,
        pointer: Option<F>,
        call: impl FnOnce(F) -> u32,
    ) -> Result<(), Error> {
        match call(pointer.ok_or(Error::Missing { function })?) {
            result::SUCCESS => Ok(()),
            code => Err(Error::Failed { function, code, message: self.message(code) }),
        }
    }

    fn message(&self, code: u32) -> String {
        let mut text = ptr::null();
        if let Some(get_result_string) = self.functions.get_result_string {
            // SAFETY: it writes a pointer to a static text, or null.
            unsafe { get_result_string(code, &mut text) };
        }
        // SAFETY: if it is not null it points to a static text.
        let message = (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned());
        message.unwrap_or_else(|| "unknown error".to_owned())
    }
}

impl fmt::Debug for Cupti {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cupti").field("path", &self.path).field("version", &self.version).finish_non_exhaustive()
    }
}
