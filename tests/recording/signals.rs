//! Tests of recordings that are saved when a signal or a call of `exit` ends the process.

mod handlers;

use crate::support::child::{self, Captured, Ended};
use kernspan::{Exporter, Profiler, ProfilerBuilder, Stacks, analysis::Analysis, export::ExportResult};
use rustix::process::Signal;
use std::{
    ffi::OsStr,
    os::unix::process::ExitStatusExt,
    path::Path,
    sync::OnceLock,
    time::{Duration, Instant},
};
use tracing::info_span;
use tracing_subscriber::prelude::*;

const FOLDER: &str = "KERNSPAN_TEST_FOLDER";
/// Longer than a test may take: a process that waits for it is not told from one that hangs.
const FOR_EVER: Duration = Duration::from_secs(3600);

/// Runs `program` in a process of its own, with a folder for its files.
fn program(name: &str, folder: &Path, program: impl FnOnce()) -> Captured {
    child::program(&format!("signals::{name}"), &[(FOLDER, folder.as_os_str())], || {
        heed_sigint();
        program();
    })
}

/// Has SIGINT do what it does by default. Shells start jobs in the background with it ignored, and so these tests.
#[allow(unsafe_code, reason = "there is no safe function for it")]
fn heed_sigint() {
    // SAFETY: the default action is set before the process has handlers of its own.
    unsafe { libc::signal(libc::SIGINT, libc::SIG_DFL) };
}

/// Records a span in a window that stays open.
fn train(setup: impl FnOnce(ProfilerBuilder) -> ProfilerBuilder) -> Profiler {
    let folder = std::env::var_os(FOLDER).unwrap();
    let (layer, profiler) = setup(Profiler::builder().export(Stacks::to_dir(folder))).build().unwrap();
    tracing_subscriber::registry().with(layer).init();
    // A stack whose time rounds to 0 might be left out.
    let until = Instant::now() + Duration::from_millis(1);
    info_span!("train_step").in_scope(|| while Instant::now() < until {});
    profiler
}

/// Waits for the signal.
fn wait_for_ever() -> ! {
    println!("ready");
    loop {
        std::thread::park();
    }
}

/// Whether the folder has a whole trace of [`train`], and nothing else.
fn is_saved(folder: &Path) -> bool {
    let files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    let [file] = &files[..] else { return false };
    file.extension() == Some(OsStr::new("folded")) && std::fs::read_to_string(file).unwrap().contains("train_step ")
}

/// An exporter that never comes back.
struct Hanging;

impl Exporter for Hanging {
    fn export(&mut self, _: &Analysis<'_>) -> ExportResult {
        println!("exporting");
        loop {
            std::thread::park();
        }
    }
}

#[test]
fn sigint_saves_the_open_window() {
    let folder = tempfile::tempdir().unwrap();
    let mut running = program("sigint_saves_the_open_window", folder.path(), || {
        let _profiler = train(ProfilerBuilder::save_on_exit);
        wait_for_ever();
    });
    running.wait_for_output("ready");
    running.send(Signal::INT);
    let ended = running.wait();
    assert_eq!(ended.status.signal(), Some(Signal::INT.as_raw()), "{ended:?}");
    assert!(is_saved(folder.path()) && ended.stderr.is_empty(), "{ended:?}");
}

#[test]
fn sigterm_saves_the_open_window_and_prints_what_a_drop_would() {
    let folder = tempfile::tempdir().unwrap();
    let mut running = program("sigterm_saves_the_open_window_and_prints_what_a_drop_would", folder.path(), || {
        let failing = |_: &Analysis<'_>| panic!("no room");
        let _profiler = train(|builder| builder.save_on_exit().print_report(true).on_trace(failing));
        wait_for_ever();
    });
    running.wait_for_output("ready");
    running.send(Signal::TERM);
    let ended = running.wait();
    assert_eq!(ended.status.signal(), Some(Signal::TERM.as_raw()), "{ended:?}");
    assert!(is_saved(folder.path()), "{ended:?}");
    assert!(ended.stderr.contains("\ntrain_step "), "{ended:?}");
    assert!(ended.stderr.ends_with("kernspan: on_trace, window 0: panicked: no room\n"), "{ended:?}");
}

#[test]
fn a_second_signal_ends_the_process_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let mut running = program("a_second_signal_ends_the_process_at_once", folder.path(), || {
        let _profiler = train(|builder| builder.export(Hanging).save_on_exit_within(FOR_EVER));
        wait_for_ever();
    });
    running.wait_for_output("ready");
    running.send(Signal::INT);
    running.wait_for_output("exporting");
    running.send(Signal::TERM);
    assert_eq!(running.wait().status.signal(), Some(Signal::TERM.as_raw()));
}

#[test]
fn an_exporter_that_hangs_does_not_keep_the_process() {
    let folder = tempfile::tempdir().unwrap();
    let mut running = program("an_exporter_that_hangs_does_not_keep_the_process", folder.path(), || {
        let _profiler = train(|builder| builder.export(Hanging).save_on_exit_within(Duration::from_millis(20)));
        wait_for_ever();
    });
    running.wait_for_output("ready");
    running.send(Signal::INT);
    let Ended { status, stderr, .. } = running.wait();
    assert_eq!(status.signal(), Some(Signal::INT.as_raw()));
    assert_eq!(stderr, "kernspan: cannot save the end of the recording: exporters took longer than 20ms\n");
}

#[test]
fn exit_saves_the_open_window() {
    let folder = tempfile::tempdir().unwrap();
    let running = program("exit_saves_the_open_window", folder.path(), || {
        let _profiler = train(ProfilerBuilder::save_on_exit);
        std::process::exit(3);
    });
    let ended = running.wait();
    assert_eq!(ended.status.code(), Some(3), "{ended:?}");
    assert!(is_saved(folder.path()) && ended.stderr.is_empty(), "{ended:?}");
}

#[test]
fn an_exporter_that_hangs_does_not_keep_an_exit() {
    let folder = tempfile::tempdir().unwrap();
    let running = program("an_exporter_that_hangs_does_not_keep_an_exit", folder.path(), || {
        let _profiler = train(|builder| builder.export(Hanging).save_on_exit_within(Duration::from_millis(20)));
        std::process::exit(3);
    });
    let ended = running.wait();
    assert_eq!(ended.status.code(), Some(3), "{ended:?}");
    assert!(ended.stderr.contains("cannot save the end of the recording"), "{ended:?}");
}

/// If the exit waited for the exporters, the exporter would wait for itself.
#[test]
fn an_exporter_may_end_the_process() {
    let folder = tempfile::tempdir().unwrap();
    let running = program("an_exporter_may_end_the_process", folder.path(), || {
        let exit = |_: &Analysis<'_>| std::process::exit(4);
        train(|builder| builder.on_trace(exit).save_on_exit_within(FOR_EVER)).finish().unwrap();
    });
    assert_eq!(running.wait().status.code(), Some(4));
}

#[test]
fn a_profiler_in_a_static_is_saved() {
    let folder = tempfile::tempdir().unwrap();
    let running = program("a_profiler_in_a_static_is_saved", folder.path(), || {
        static PROFILER: OnceLock<Profiler> = OnceLock::new();
        PROFILER.get_or_init(|| train(ProfilerBuilder::save_on_exit)).step();
    });
    let ended = running.wait();
    assert!(ended.status.success() && is_saved(folder.path()), "{ended:?}");
}

#[test]
fn a_signal_after_the_end_ends_the_process() {
    let folder = tempfile::tempdir().unwrap();
    let mut running = program("a_signal_after_the_end_ends_the_process", folder.path(), || {
        train(ProfilerBuilder::save_on_exit).finish().unwrap();
        wait_for_ever();
    });
    running.wait_for_output("ready");
    running.send(Signal::INT);
    assert_eq!(running.wait().status.signal(), Some(Signal::INT.as_raw()));
    assert!(is_saved(folder.path()));
}

/// It is the second profiler of the process, so that the handlers are there already.
#[test]
fn a_second_profiler_is_saved_too() {
    let folder = tempfile::tempdir().unwrap();
    let mut running = program("a_second_profiler_is_saved_too", folder.path(), || {
        drop(Profiler::builder().save_on_exit().build().unwrap());
        let _profiler = train(ProfilerBuilder::save_on_exit);
        wait_for_ever();
    });
    running.wait_for_output("ready");
    running.send(Signal::INT);
    assert_eq!(running.wait().status.signal(), Some(Signal::INT.as_raw()));
    assert!(is_saved(folder.path()));
}

#[test]
fn an_ignored_signal_stays_ignored() {
    let folder = tempfile::tempdir().unwrap();
    let (name, variables) = ("signals::an_ignored_signal_stays_ignored", [(FOLDER, folder.path().as_os_str())]);
    let mut running = child::program_in_shell("trap '' INT", name, &variables, || {
        let _profiler = train(ProfilerBuilder::save_on_exit);
        wait_for_ever();
    });
    running.wait_for_output("ready");
    running.send(Signal::INT);
    running.send(Signal::TERM);
    assert_eq!(running.wait().status.signal(), Some(Signal::TERM.as_raw()));
    assert!(is_saved(folder.path()));
}

#[cfg(target_os = "linux")]
mod forks {
    #![allow(unsafe_code, reason = "there is no other way to fork")]

    use super::{FOR_EVER, is_saved, program, train};
    use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};
    use std::io::{Read, Write};

    unsafe extern "C" {
        fn fork() -> i32;
    }

    /// The report of a fork does not say that it has all of its zero spans.
    #[test]
    fn the_report_of_a_fork_says_that_recording_does_not_continue() {
        let folder = tempfile::tempdir().unwrap();
        let name = "forks::the_report_of_a_fork_says_that_recording_does_not_continue";
        let running = program(name, folder.path(), || {
            let profiler = train(|builder| builder);
            let (mut said, mut says) = std::io::pipe().unwrap();
            // SAFETY: the fork runs the code below, and has no other threads.
            let process = unsafe { fork() };
            if process == 0 {
                tracing::info_span!("child").in_scope(|| ());
                let report = profiler.finish().unwrap();
                says.write_all(format!("{} {report}", report.completeness().is_complete()).as_bytes()).unwrap();
                // SAFETY: it ends the process, without handlers of its parent.
                unsafe { libc::_exit(0) }
            }
            drop(says);
            let mut text = String::new();
            said.read_to_string(&mut text).unwrap();
            waitpid(Pid::from_raw(process), WaitOptions::empty()).unwrap();
            assert!(text.starts_with("false "), "{text}");
            assert!(text.contains("\nincomplete: spans of this process were not recorded: it was forked"), "{text}");
            assert!(text.contains("\nrecording does not continue in this process"), "{text}");
            let report = profiler.finish().unwrap();
            assert!(report.completeness().is_complete() && report.spans() == 1, "{report}");
        });
        let ended = running.wait();
        assert!(ended.status.success() && is_saved(folder.path()), "{ended:?}");
    }

    /// A fork has no thread that could save anything, so that it would only lose the signal.
    #[test]
    fn a_signal_ends_a_fork_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let running = program("forks::a_signal_ends_a_fork_at_once", folder.path(), || {
            let profiler = train(|builder| builder.save_on_exit_within(FOR_EVER));
            let (mut ready, mut is_ready) = std::io::pipe().unwrap();
            // SAFETY: the fork runs the code below, and has no other threads.
            let process = unsafe { fork() };
            if process == 0 {
                is_ready.write_all(b"!").unwrap();
                loop {
                    std::thread::park();
                }
            }
            ready.read_exact(&mut [0]).unwrap();
            let process = Pid::from_raw(process).unwrap();
            kill_process(process, Signal::TERM).unwrap();
            let (_, status) = waitpid(Some(process), WaitOptions::empty()).unwrap().unwrap();
            assert_eq!(status.terminating_signal(), Some(Signal::TERM.as_raw()));
            drop(profiler);
        });
        let ended = running.wait();
        assert!(ended.status.success() && is_saved(folder.path()), "{ended:?}");
    }
}
