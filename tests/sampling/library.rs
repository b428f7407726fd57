//! A library that is loaded while a window is open: optimized, without frame pointers, and its panics abort.

#![allow(unsafe_code, reason = "a library is loaded")]

use super::{HERTZ, check_shares, cpu_time, is_sampled, record, take_turns};
use kernspan::Samples;
use std::{
    cell::Cell,
    ffi::{CString, c_void},
    fs,
    os::unix::ffi::OsStrExt,
    path::Path,
    process::Command,
    thread,
    time::Duration,
};

/// Three functions, each of which calls one that does the work, from the line that ends with its name.
const SOURCE: &str = "
use std::hint::black_box;
type Done = extern \"C\" fn() -> bool;
#[inline(never)]
fn work(done: Done) {
    while !done() {
        for i in 0..3000_u32 {
            black_box(i);
        }
    }
}
#[unsafe(no_mangle)]
pub extern \"C\" fn library_sixty(done: Done) {
    work(done); // library_sixty
    black_box(60);
}
#[unsafe(no_mangle)]
pub extern \"C\" fn library_thirty(done: Done) {
    work(done); // library_thirty
    black_box(30);
}
#[unsafe(no_mangle)]
pub extern \"C\" fn library_ten(done: Done) {
    work(done); // library_ten
    black_box(10);
}
";

const FUNCTIONS: [&str; 3] = ["library_sixty", "library_thirty", "library_ten"];

type Function = extern "C" fn(extern "C" fn() -> bool);

thread_local!(static UNTIL: Cell<Duration> = const { Cell::new(Duration::ZERO) });

extern "C" fn done() -> bool {
    cpu_time() >= UNTIL.get()
}

/// Loads a library, and returns its functions.
fn load(path: &Path) -> [Function; 3] {
    let path = CString::new(path.as_os_str().as_bytes()).unwrap();
    // SAFETY: the library is our own, and does nothing when it is loaded.
    let library: *mut c_void = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW) };
    assert!(!library.is_null());
    FUNCTIONS.map(|name| {
        let name = CString::new(name).unwrap();
        // SAFETY: the library is loaded, and stays so.
        let function = unsafe { libc::dlsym(library, name.as_ptr()) };
        assert!(!function.is_null());
        // SAFETY: the library's functions have this type.
        unsafe { std::mem::transmute::<*mut c_void, Function>(function) }
    })
}

#[test]
fn functions_of_a_library_have_their_shares_and_lines() {
    let folder = tempfile::tempdir().unwrap();
    let (source, library) = (folder.path().join("library.rs"), folder.path().join("liblibrary.so"));
    fs::write(&source, SOURCE).unwrap();
    let mut compiler = Command::new(option_env!("RUSTC").unwrap_or("rustc"));
    compiler.args(["--crate-type=cdylib", "--edition=2024", "-O", "-Cpanic=abort", "-Cforce-frame-pointers=no"]);
    let compiled = compiler.args(["-Cdebuginfo=line-tables-only", "-o"]).args([&library, &source]).status();
    assert!(compiled.unwrap().success());

    let trace = record(Samples::default().hertz(HERTZ), || {
        let run = move || {
            let functions = load(&library);
            take_turns(functions.map(|function| {
                move |until| {
                    UNTIL.set(until);
                    function(done);
                }
            }));
        };
        thread::Builder::new().name("library".to_owned()).spawn(run).unwrap().join().unwrap();
    });
    if !is_sampled(&trace) {
        return;
    }
    check_shares(&trace, "library", FUNCTIONS);
    let samples = || trace.stack_samples().filter(|sample| sample.track().thread_name() == "library");
    for function in FUNCTIONS {
        let line = 1 + SOURCE.lines().position(|line| line.ends_with(&format!("// {function}"))).unwrap();
        for sample in samples() {
            let stack: Vec<_> = sample.stack().collect();
            let Some(at) = stack.iter().position(|frame| frame.function().ends_with(function)) else { continue };
            let found = stack[at];
            // A sample in the function itself, or in what is inlined there, may be on any of its lines.
            if at > 0 && !stack[at - 1].is_inlined() {
                assert_eq!(found.line(), Some(line as u32), "{found:?}");
            }
            assert_eq!(found.library(), "liblibrary.so");
            assert!(found.file().unwrap().ends_with("library.rs"));
        }
    }
    let truncated = samples().filter(|sample| sample.is_truncated()).count();
    assert!(truncated * 100 <= samples().count(), "{truncated} of {}", samples().count());
}
