//! A domain of annotations: ranges with names, on threads and across them.

use crate::{
    error::Error,
    tables::{self, VERSION, callback_id},
};
use libloading::os::unix::{Library, RTLD_LAZY, RTLD_LOCAL};
use std::{
    env,
    ffi::{CStr, c_char, c_int, c_void},
    marker::PhantomData,
    mem::transmute,
    ptr::null_mut,
    sync::OnceLock,
};

/// `nvtxEventAttributes_t`.
#[repr(C)]
struct EventAttributes {
    version: u16,
    size: u16,
    category: u32,
    color_type: i32,
    color: u32,
    payload_type: i32,
    reserved: i32,
    payload: u64,
    message_type: i32,
    message: *const c_void,
}

/// The variable with the path of the tool's library.
const VARIABLE: &str = if size_of::<usize>() == 8 { "NVTX_INJECTION64_PATH" } else { "NVTX_INJECTION32_PATH" };

// The size and the offset of the message that tools of any version expect.
#[cfg(target_pointer_width = "64")]
const _: () = assert!(size_of::<EventAttributes>() == 48 && std::mem::offset_of!(EventAttributes, message) == 40);

type DomainCreate = unsafe extern "C" fn(*const c_char) -> *mut c_void;
type RegisterString = unsafe extern "C" fn(*mut c_void, *const c_char) -> *mut c_void;
type RangePush = unsafe extern "C" fn(*mut c_void, *const EventAttributes) -> c_int;
type RangePop = unsafe extern "C" fn(*mut c_void) -> c_int;
type RangeStart = unsafe extern "C" fn(*mut c_void, *const EventAttributes) -> u64;
type RangeEnd = unsafe extern "C" fn(*mut c_void, u64);

/// The functions of the tool. Those that it does not have do nothing.
#[derive(Clone, Copy, Debug)]
struct Functions {
    create: Option<DomainCreate>,
    register: Option<RegisterString>,
    push: Option<RangePush>,
    pop: Option<RangePop>,
    start: Option<RangeStart>,
    end: Option<RangeEnd>,
}

/// A domain: annotations of a library or program, which a tool shows apart from those of others.
#[derive(Debug)]
pub struct Domain {
    handle: *mut c_void,
    functions: Functions,
}

// SAFETY: NVTX's functions may be called from any thread. The handle is only passed on to them.
unsafe impl Send for Domain {}
// SAFETY: as above.
unsafe impl Sync for Domain {}

/// A name that a tool knows already, so that using it takes no copy. It belongs to its [`Domain`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegisteredString(*mut c_void);

// SAFETY: the handle is only passed on to functions that may be called from any thread.
unsafe impl Send for RegisteredString {}
// SAFETY: as above.
unsafe impl Sync for RegisteredString {}

/// The text of a range.
#[derive(Clone, Copy, Debug)]
pub struct Message<'a> {
    kind: i32,
    value: *const c_void,
    text: PhantomData<&'a CStr>,
}

impl From<RegisteredString> for Message<'_> {
    fn from(name: RegisteredString) -> Self {
        Self { kind: 3, value: name.0, text: PhantomData }
    }
}

impl<'a> From<&'a CStr> for Message<'a> {
    fn from(text: &'a CStr) -> Self {
        Self { kind: 1, value: text.as_ptr().cast(), text: PhantomData }
    }
}

/// Names a range that [`Domain::start`] has begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "the range ends with `Domain::end`"]
pub struct RangeId(u64);

impl Domain {
    /// Makes a domain. The first call in a process loads the library of the tool that asks for annotations.
    ///
    /// # Errors
    ///
    /// If no tool asks, or its library does not work: in later calls, too, since it is not tried again.
    #[doc(alias = "nvtxDomainCreateA")]
    pub fn new(name: &CStr) -> Result<Self, Error> {
        static TOOL: OnceLock<Result<Functions, Error>> = OnceLock::new();
        let functions = TOOL.get_or_init(load).clone()?;
        let create = functions.create.map(|create| {
            // SAFETY: the tool wrote this function, and the name ends with 0.
            unsafe { create(name.as_ptr()) }
        });
        Ok(Self { handle: create.unwrap_or(null_mut()), functions })
    }

    /// Returns a name that can be used again and again.
    #[doc(alias = "nvtxDomainRegisterStringA")]
    pub fn register(&self, name: &CStr) -> RegisteredString {
        let register = self.functions.register.map(|register| {
            // SAFETY: the tool wrote this function, the handle is its own, and the name ends with 0.
            unsafe { register(self.handle, name.as_ptr()) }
        });
        RegisteredString(register.unwrap_or(null_mut()))
    }

    /// Begins a range on this thread, inside those that [`pop`](Self::pop) has not ended.
    #[inline]
    #[doc(alias = "nvtxDomainRangePushEx")]
    pub fn push(&self, message: Message<'_>) {
        if let Some(push) = self.functions.push {
            let attributes = EventAttributes::new(message);
            // SAFETY: the tool wrote this function, and the handle is its own. The attributes live until it returns.
            unsafe { push(self.handle, &raw const attributes) };
        }
    }

    /// Ends the innermost range of this thread.
    #[inline]
    #[doc(alias = "nvtxDomainRangePop")]
    pub fn pop(&self) {
        if let Some(pop) = self.functions.pop {
            // SAFETY: the tool wrote this function, and the handle is its own.
            unsafe { pop(self.handle) };
        }
    }

    /// Begins a range that may overlap others, and end on another thread.
    #[doc(alias = "nvtxDomainRangeStartEx")]
    pub fn start(&self, message: Message<'_>) -> RangeId {
        let attributes = EventAttributes::new(message);
        let start = self.functions.start.map(|start| {
            // SAFETY: as in `push`.
            unsafe { start(self.handle, &raw const attributes) }
        });
        RangeId(start.unwrap_or(0))
    }

    /// Ends a range that [`start`](Self::start) has begun.
    #[doc(alias = "nvtxDomainRangeEnd")]
    pub fn end(&self, range: RangeId) {
        if let Some(end) = self.functions.end {
            // SAFETY: the tool wrote this function, and the handle and the range are its own.
            unsafe { end(self.handle, range.0) };
        }
    }
}

impl EventAttributes {
    #[inline]
    fn new(message: Message<'_>) -> Self {
        Self {
            version: VERSION,
            size: size_of::<Self>() as u16,
            category: 0,
            color_type: 0,
            color: 0,
            payload_type: 0,
            reserved: 0,
            payload: 0,
            message_type: message.kind,
            message: message.value,
        }
    }
}

/// Loads the library of the tool that asks for annotations, and has it fill in the tables.
fn load() -> Result<Functions, Error> {
    let path = env::var_os(VARIABLE).ok_or(Error::NotAsked)?;
    // SAFETY: whoever set the variable wants the library's initializers to run, as NVIDIA's headers run them.
    let library = unsafe { Library::open(Some(&path), RTLD_LAZY | RTLD_LOCAL) };
    let library = library.map_err(|error| Error::Load { path: path.clone(), reason: error.to_string() })?;
    type Initialize = unsafe extern "C" fn(extern "C" fn(u32) -> *const c_void) -> c_int;
    // SAFETY: this is the type of the function of that name (`NvtxInitializeInjectionNvtxFunc_t`).
    let initialize = unsafe { library.get::<Initialize>(c"InitializeInjectionNvtx2") };
    let Ok(initialize) = initialize else { return Err(Error::NoEntryPoint { path }) };
    // SAFETY: the library is loaded, and the tables live as long as the process.
    if unsafe { initialize(tables::get_export_table) } == 0 {
        tables::clear();
        return Err(Error::Refused { path });
    }
    // Its functions are called until the process ends.
    std::mem::forget(library);
    // SAFETY: these are the types of the functions at these places in the headers. A null pointer becomes `None`.
    unsafe {
        Ok(Functions {
            create: transmute::<*mut c_void, Option<DomainCreate>>(tables::core2(callback_id::DOMAIN_CREATE)),
            register: transmute::<*mut c_void, Option<RegisterString>>(tables::core2(
                callback_id::DOMAIN_REGISTER_STRING,
            )),
            push: transmute::<*mut c_void, Option<RangePush>>(tables::core2(callback_id::DOMAIN_RANGE_PUSH)),
            pop: transmute::<*mut c_void, Option<RangePop>>(tables::core2(callback_id::DOMAIN_RANGE_POP)),
            start: transmute::<*mut c_void, Option<RangeStart>>(tables::core2(callback_id::DOMAIN_RANGE_START)),
            end: transmute::<*mut c_void, Option<RangeEnd>>(tables::core2(callback_id::DOMAIN_RANGE_END)),
        })
    }
}
