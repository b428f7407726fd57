use crate::{Error, LoadError, Records, result};
use libloading::os::unix::Library;
use std::{
    ffi::{CStr, c_char, c_void},
    fmt,
    path::{Path, PathBuf},
    ptr,
};

/// Asks for a buffer: where it is, how long, and how many records it may hold at most (0: as many as fit).
#[doc(alias = "CUpti_BuffersCallbackRequestFunc")]
pub type BufferRequested = unsafe extern "C" fn(buffer: *mut *mut u8, size: *mut usize, most: *mut usize);

/// Gives a buffer back, with how many of its bytes hold records.
#[doc(alias = "CUpti_BuffersCallbackCompleteFunc")]
pub type BufferCompleted =
    unsafe extern "C" fn(context: *mut c_void, stream: u32, buffer: *mut u8, size: usize, valid: usize);

/// Is called on entering and on leaving functions.
#[doc(alias = "CUpti_CallbackFunc")]
pub type Callback = unsafe extern "C" fn(data: *mut c_void, domain: u32, cbid: u32, about: *const c_void);

/// Who is called back: made by [`Cupti::subscribe`].
#[doc(alias = "CUpti_SubscriberHandle")]
#[derive(Clone, Copy, Debug)]
pub struct Subscriber(*mut c_void);

// SAFETY: it is a handle, which CUPTI takes from any thread.
unsafe impl Send for Subscriber {}
// SAFETY: as above.
unsafe impl Sync for Subscriber {}

/// CUPTI, loaded and answering.
///
/// It stays loaded until the process ends: the driver keeps pointers into it.
pub struct Cupti {
    functions: Functions,
    path: PathBuf,
    version: u32,
}

macro_rules! functions {
    ($($field:ident = $name:literal: ($($argument:ty),*);)*) => {
        struct Functions { $($field: Option<unsafe extern "C" fn($($argument),*) -> u32>,)* }

        impl Functions {
            fn of(library: &Library) -> Self {
                // SAFETY: the types are those of NVIDIA's header, and the same in all releases from 12.0 to 13.4.
                Self { $($field: unsafe { library.get(concat!($name, "\0").as_bytes()) }.ok().map(|symbol| *symbol),)* }
            }
        }

        impl Cupti {
            /// The functions' C names and the types of what they take, for checks against real headers and libraries.
            #[doc(hidden)]
            pub const FUNCTIONS: &'static [(&'static str, &'static [&'static str])] =
                &[$(($name, &[$(stringify!($argument)),*])),*];
        }
    };
}

functions! {
    get_version = "cuptiGetVersion": (*mut u32);
    get_timestamp = "cuptiGetTimestamp": (*mut u64);
    get_result_string = "cuptiGetResultString": (u32, *mut *const c_char);
    get_callback_name = "cuptiGetCallbackName": (u32, u32, *mut *const c_char);
    get_device_id = "cuptiGetDeviceId": (*mut c_void, *mut u32);
    set_thread_id_type = "cuptiSetThreadIdType": (u32);
    subscribe = "cuptiSubscribe": (*mut *mut c_void, Callback, *mut c_void);
    unsubscribe = "cuptiUnsubscribe": (*mut c_void);
    enable_callback = "cuptiEnableCallback": (u32, *mut c_void, u32, u32);
    enable_domain = "cuptiEnableDomain": (u32, *mut c_void, u32);
    activity_register_callbacks = "cuptiActivityRegisterCallbacks": (BufferRequested, BufferCompleted);
    activity_enable = "cuptiActivityEnable": (u32);
    activity_disable = "cuptiActivityDisable": (u32);
    activity_enable_driver_api = "cuptiActivityEnableDriverApi": (u32, u8);
    activity_enable_runtime_api = "cuptiActivityEnableRuntimeApi": (u32, u8);
    activity_enable_latency_timestamps = "cuptiActivityEnableLatencyTimestamps": (u8);
    activity_set_attribute = "cuptiActivitySetAttribute": (u32, *mut usize, *mut c_void);
    activity_flush_all = "cuptiActivityFlushAll": (u32);
    activity_get_next_record = "cuptiActivityGetNextRecord": (*mut u8, usize, *mut *mut u8);
    activity_get_num_dropped_records = "cuptiActivityGetNumDroppedRecords": (*mut c_void, u32, *mut usize);
    finalize = "cuptiFinalize": ();
}

impl Cupti {
    pub(crate) fn untried(library: Library, path: PathBuf) -> Self {
        let functions = Functions::of(&library);
        std::mem::forget(library);
        Self { functions, path, version: 0 }
    }

    pub(crate) fn new(library: Library, path: PathBuf) -> Result<Self, LoadError> {
        let mut cupti = Self::untried(library, path);
        let mut version = 0;
        // SAFETY: it writes one number; the driver is there, without which some releases recurse for ever here.
        cupti.call("cuptiGetVersion", cupti.functions.get_version, |f| unsafe { f(&mut version) })?;
        cupti.version = version;
        const OF_CUDA_12_0: u32 = 18;
        if version < OF_CUDA_12_0 { Err(LoadError::TooOld { version }) } else { Ok(cupti) }
    }

    /// Where it was found.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The version as CUPTI gives it: 18 for CUDA 12.0, 26 for 12.8, 130001 for 13.0 update 1.
    #[doc(alias = "cuptiGetVersion")]
    pub fn version(&self) -> u32 {
        self.version
    }

    /// The time by the clock of all records, in nanoseconds. On Linux that is `CLOCK_REALTIME`.
    ///
    /// # Errors
    ///
    /// If CUPTI does.
    #[doc(alias = "cuptiGetTimestamp")]
    pub fn timestamp(&self) -> Result<u64, Error> {
        let mut nanos = 0;
        // SAFETY: it writes one number.
        self.call("cuptiGetTimestamp", self.functions.get_timestamp, |f| unsafe { f(&mut nanos) })?;
        Ok(nanos)
    }

    /// The name of a function, as `cuMemAlloc_v2`.
    ///
    /// # Errors
    ///
    /// If CUPTI does not know it.
    #[doc(alias = "cuptiGetCallbackName")]
    pub fn callback_name(&self, domain: u32, cbid: u32) -> Result<String, Error> {
        let mut name = ptr::null();
        // SAFETY: it writes one pointer.
        self.call("cuptiGetCallbackName", self.functions.get_callback_name, |f| unsafe { f(domain, cbid, &mut name) })?;
        // SAFETY: it is null or a text that stays.
        Ok(if name.is_null() { String::new() } else { unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned() })
    }

    /// What `thread_id` in records is to be: see [`thread_id_type`](crate::thread_id_type).
    ///
    /// # Errors
    ///
    /// If CUPTI does.
    #[doc(alias = "cuptiSetThreadIdType")]
    pub fn set_thread_id_type(&self, kind: u32) -> Result<(), Error> {
        // SAFETY: it takes a number.
        self.call("cuptiSetThreadIdType", self.functions.set_thread_id_type, |f| unsafe { f(kind) })
    }

    /// Begins to record a kind of activity: see [`kind`](crate::kind).
    ///
    /// # Errors
    ///
    /// If CUPTI does.
    #[doc(alias = "cuptiActivityEnable")]
    pub fn activity_enable(&self, kind: u32) -> Result<(), Error> {
        // SAFETY: it takes a number.
        self.call("cuptiActivityEnable", self.functions.activity_enable, |f| unsafe { f(kind) })
    }

    /// Ends recording a kind of activity.
    ///
    /// # Errors
    ///
    /// If CUPTI does.
    #[doc(alias = "cuptiActivityDisable")]
    pub fn activity_disable(&self, kind: u32) -> Result<(), Error> {
        // SAFETY: it takes a number.
        self.call("cuptiActivityDisable", self.functions.activity_disable, |f| unsafe { f(kind) })
    }

    /// Begins or ends recording the calls of one function of the driver: see [`cbid`](crate::cbid). Where the kind
    /// [`DRIVER`](crate::kind::DRIVER) was ever on, this has no effect.
    ///
    /// # Errors
    ///
    /// If CUPTI does not know the function. Releases before 12.5 have no such choice: [`Error::Missing`].
    #[doc(alias = "cuptiActivityEnableDriverApi")]
    pub fn activity_enable_driver_api(&self, cbid: u32, enable: bool) -> Result<(), Error> {
        let function = self.functions.activity_enable_driver_api;
        // SAFETY: it takes numbers.
        self.call("cuptiActivityEnableDriverApi", function, |f| unsafe { f(cbid, u8::from(enable)) })
    }

    /// Begins or ends recording the calls of one function of the runtime.
    ///
    /// # Errors
    ///
    /// If CUPTI does not know the function. Releases before 12.5 have no such choice: [`Error::Missing`].
    #[doc(alias = "cuptiActivityEnableRuntimeApi")]
    pub fn activity_enable_runtime_api(&self, cbid: u32, enable: bool) -> Result<(), Error> {
        let function = self.functions.activity_enable_runtime_api;
        // SAFETY: it takes numbers.
        self.call("cuptiActivityEnableRuntimeApi", function, |f| unsafe { f(cbid, u8::from(enable)) })
    }

    /// Whether kernels say when they were queued and submitted.
    ///
    /// # Errors
    ///
    /// If CUPTI does.
    #[doc(alias = "cuptiActivityEnableLatencyTimestamps")]
    pub fn activity_enable_latency_timestamps(&self, enable: bool) -> Result<(), Error> {
        let function = self.functions.activity_enable_latency_timestamps;
        // SAFETY: it takes a number.
        self.call("cuptiActivityEnableLatencyTimestamps", function, |f| unsafe { f(u8::from(enable)) })
    }

    /// Sets one of the attributes that are sizes: see [`attribute`](crate::attribute). Before the first context, or it has no
    /// effect there.
    ///
    /// # Errors
    ///
    /// If CUPTI does.
    #[doc(alias = "cuptiActivitySetAttribute")]
    pub fn activity_set_size(&self, attribute: u32, mut size: usize) -> Result<(), Error> {
        let mut length = size_of::<usize>();
        // SAFETY: it reads one number, of the length it is told.
        self.call("cuptiActivitySetAttribute", self.functions.activity_set_attribute, |f| unsafe {
            f(attribute, &mut length, ptr::from_mut(&mut size).cast())
        })
    }

    /// Has buffers given back: those in which all records are complete, or all ([`flush::FORCED`](crate::flush::FORCED)).
    ///
    /// # Errors
    ///
    /// If CUPTI does.
    #[doc(alias = "cuptiActivityFlushAll")]
    pub fn activity_flush_all(&self, flags: u32) -> Result<(), Error> {
        // SAFETY: it takes a number.
        self.call("cuptiActivityFlushAll", self.functions.activity_flush_all, |f| unsafe { f(flags) })
    }

    /// How many records were dropped since the last call, for want of a buffer.
    ///
    /// # Errors
    ///
    /// If CUPTI does.
    #[doc(alias = "cuptiActivityGetNumDroppedRecords")]
    pub fn activity_dropped_records(&self) -> Result<usize, Error> {
        let mut dropped = 0;
        let function = self.functions.activity_get_num_dropped_records;
        // SAFETY: with no context it asks for the queue of all; it writes one number.
        self.call("cuptiActivityGetNumDroppedRecords", function, |f| unsafe { f(ptr::null_mut(), 0, &mut dropped) })?;
        Ok(dropped)
    }

    /// The device of a context.
    ///
    /// # Errors
    ///
    /// If CUPTI does.
    ///
    /// # Safety
    ///
    /// The context is there.
    #[doc(alias = "cuptiGetDeviceId")]
    pub unsafe fn device_of(&self, context: crate::Context) -> Result<u32, Error> {
        let mut device = 0;
        // SAFETY: the caller answers for the context; it writes one number.
        self.call("cuptiGetDeviceId", self.functions.get_device_id, |f| unsafe { f(context, &mut device) })?;
        Ok(device)
    }

    /// Says who gives and takes buffers.
    ///
    /// # Errors
    ///
    /// If CUPTI does.
    ///
    /// # Safety
    ///
    /// Both may be called from any thread, at any time until the process ends, and must not unwind. `requested` gives buffers
    /// that are aligned to eight bytes and stay until `completed` is called with them; never null, on which releases before
    /// 12.9 crash.
    #[doc(alias = "cuptiActivityRegisterCallbacks")]
    pub unsafe fn activity_register_callbacks(
        &self,
        requested: BufferRequested,
        completed: BufferCompleted,
    ) -> Result<(), Error> {
        let function = self.functions.activity_register_callbacks;
        // SAFETY: the caller answers for the callbacks.
        self.call("cuptiActivityRegisterCallbacks", function, |f| unsafe { f(requested, completed) })
    }

    /// Says whom to call back. There can be one in a process:
    /// [`MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED`](result::MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED) says there is another profiler.
    ///
    /// # Errors
    ///
    /// If CUPTI does.
    ///
    /// # Safety
    ///
    /// `callback` may be called with `data` from any thread until [`unsubscribe`](Self::unsubscribe) has returned and every call
    /// then under way has ended, and must not unwind.
    #[doc(alias = "cuptiSubscribe")]
    pub unsafe fn subscribe(&self, callback: Callback, data: *mut c_void) -> Result<Subscriber, Error> {
        let mut subscriber = ptr::null_mut();
        // SAFETY: the caller answers for the callback; it writes one handle.
        self.call("cuptiSubscribe", self.functions.subscribe, |f| unsafe { f(&mut subscriber, callback, data) })?;
        Ok(Subscriber(subscriber))
    }

    /// Ends what [`subscribe`](Self::subscribe) began.
    ///
    /// # Errors
    ///
    /// If CUPTI does.
    #[doc(alias = "cuptiUnsubscribe")]
    pub fn unsubscribe(&self, subscriber: Subscriber) -> Result<(), Error> {
        // SAFETY: CUPTI checks the handle.
        self.call("cuptiUnsubscribe", self.functions.unsubscribe, |f| unsafe { f(subscriber.0) })
    }

    /// Begins or ends calling back for one function: see [`domain`](crate::domain) and [`cbid`](crate::cbid).
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

    /// Begins or ends calling back for all functions of a domain: see [`domain`](crate::domain).
    ///
    /// # Errors
    ///
    /// If CUPTI does.
    #[doc(alias = "cuptiEnableDomain")]
    pub fn enable_domain(&self, subscriber: Subscriber, domain: u32, enable: bool) -> Result<(), Error> {
        // SAFETY: CUPTI checks the handle; the rest are numbers.
        self.call("cuptiEnableDomain", self.functions.enable_domain, |f| unsafe {
            f(u32::from(enable), subscriber.0, domain)
        })
    }

    /// The records in a buffer, each as the bytes up to the next.
    ///
    /// # Safety
    ///
    /// The bytes are the valid part of a buffer that CUPTI filled and gave back.
    #[doc(alias = "cuptiActivityGetNextRecord")]
    pub unsafe fn records<'a>(&'a self, buffer: &'a [u8]) -> Records<'a> {
        Records::new(self, buffer)
    }

    /// Steps on to the next record; [`MAX_LIMIT_REACHED`](result::MAX_LIMIT_REACHED) at the end.
    ///
    /// # Safety
    ///
    /// As for [`records`](Self::records), and `record` is null or what this gave back.
    pub(crate) unsafe fn next_record(&self, buffer: *mut u8, length: usize, record: &mut *mut u8) -> u32 {
        // SAFETY: the caller answers for the buffer, which CUPTI only reads.
        self.functions.activity_get_next_record.map_or(result::UNKNOWN, |f| unsafe { f(buffer, length, record) })
    }

    /// Detaches CUPTI from the process: what it costs to have it attached ends. It can be used again from the beginning
    /// afterwards.
    ///
    /// # Errors
    ///
    /// If CUPTI does.
    ///
    /// # Safety
    ///
    /// No other function of CUPTI is being called, all buffers have been flushed, and nobody uses a pointer out of a record any
    /// more.
    #[doc(alias = "cuptiFinalize")]
    pub unsafe fn finalize(&self) -> Result<(), Error> {
        // SAFETY: the caller answers for it.
        self.call("cuptiFinalize", self.functions.finalize, |f| unsafe { f() })
    }

    fn call<F>(&self, function: &'static str, pointer: Option<F>, call: impl FnOnce(F) -> u32) -> Result<(), Error> {
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
        // SAFETY: if it is not null it is a text that stays.
        let message = (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned());
        message.unwrap_or_else(|| "unknown error".to_owned())
    }
}

impl fmt::Debug for Cupti {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cupti").field("path", &self.path).field("version", &self.version).finish_non_exhaustive()
    }
}
