//! The functions of the fake driver and CUPTI in `support/cupti.c`, by which a test controls them.

use std::ffi::{CStr, OsStr, c_char, c_int, c_void};

/// The functions of the library that act as a program and its GPU.
#[derive(Clone, Copy)]
pub(crate) struct Fake {
    call: unsafe extern "C" fn(c_int) -> u32,
    record: unsafe extern "C" fn(c_int, u32),
    launch: unsafe extern "C" fn(u64),
    make_ambiguous: unsafe extern "C" fn(),
    suspend: unsafe extern "C" fn(),
    is_recording: unsafe extern "C" fn() -> c_int,
    finalized: unsafe extern "C" fn() -> c_int,
    flushed: unsafe extern "C" fn() -> c_int,
}

#[allow(unsafe_code, reason = "the library is in C")]
impl Fake {
    pub(crate) fn load(path: &OsStr) -> Self {
        unsafe extern "C" {
            fn dlopen(path: *const c_char, flags: c_int) -> *mut c_void;
            fn dlsym(library: *mut c_void, name: *const c_char) -> *mut c_void;
        }
        let path = std::ffi::CString::new(path.to_str().unwrap()).unwrap();
        // SAFETY: the library is made by this test.
        let library = unsafe { dlopen(path.as_ptr(), 2) };
        assert!(!library.is_null());
        let function = |name: &CStr| {
            // SAFETY: as above.
            let function = unsafe { dlsym(library, name.as_ptr()) };
            assert!(!function.is_null());
            function
        };
        type Void = *mut c_void;
        // SAFETY: these are their types.
        unsafe {
            Self {
                call: std::mem::transmute::<Void, unsafe extern "C" fn(c_int) -> u32>(function(c"fake_call")),
                record: std::mem::transmute::<Void, unsafe extern "C" fn(c_int, u32)>(function(c"fake_record")),
                launch: std::mem::transmute::<Void, unsafe extern "C" fn(u64)>(function(c"fake_launch")),
                make_ambiguous: std::mem::transmute::<Void, unsafe extern "C" fn()>(function(c"fake_break")),
                suspend: std::mem::transmute::<Void, unsafe extern "C" fn()>(function(c"fake_suspend")),
                is_recording: std::mem::transmute::<Void, unsafe extern "C" fn() -> c_int>(function(c"fake_recording")),
                finalized: std::mem::transmute::<Void, unsafe extern "C" fn() -> c_int>(function(c"fake_finalized")),
                flushed: std::mem::transmute::<Void, unsafe extern "C" fn() -> c_int>(function(c"fake_flushed")),
            }
        }
    }

    /// Makes a call whose work has no record until [`record`](Self::record), and returns its correlation id.
    pub(crate) fn call(self, copies: bool) -> u32 {
        // SAFETY: it takes a number.
        unsafe { (self.call)(copies.into()) }
    }

    /// Writes the record of a call's work.
    pub(crate) fn record(self, copies: bool, number: u32) {
        // SAFETY: it takes numbers.
        unsafe { (self.record)(copies.into(), number) }
    }

    /// Launches a kernel that takes twenty microseconds.
    pub(crate) fn launch(self) {
        // SAFETY: it takes a number.
        unsafe { (self.launch)(20_000) }
    }

    /// Gives all later launches of this thread the same correlation id, until the library is detached.
    pub(crate) fn make_ambiguous(self) {
        // SAFETY: it takes nothing.
        unsafe { (self.make_ambiguous)() }
    }

    /// Takes the correlation id of this thread's next call, which is made later.
    pub(crate) fn suspend(self) {
        // SAFETY: it takes nothing.
        unsafe { (self.suspend)() }
    }

    pub(crate) fn is_recording(self) -> bool {
        // SAFETY: it takes nothing.
        unsafe { (self.is_recording)() != 0 }
    }

    /// Returns the number of times that CUPTI was detached.
    pub(crate) fn finalized(self) -> i32 {
        // SAFETY: it takes nothing.
        unsafe { (self.finalized)() }
    }

    /// Returns the number of times that records were requested.
    pub(crate) fn flushed(self) -> i32 {
        // SAFETY: it takes nothing.
        unsafe { (self.flushed)() }
    }
}
