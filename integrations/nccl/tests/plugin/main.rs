//! Drives the plugin through its C interface, as NCCL does: opens the library by its name, looks up the tables and
//! calls their functions.

#![cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
#![allow(unsafe_code, reason = "the interface is one of C")]

mod ending;

use kernspan::Profiler;
use kernspan_nccl::{Nccl, Plugin};
use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};
use serde_json::Value;
use std::{
    ffi::{CStr, c_char, c_int, c_void},
    ptr::{null, null_mut},
    sync::{Mutex, MutexGuard, PoisonError},
    thread,
};
use tracing_subscriber::prelude::*;

/// A table of NCCL's profiler interface.
#[repr(C)]
struct Table {
    name: *const c_char,
    init: *const c_void,
    start: extern "C" fn(*mut c_void, *mut *mut c_void, *const c_void) -> c_int,
    stop: extern "C" fn(*mut c_void) -> c_int,
    record: extern "C" fn(*mut c_void, c_int, *const c_void) -> c_int,
    finalize: extern "C" fn(*mut c_void) -> c_int,
}

type InitV4 =
    extern "C" fn(*mut *mut c_void, *mut c_int, *const c_char, u64, c_int, c_int, c_int, *const c_void) -> c_int;
type InitV5 =
    extern "C" fn(*mut *mut c_void, u64, *mut c_int, *const c_char, c_int, c_int, c_int, *const c_void) -> c_int;

/// A version of the interface, as NCCL uses it.
#[derive(Clone, Copy)]
struct Nvidia {
    version: u32,
    table: &'static Table,
}

/// What a test needs: the plugin, the profiler, and that no other test runs, since the plugin is one per process.
struct Setup {
    profiler: Profiler,
    plugin: Plugin,
    _alone: MutexGuard<'static, ()>,
}

/// Runs a test with the plugin, in the scope of a profiler's subscriber.
fn with_plugin(settings: Nccl, test: impl FnOnce(&Setup)) {
    static ALONE: Mutex<()> = Mutex::new(());
    let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let (layer, profiler) = Profiler::builder().build().unwrap();
    let plugin = settings.install(&profiler).unwrap();
    let setup = Setup { profiler, plugin, _alone: alone };
    tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || test(&setup));
    drop(setup.plugin);
    setup.profiler.finish().unwrap();
}

/// The file with the last calls, as JSON.
fn written(setup: &Setup) -> Value {
    serde_json::from_slice(&std::fs::read(setup.plugin.write().unwrap().unwrap()).unwrap()).unwrap()
}

/// The communicators that have not ended. Those of other tests may have ended with unfinished calls.
fn open(file: &Value) -> Vec<&Value> {
    file["communicators"].as_array().unwrap().iter().filter(|group| group["closed"].is_null()).collect()
}

/// The calls of the only open communicator: function, number, and how far each has come.
fn calls(file: &Value) -> Vec<String> {
    let [communicator] = open(file)[..] else { panic!("{file}") };
    let state = |call: &Value| {
        let states = ["finished", "started", "launched", "entered"];
        states.into_iter().find(|state| call[state].is_u64()).unwrap().to_owned()
    };
    let call = |call: &Value| format!("{} {} {}", call["function"].as_str().unwrap(), call["sequence"], state(call));
    communicator["calls"].as_array().unwrap().iter().map(call).collect()
}

impl Nvidia {
    fn versions() -> [Self; 3] {
        // SAFETY: the library has no code that runs when it is opened.
        let library = unsafe { Library::open(Some("libnccl-profiler.so"), RTLD_NOW | RTLD_LOCAL) }.unwrap();
        [4, 5, 6].map(|version| {
            let name = format!("ncclProfiler_v{version}");
            // SAFETY: this is the layout of the tables.
            let table = unsafe { library.get::<*const Table>(name.as_bytes()) }.unwrap();
            // SAFETY: the plugin stays loaded.
            Self { version, table: unsafe { &*table.as_raw_ptr().cast::<Table>() } }
        })
    }

    fn init(self, communicator: u64, ranks: c_int, rank: c_int) -> (*mut c_void, c_int) {
        let (mut context, mut mask) = (null_mut(), 0);
        let name = c"data parallel".as_ptr();
        // SAFETY: these are the types of the versions.
        let result = unsafe {
            if self.version == 4 {
                let init: InitV4 = std::mem::transmute(self.table.init);
                init(&raw mut context, &raw mut mask, name, communicator, 1, ranks, rank, null())
            } else {
                let init: InitV5 = std::mem::transmute(self.table.init);
                init(&raw mut context, communicator, &raw mut mask, name, 1, ranks, rank, null())
            }
        };
        assert_eq!(result, 0);
        (context, mask)
    }

    /// Starts an event. The descriptor is laid out by hand, so that the test does not share mistakes.
    fn start(self, context: *mut c_void, kind: u64, parent: *mut c_void, payload: &[u64]) -> *mut c_void {
        let mut descriptor = [0_u64; 32];
        // The padding behind the type, which is one byte in version 4, is garbage there.
        descriptor[0] = if self.version == 4 { kind & 0xff | 0xdead_beef << 8 } else { kind };
        descriptor[1] = parent as u64;
        descriptor[3..3 + payload.len()].copy_from_slice(payload);
        let mut handle = std::ptr::without_provenance_mut(1);
        assert_eq!((self.table.start)(context, &raw mut handle, descriptor.as_ptr().cast()), 0);
        handle
    }

    fn all_reduce(self, context: *mut c_void, parent: *mut c_void, sequence: u64) -> *mut c_void {
        self.start(context, 2, parent, &all_reduce(sequence))
    }
}

fn text(text: &'static CStr) -> u64 {
    text.as_ptr() as u64
}

/// `coll`: number, function, two buffers, count, root, type, channels and warps, algorithm, protocol.
fn all_reduce(sequence: u64) -> [u64; 10] {
    let (function, dtype) = (text(c"AllReduce"), text(c"ncclFloat32"));
    [sequence, function, 0, 0, 1024, 0, dtype, 2 | 16 << 8, text(c"RING"), text(c"LL")]
}

#[test]
fn nccl_finds_all_versions() {
    with_plugin(Nccl::new(), |setup| {
        for nccl in Nvidia::versions() {
            // SAFETY: the plugin's name is a string of C.
            assert_eq!(unsafe { CStr::from_ptr(nccl.table.name) }, c"kernspan");
            let before = setup.plugin.counts();
            let (context, mask) = nccl.init(7, 2, 1);
            assert!(!context.is_null());
            assert_eq!(mask, [0x46, 0x646, 0x1646][nccl.version as usize - 4]);
            let handle = nccl.all_reduce(context, null_mut(), 0);
            let channel = nccl.start(context, 64, handle, &[0, 1]);
            assert!(!handle.is_null() && !channel.is_null());
            assert_eq!((nccl.table.stop)(handle), 0);
            assert_eq!((nccl.table.record)(channel, 22, [5_u64; 8].as_ptr().cast()), 0);
            assert_eq!((nccl.table.stop)(channel), 0);
            assert_eq!((nccl.table.finalize)(context), 0);
            let after = setup.plugin.counts();
            assert_eq!(after.communicators - before.communicators, 1);
            assert_eq!(after.collectives - before.collectives, 1);
            assert_eq!(after.channels - before.channels, 1);
        }
    });
    // Another profiler may follow.
    with_plugin(Nccl::new().channels(false), |_| {
        let [v4, v5, v6] = Nvidia::versions().map(|nccl| nccl.init(8, 2, 1));
        assert_eq!([v4.1, v5.1, v6.1], [0x06, 0x606, 0x1606]);
        for (nccl, (context, _)) in Nvidia::versions().into_iter().zip([v4, v5, v6]) {
            (nccl.table.finalize)(context);
        }
    });
}

#[test]
fn the_file_tells_how_far_each_call_has_come() {
    let folder = tempfile::tempdir().unwrap();
    with_plugin(Nccl::new().hangs_to_dir(folder.path()), |setup| {
        let _step = tracing::info_span!("train_step").entered();
        let [v4, v5, v6] = Nvidia::versions();
        for nccl in [v4, v5, v6] {
            let (context, _) = nccl.init(0xabc, 2, 1);
            // From version 5 on, the program's call has an event, and the launch may come later.
            let program = [text(c"AllReduce"), 1024, text(c"ncclFloat32")];
            let entered = tracing::info_span!("backward").in_scope(|| nccl.start(context, 512, null_mut(), &program));
            let first = nccl.all_reduce(context, entered, 5);
            let channels = [0, 1].map(|channel| nccl.start(context, 64, first, &[channel, 9]));
            (nccl.table.stop)(channels[0]);
            assert_eq!(calls(&written(setup)), ["AllReduce 5 started"]);
            (nccl.table.stop)(channels[1]);
            assert_eq!(calls(&written(setup)), ["AllReduce 5 finished"]);
            let gather = [0, text(c"AllGather"), 0, 0, 8, 0, text(c"ncclInt8"), 1, text(c"RING"), text(c"LL")];
            nccl.start(context, 2, null_mut(), &gather);
            let file = written(setup);
            assert_eq!(calls(&file), ["AllReduce 5 finished", "AllGather 0 launched"]);
            let (group, call) = (open(&file)[0], &open(&file)[0]["calls"][0]);
            assert_eq!(
                (group["communicator"].as_str(), group["name"].as_str()),
                (Some("0000000000000abc"), Some("data parallel"))
            );
            assert_eq!((&group["rank"], &group["ranks"], &group["total"]), (&1.into(), &2.into(), &2.into()));
            assert_eq!(
                (&call["algorithm"], &call["protocol"], &call["channels"]),
                (&"RING".into(), &"LL".into(), &2.into())
            );
            let names = |call: &Value| {
                call["spans"].as_array().unwrap().iter().map(|span| span["name"].clone()).collect::<Vec<_>>()
            };
            let path: &[&str] = if nccl.version == 4 { &["train_step"] } else { &["train_step", "backward"] };
            assert_eq!(names(call), path, "version {}", nccl.version);
            assert_eq!(names(&file["threads"][0]), ["train_step"]);
            (nccl.table.finalize)(context);
        }
        // A call that was only entered, a receive, and one by a copy engine, of version 6.
        let (context, _) = v6.init(1, 2, 0);
        v6.start(context, 1 << 9, null_mut(), &[text(c"Broadcast"), 1, text(c"ncclInt8")]);
        v6.start(context, 4, null_mut(), &[text(c"Recv"), 0, text(c"ncclInt8"), 16, 1 | 0xee << 32]);
        v6.start(context, 1 << 12, null_mut(), &[3, text(c"AllGather"), 0, 0, 8, 0, text(c"ncclInt8")]);
        let file = written(setup);
        assert_eq!(calls(&file), ["Broadcast null entered", "Recv null launched", "AllGather 3 launched"]);
        assert_eq!(open(&file)[0]["calls"][1]["peer"], 1);
        (v6.table.finalize)(context);
    });
    assert!(
        std::fs::read_dir(folder.path()).unwrap().all(|entry| entry.unwrap().path().extension().unwrap() == "nccl")
    );
}

#[test]
fn nonsense_is_ignored() {
    with_plugin(Nccl::new(), |setup| {
        let before = setup.plugin.counts();
        for nccl in Nvidia::versions() {
            let (context, _) = nccl.init(1, 2, 0);
            let garbage = [null_mut(), usize_pointer(7), usize_pointer(usize::MAX), usize_pointer(3 << 60 | 5 << 20)];
            for handle in garbage {
                (nccl.table.stop)(handle);
                (nccl.table.record)(handle, 22, null());
                assert!(nccl.start(handle, 2, null_mut(), &all_reduce(0)).is_null(), "no such communicator");
                assert!(nccl.start(context, 64, handle, &[0, 0]).is_null() || handle == garbage[3]);
            }
            // Types that are not followed, or not known.
            for kind in [8, 16, 32, 128, 1 << 8, 1 << 11, 1 << 13, 1 << 40] {
                assert!(nccl.version == 4 && kind > 255 || nccl.start(context, kind, null_mut(), &[0; 8]).is_null());
            }
            assert!(!nccl.start(context, 1, null_mut(), &[]).is_null(), "NCCL counts calls of groups with a handle");
            // No strings, no descriptor, nowhere to write.
            assert!(!nccl.start(context, 2, null_mut(), &[0; 10]).is_null());
            let mut handle = usize_pointer(1);
            (nccl.table.start)(context, &raw mut handle, null());
            assert!(handle.is_null());
            (nccl.table.start)(context, null_mut(), [0_u64; 32].as_ptr().cast());
            // Ends that come twice, or after the communicator's.
            let call = nccl.all_reduce(context, null_mut(), 1);
            let channel = nccl.start(context, 64, call, &[0, 0]);
            (nccl.table.stop)(channel);
            (nccl.table.stop)(channel);
            (nccl.table.finalize)(context);
            (nccl.table.finalize)(context);
            (nccl.table.stop)(channel);
            assert!(nccl.all_reduce(context, null_mut(), 2).is_null());
            (nccl.table.finalize)(null_mut());
        }
        assert_eq!(setup.plugin.counts().communicators - before.communicators, 3);
    });
}

fn usize_pointer(number: usize) -> *mut c_void {
    std::ptr::without_provenance_mut(number)
}

#[test]
fn thousands_of_communicators_on_several_threads_lose_nothing() {
    let folder = tempfile::tempdir().unwrap();
    with_plugin(Nccl::new().hangs_to_dir(folder.path()), |setup| {
        const THREADS: u64 = 4;
        const COMMUNICATORS: u64 = 500;
        const CALLS: u64 = 70;
        let before = setup.plugin.counts();
        let contexts = thread::scope(|scope| {
            let mut threads = Vec::new();
            for thread in 0..THREADS {
                let thread = scope.spawn(move || {
                    let nccl = Nvidia::versions()[thread as usize % 3];
                    let contexts: Vec<_> = (0..COMMUNICATORS).map(|id| nccl.init(thread << 32 | id, 2, 0).0).collect();
                    for call in 0..CALLS {
                        for &context in &contexts {
                            let handle = nccl.all_reduce(context, null_mut(), call);
                            let channel = nccl.start(context, 64, handle, &[0, 0]);
                            (nccl.table.stop)(handle);
                            // Every seventh end is missing.
                            if call % 7 > 0 {
                                (nccl.table.stop)(channel);
                            }
                        }
                    }
                    // Half of them end.
                    for &context in contexts.iter().step_by(2) {
                        (nccl.table.finalize)(context);
                    }
                    contexts.iter().map(|context| context.addr()).collect::<Vec<_>>()
                });
                threads.push(thread);
            }
            threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
        });
        let after = setup.plugin.counts();
        assert_eq!(after.communicators - before.communicators, THREADS * COMMUNICATORS);
        assert_eq!(after.collectives - before.collectives, THREADS * COMMUNICATORS * CALLS);
        assert_eq!(after.channels - before.channels, THREADS * COMMUNICATORS * CALLS);
        assert_eq!(after.unfollowed, before.unfollowed);
        let file = written(setup);
        assert_eq!(open(&file).len() as u64, THREADS * COMMUNICATORS / 2);
        for group in open(&file) {
            assert_eq!((group["total"].as_u64(), group["calls"].as_array().unwrap().len()), (Some(CALLS), 64));
            assert_eq!(group["calls"][63]["sequence"], CALLS - 1);
        }
        let finalize = Nvidia::versions()[0].table.finalize;
        contexts.into_iter().for_each(|context| assert_eq!(finalize(usize_pointer(context)), 0));
        assert!(open(&written(setup)).is_empty());
    });
}

#[test]
fn a_plugin_of_the_user_is_left_alone() {
    // The variable is read from the environment of a child, since setting it here would race with other tests.
    let test = ["another_plugin_is_an_error", "--exact", "--ignored"];
    let mut child = std::process::Command::new(std::env::current_exe().unwrap());
    let output = child.args(test).env("NCCL_PROFILER_PLUGIN", "libmine.so").output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}

#[test]
#[ignore = "a_plugin_of_the_user_is_left_alone runs it"]
fn another_plugin_is_an_error() {
    let (_layer, profiler) = Profiler::builder().build().unwrap();
    let error = Nccl::new().install(&profiler).unwrap_err().to_string();
    assert!(error.contains("NCCL_PROFILER_PLUGIN is \"libmine.so\""), "{error}");
}
