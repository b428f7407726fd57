//! The functions of the fake driver and CUPTI in `support/cupti.c`, by which a test controls them.

use crate::support::{child, cupti};
use std::{
    env,
    ffi::{CStr, OsStr, c_char, c_int, c_void},
    path::Path,
};

const PROGRAM: &str = "KERNSPAN_TEST_PROGRAM";

/// Runs a program with the fake driver and CUPTI, in a process of its own: the test of this name, in which
/// [`Fake::program`] returns the program.
pub(crate) fn run(test: &str, program: &str) {
    let folder = tempfile::tempdir().unwrap();
    let source = include_str!("../support/cupti.c");
    if !cupti::make_driver(folder.path(), source) {
        return;
    }
    // One library is both the driver and CUPTI.
    let library = folder.path().join("libcuda.so.1");
    let path: &Path = folder.path();
    let variables = [
        ("LD_LIBRARY_PATH", path.as_os_str()),
        ("KERNSPAN_CUPTI", library.as_os_str()),
        ("LD_PRELOAD", library.as_os_str()),
        (PROGRAM, OsStr::new(program)),
    ];
    child::run(test, &variables);
}

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
    allocate: unsafe extern "C" fn(u64) -> u64,
    free: unsafe extern "C" fn(u64),
    used: unsafe extern "C" fn() -> u64,
}

#[allow(unsafe_code, reason = "the library is in C")]
impl Fake {
    /// Returns the fake and the name of the program that this process is to run, if [`run`] has started it.
    pub(crate) fn program() -> Option<(Self, String)> {
        let program = env::var(PROGRAM).ok()?;
        Some((Self::load(&env::var_os("KERNSPAN_CUPTI")?), program))
    }

    fn load(path: &OsStr) -> Self {
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
                allocate: std::mem::transmute::<Void, unsafe extern "C" fn(u64) -> u64>(function(c"fake_allocate")),
                free: std::mem::transmute::<Void, unsafe extern "C" fn(u64)>(function(c"fake_free")),
                used: std::mem::transmute::<Void, unsafe extern "C" fn() -> u64>(function(c"fake_used")),
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

    /// Allocates from a memory of one GiB, and returns the address, unless there is not enough.
    pub(crate) fn allocate(self, bytes: u64) -> Option<u64> {
        // SAFETY: it takes a number.
        Some(unsafe { (self.allocate)(bytes) }).filter(|address| *address != 0)
    }

    /// Frees what was allocated at this address.
    pub(crate) fn free(self, address: u64) {
        // SAFETY: it takes a number.
        unsafe { (self.free)(address) }
    }

    /// Returns the bytes that are allocated and not freed.
    pub(crate) fn used(self) -> u64 {
        // SAFETY: it takes nothing.
        unsafe { (self.used)() }
    }
}
