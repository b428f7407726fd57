//! The command `ranks hang`, on files that `kernspan-nccl` writes: processes of this test are ranks, which call the
//! plugin through its C interface, as NCCL does.

#![cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
#![allow(unsafe_code, reason = "the interface is one of C")]

use crate::{printed, printed_json, run};
use kernspan::Profiler;
use kernspan_nccl::Nccl;
use libloading::os::unix::Library;
use rustix::process::{Signal, getpid, kill_process};
use std::{
    ffi::{CStr, c_char, c_int, c_void},
    os::unix::process::ExitStatusExt,
    path::Path,
    process::{Command, ExitStatus},
    ptr::{null, null_mut},
    thread,
    time::Duration,
};
use tracing_subscriber::prelude::*;

/// The table of version 5: name, `init`, `startEvent`, `stopEvent`, `recordEventState`, `finalize`.
#[repr(C)]
struct Table {
    name: *const c_char,
    init: extern "C" fn(*mut *mut c_void, u64, *mut c_int, *const c_char, c_int, c_int, c_int, *const c_void) -> c_int,
    start: extern "C" fn(*mut c_void, *mut *mut c_void, *const [u64; 32]) -> c_int,
    stop: extern "C" fn(*mut c_void) -> c_int,
}

/// A communicator, as NCCL sees it.
struct Communicator {
    table: &'static Table,
    context: *mut c_void,
}

impl Communicator {
    fn new(id: u64, ranks: c_int, rank: c_int) -> Self {
        // SAFETY: the plugin is loaded, and this is the layout of its table.
        let table = unsafe {
            let library = Library::open(Some("libnccl-profiler.so"), 2).unwrap();
            &*library.get::<*const Table>(b"ncclProfiler_v5").unwrap().as_raw_ptr().cast::<Table>()
        };
        let (mut context, mut mask) = (null_mut(), 0);
        (table.init)(&raw mut context, id, &raw mut mask, c"dp".as_ptr(), 1, ranks, rank, null());
        Self { table, context }
    }

    fn event(&self, kind: u64, parent: *mut c_void, payload: &[u64]) -> *mut c_void {
        let (mut descriptor, mut handle) = ([0; 32], null_mut());
        (descriptor[0], descriptor[1]) = (kind, parent as u64);
        descriptor[3..3 + payload.len()].copy_from_slice(payload);
        (self.table.start)(self.context, &raw mut handle, &raw const descriptor);
        handle
    }

    /// Calls and launches a collective, whose kernel starts if `starts`, and ends if `ends`.
    fn call(&self, function: &'static CStr, sequence: u64, starts: bool, ends: bool) {
        let (function, float) = (function.as_ptr() as u64, c"ncclFloat32".as_ptr() as u64);
        let entered = self.event(1 << 9, null_mut(), &[function, 1024, float]);
        let (ring, simple) = (c"RING".as_ptr() as u64, c"SIMPLE".as_ptr() as u64);
        let launched = self.event(2, entered, &[sequence, function, 0, 0, 1024, 0, float, 1, ring, simple]);
        if starts {
            let channel = self.event(64, launched, &[0, 0]);
            if ends {
                (self.table.stop)(channel);
            }
        }
    }
}

/// A rank, in a process of its own: makes its calls, stays in them for longer than a second, and writes its file.
#[test]
#[ignore = "other tests run it"]
fn as_a_rank() {
    let variable = |name: &str| std::env::var(name).unwrap();
    let (rank, size): (c_int, c_int) = (variable("RANK").parse().unwrap(), variable("WORLD_SIZE").parse().unwrap());
    let (layer, profiler) = Profiler::builder().build().unwrap();
    tracing_subscriber::registry().with(layer).init();
    let plugin = Nccl::new().hangs_to_dir(variable("FOLDER")).install(&profiler).unwrap();
    let _step = tracing::info_span!("train_step").entered();
    let all = Communicator::new(0xc0ffee, size, rank);
    let case = variable("CASE");
    tracing::info_span!("backward").in_scope(|| {
        all.call(c"Broadcast", 0, true, true);
        (0..100).for_each(|sequence| all.call(c"AllReduce", sequence, true, true));
    });
    let is_late = rank == 2;
    match case.as_str() {
        "missing" | "ended" if is_late => {}
        "missing" | "ended" => tracing::info_span!("backward").in_scope(|| {
            all.call(c"AllReduce", 100, true, false);
            // These are queued behind it.
            all.call(c"AllReduce", 101, false, false);
            all.call(c"Broadcast", 1, false, false);
        }),
        // Rank 2 has made another call.
        "order" if is_late => all.call(c"Broadcast", 1, true, false),
        "order" | "link" => all.call(c"AllReduce", 100, true, false),
        // Rank 2 waits for rank 3 in another communicator.
        "chain" if is_late => Communicator::new(0xbeef, 2, 0).call(c"AllGather", 0, true, false),
        "chain" if rank == 3 => drop(Communicator::new(0xbeef, 2, 1)),
        "chain" => all.call(c"AllReduce", 100, true, false),
        _ => {}
    }
    let place = if is_late { tracing::info_span!("load") } else { tracing::info_span!("optimizer") };
    place.in_scope(|| {
        thread::sleep(Duration::from_millis(1_100));
        plugin.write().unwrap();
    });
    // A rank that ends well, even by `exit`, says so in its file.
    if case != "ended" {
        kill_process(getpid(), Signal::KILL).unwrap();
    }
}

/// Runs the ranks of a case that have a file.
fn write(folder: &Path, case: &str, ranks: &[u32]) {
    let start = |rank: &u32| {
        let mut rank_of_run = Command::new(std::env::current_exe().unwrap());
        rank_of_run.args(["hang::as_a_rank", "--exact", "--ignored"]).env("CASE", case).env("FOLDER", folder);
        rank_of_run.env("RANK", rank.to_string()).env("WORLD_SIZE", "4").stdout(std::process::Stdio::null());
        rank_of_run.spawn().unwrap()
    };
    let children: Vec<_> = ranks.iter().map(start).collect();
    let ended = |status: ExitStatus| status.success() || status.signal() == Some(Signal::KILL.as_raw());
    assert!(children.into_iter().all(|mut child| ended(child.wait().unwrap())));
}

#[test]
fn the_missing_rank_is_named_with_its_span() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), "missing", &[0, 1, 2, 3]);
    let text = printed("ranks hang", &[folder.path()]);
    let expected = "AllReduce 100 of communicator 0000000000c0ffee (dp), 4 ranks: rank 2 is missing, in `train_step > \
                    load` (integrations/cli/tests/cli/hang.rs:";
    assert!(text.contains(expected), "{text}");
    assert!(
        text.contains("), step 0; ranks 0, 1, 3 wait, for 1.") && text.contains("called in `train_step > backward`")
    );
    let json = printed_json("ranks hang --json", &[folder.path()]);
    let [hang] = json["hangs"].as_array().unwrap().as_slice() else { panic!("{json}") };
    assert_eq!((hang["function"].as_str(), hang["sequence"].as_u64()), (Some("AllReduce"), Some(100)));
    let waiting: Vec<_> = hang["waiting"].as_array().unwrap().iter().map(|it| (&it["rank"], &it["state"])).collect();
    assert_eq!(waiting, [0, 1, 3].map(|rank| (rank.into(), "started".into())).each_ref().map(|(a, b)| (a, b)));
    assert_eq!((&hang["missing"][0]["rank"], &hang["missing"][0]["last"]), (&2.into(), &99.into()));
    assert!(printed("ranks hang --format md", &[folder.path()]).starts_with("## Hangs\n\n|"));

    // Files that are missing, cut or of something else are named, and the rest is used.
    let file = |rank: u32| folder.path().join(format!("rank{rank:05}.nccl"));
    std::fs::remove_file(file(3)).unwrap();
    let whole = std::fs::read(file(1)).unwrap();
    std::fs::write(file(1), &whole[..whole.len() / 2]).unwrap();
    std::fs::write(folder.path().join("other.nccl"), r#"{"format": "else"}"#).unwrap();
    let rest = run("ranks hang", &[folder.path()]);
    assert!(rest.err.contains("rank00001.nccl: it ends too early\n"), "{}", rest.err);
    assert!(rest.err.contains("other.nccl: it is not a file of kernspan-nccl"), "{}", rest.err);
    assert!(rest.out.contains("rank 2 is missing, in"), "{}", rest.out);
    assert!(rest.out.contains("there is no file of its ranks 1, 3; rank 0 waits"), "{}", rest.out);
    assert!(rest.out.contains("warning: ranks 1, 3 have no file\n"), "{}", rest.out);
    assert_eq!(rest.code, 1);
}

#[test]
fn other_reasons_for_a_hang_are_told_apart() {
    let [order, link, chain, ended, well] = ["order", "link", "chain", "ended", "well"].map(|case| {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), case, &[0, 1, 2, 3]);
        printed("ranks hang", &[folder.path()])
    });
    assert!(
        order.contains("AllReduce 100 of communicator 0000000000c0ffee (dp), 4 ranks: rank 2 is missing"),
        "{order}"
    );
    assert!(
        order.contains(", and waits in Broadcast 1 of communicator 0000000000c0ffee; ranks 0, 1, 3 wait"),
        "{order}"
    );
    assert!(
        link.contains("4 ranks: no rank is missing, so a link or a GPU may be broken; ranks 0, 1, 2, 3 wait"),
        "{link}"
    );
    // The cause comes first.
    let sentences: Vec<_> = chain.lines().filter(|line| line.contains("is missing")).collect();
    let expected =
        "AllGather 0 of communicator 000000000000beef (dp), 2 ranks: rank 3 is missing, in `train_step > opt";
    assert!(sentences.len() == 2 && sentences[0].starts_with(expected), "{chain}");
    assert!(sentences[1].contains("and waits in AllGather 0 of communicator 000000000000beef; rank 3 is"), "{chain}");
    assert!(ended.contains("rank 2 is missing, as it has ended, step 0; ranks 0, 1, 3 wait"), "{ended}");
    assert!(well.contains("none of 4 ranks waits in a collective for longer than 1.00 s"), "{well}");
}

#[test]
fn a_folder_without_files_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let none = run("ranks hang", &[folder.path()]);
    assert!(none.err.contains("no files of ranks in"), "{}", none.err);
    let missing = run("ranks hang", &[&folder.path().join("gone")]);
    assert!(missing.err.contains("gone: no such file or directory"), "{}", missing.err);
    assert_eq!((none.code, missing.code), (1, 1));
}

/// Files of four ranks on an H200, one of which never left `load` (`ranks.sh OUT 4 hang` of `benches/gpu`).
#[test]
fn a_hang_that_was_recorded_on_a_gpu_is_named() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/ranks/hang");
    let text = printed("ranks hang", &[&folder]);
    let expected = "AllReduce 180 of communicator 3800c09f800a64df, 4 ranks: rank 2 is missing, in `train_step > load` \
                    (benches/gpu/src/bin/ranks.rs:112), step 20; ranks 0, 1, 3 wait, for 20.1 s so far, called in \
                    `train_step > backward` (benches/gpu/src/bin/ranks.rs:114)";
    assert!(text.contains(expected), "{text}");
}
