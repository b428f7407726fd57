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
    run_with(concat!(include_str!("../support/cupti.c"), include_str!("../support/counters.c")), test, program);
}

/// As [`run`], with a CUPTI that cannot sample counters, as those before 12.6.
pub(crate) fn run_without_counters(test: &str, program: &str) {
    run_with(include_str!("../support/cupti.c"), test, program);
}

fn run_with(source: &str, test: &str, program: &str) {
    let folder = tempfile::tempdir().unwrap();
    if !cupti::make_driver(folder.path(), source) {
        return;
    }
    // One library is the driver, CUPTI and NVML.
    let library = folder.path().join("libcuda.so.1");
    std::os::unix::fs::symlink(&library, folder.path().join("libnvidia-ml.so.1")).unwrap();
    let path: &Path = folder.path();
    let variables = [
        ("LD_LIBRARY_PATH", path.as_os_str()),
        ("KERNSPAN_CUPTI", library.as_os_str()),
        ("LD_PRELOAD", library.as_os_str()),
        (PROGRAM, OsStr::new(program)),
    ];
    child::run(test, &variables);
}

/// A setting of the library; the numbers are those of `support/cupti.c`.
#[derive(Clone, Copy)]
pub(crate) enum Setting {
    /// The number of GPUs.
    Devices = 0,
    /// The GPUs without a context, as a bit mask.
    IdleDevices = 1,
    /// The part that `cuptiProfilerDeviceSupported` does not support, from 1.
    Unsupported = 2,
    /// The interval in nanoseconds below which the hardware's buffer overflows.
    OverflowBelow = 3,
    /// The number of images that are full.
    FullImages = 4,
    /// The bytes that CUPTI wants for an image.
    DataSize = 5,
    /// Whether setting counters up is blocked.
    Blocked = 6,
    /// Whether no call of NVML returns.
    StuckNvml = 7,
    /// Whether CUPTI's flush does not return.
    StuckCupti = 8,
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
    finalize: unsafe extern "C" fn() -> c_int,
    set: unsafe extern "C" fn(u32, u64),
    counters: Option<FakeCounters>,
}

/// The functions for counters, if the library can sample them.
#[derive(Clone, Copy)]
struct FakeCounters {
    fail: unsafe extern "C" fn(*const c_char, c_int, c_int, c_int, c_int),
    work: unsafe extern "C" fn(),
    calls: unsafe extern "C" fn(*const c_char) -> c_int,
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
        // SAFETY: as above.
        let optional = |name: &CStr| Some(unsafe { dlsym(library, name.as_ptr()) }).filter(|found| !found.is_null());
        let function = |name: &CStr| optional(name).unwrap();
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
                finalize: std::mem::transmute::<Void, unsafe extern "C" fn() -> c_int>(function(c"cuptiFinalize")),
                set: std::mem::transmute::<Void, unsafe extern "C" fn(u32, u64)>(function(c"fake_set")),
                counters: optional(c"fake_fail").map(|fail| FakeCounters {
                    fail: std::mem::transmute::<Void, unsafe extern "C" fn(*const c_char, c_int, c_int, c_int, c_int)>(
                        fail,
                    ),
                    work: std::mem::transmute::<Void, unsafe extern "C" fn()>(function(c"fake_work")),
                    calls: std::mem::transmute::<Void, unsafe extern "C" fn(*const c_char) -> c_int>(function(
                        c"fake_calls",
                    )),
                }),
            }
        }
    }

    /// Detaches CUPTI, as another tool may have done before the profiler was built.
    pub(crate) fn finalize(self) {
        // SAFETY: it takes nothing.
        assert_eq!(unsafe { (self.finalize)() }, 0);
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

    pub(crate) fn set(self, setting: Setting, value: u64) {
        // SAFETY: it takes numbers.
        unsafe { (self.set)(setting as u32, value) }
    }

    /// Makes a function for counters fail with this code, after so many calls that succeed, on one GPU or all.
    pub(crate) fn fail(self, function: &CStr, code: i32, device: Option<i32>, after: i32, times: i32) {
        // SAFETY: it copies the name.
        unsafe { (self.counters.unwrap().fail)(function.as_ptr(), code, device.unwrap_or(-1), after, times) }
    }

    /// Makes all functions for counters work.
    pub(crate) fn work(self) {
        // SAFETY: it takes nothing.
        unsafe { (self.counters.unwrap().work)() }
    }

    /// Returns how often a function for counters was called.
    pub(crate) fn calls(self, function: &CStr) -> i32 {
        // SAFETY: it reads the name.
        unsafe { (self.counters.unwrap().calls)(function.as_ptr()) }
    }
}
