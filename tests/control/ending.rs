//! Tests of programs that end while they are asked: files are whole or absent, and sockets are removed.

use crate::{
    support::eventually,
    training::{self, Training, files_in, profiler, train, until_stopped},
};
use kernspan::{
    Profiler, ProfilerBuilder,
    control::{Client, ClientError, protocol::Record},
};
use rustix::process::Signal;
use std::{
    os::unix::process::ExitStatusExt,
    path::{Path, PathBuf},
    thread::{self, JoinHandle},
};

/// Asks for a window that is open when the program ends. Returns once it is.
fn ask(training: &Training, out: &Path) -> JoinHandle<Result<Vec<PathBuf>, ClientError>> {
    let mut client = training.client();
    let record = Record { out: Some(out.to_owned()), ..Record::steps(1_000_000) };
    let asking = thread::spawn(move || client.record(&record, |_| ()).map(|recorded| recorded.files));
    eventually("the window", || training.status().recording.then_some(()));
    training.wait_for_steps();
    asking
}

/// Checks that each file can be read to its end.
fn check_whole(files: &[PathBuf]) {
    for file in files {
        let bytes = std::fs::read(file).unwrap();
        match file.extension().unwrap().to_str().unwrap() {
            "json" | "gz" => assert!(!kernspan::read(file).unwrap().is_empty(), "{file:?}"),
            "html" => assert!(String::from_utf8(bytes).unwrap().trim_end().ends_with("</html>"), "{file:?}"),
            "pftrace" => assert!(!bytes.is_empty()),
            other => panic!("{other}: {file:?}"),
        }
    }
}

/// Runs a training that ends with its window open, by `end` in the training and `signal` from outside. Checks its
/// files, and that its socket is removed if it `saves` them.
fn end_in_the_middle(name: &str, saves: bool, end: fn(Profiler), signal: Option<Signal>) {
    let training = training::start(&format!("ending::{name}"), move || {
        heed_sigint();
        let profiler = profiler(ProfilerBuilder::save_on_exit);
        until_stopped(&profiler, |_| ());
        end(profiler);
    });
    let out = training.folder.path().join("out");
    let asked = ask(&training, &out);
    match signal {
        Some(signal) => training.process.send(signal),
        None => std::fs::write(training.folder.path().join("stop"), "").unwrap(),
    }
    let Training { process, folder } = training;
    let ended = process.wait();
    assert!(ended.status.code() == Some(3) || ended.status.signal().is_some() || !saves, "{ended:?}");
    let files = files_in(&out);
    let sockets = files_in(&folder.path().join("kernspan"));
    match asked.join().unwrap() {
        // The client is told, since the program waits for it.
        Ok(mut told) => {
            told.sort();
            assert!(saves && told == files && files.len() == 3, "{files:?}");
        }
        Err(ClientError::Closed) => assert!(!saves && files.is_empty(), "{files:?} {ended:?}"),
        Err(error) => panic!("{error} {ended:?}"),
    }
    check_whole(&files);
    if saves {
        assert!(sockets.is_empty(), "{sockets:?}");
    }
}

/// Has SIGINT do what it does by default. Shells start jobs in the background with it ignored, and so these tests.
#[allow(unsafe_code, reason = "there is no safe function for it")]
fn heed_sigint() {
    // SAFETY: the default action is set before the process has handlers of its own.
    unsafe { libc::signal(libc::SIGINT, libc::SIG_DFL) };
}

#[test]
fn sigterm_writes_the_window() {
    end_in_the_middle("sigterm_writes_the_window", true, drop, Some(Signal::TERM));
}

#[test]
fn sigint_writes_the_window() {
    end_in_the_middle("sigint_writes_the_window", true, drop, Some(Signal::INT));
}

#[test]
fn exit_writes_the_window() {
    let end = |profiler| {
        std::mem::forget(profiler);
        std::process::exit(3);
    };
    end_in_the_middle("exit_writes_the_window", true, end, None);
}

#[test]
fn a_panic_writes_the_window() {
    let end = |profiler: Profiler| {
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(move || {
            let _profiler = profiler;
            panic!("the training fails");
        }));
        assert!(panicked.is_err());
        std::process::exit(3);
    };
    end_in_the_middle("a_panic_writes_the_window", true, end, None);
}

#[test]
fn an_abort_leaves_no_half_of_a_file() {
    end_in_the_middle("an_abort_leaves_no_half_of_a_file", false, |_| std::process::abort(), None);
}

#[test]
fn the_end_of_the_run_fails_requests_that_wait() {
    let training = training::start("ending::the_end_of_the_run_fails_requests_that_wait", train);
    let mut client = training.client();
    let record = Record { at_step: Some(u64::MAX), ..Record::steps(1) };
    let stop = training.folder.path().join("stop");
    // The program is stopped as soon as it has the request.
    let refused = client.record(&record, |_| std::fs::write(&stop, "").unwrap()).unwrap_err().to_string();
    assert!(refused.contains("the run ended before the window could begin"), "{refused}");
    training.stop();
}

#[test]
fn the_sockets_of_dead_processes_are_removed_by_the_next_one() {
    let name = "ending::the_sockets_of_dead_processes_are_removed_by_the_next_one";
    let program = || {
        let profiler = profiler(|builder| builder);
        until_stopped(&profiler, |_| ());
        std::process::abort();
    };
    let Training { process, folder } = training::start(name, program);
    process.send(Signal::KILL);
    process.wait();
    let left = files_in(&folder.path().join("kernspan"));
    assert_eq!(left.len(), 1);
    assert!(matches!(Client::connect(&left[0]), Err(ClientError::Io(_))));
    let next = training::start_in(name, folder, &[], program);
    assert_ne!(next.socket(), left[0], "only the socket of the next one is left");
}

#[test]
fn a_fork_leaves_the_socket_alone() {
    let training = training::start("ending::a_fork_leaves_the_socket_alone", || {
        let profiler = profiler(ProfilerBuilder::save_on_exit);
        fork_and_exit();
        until_stopped(&profiler, |_| ());
        profiler.finish().unwrap();
    });
    training.wait_for_steps();
    training.stop();
}

/// Forks a process that exits at once, and waits for it.
#[allow(unsafe_code, reason = "there is no safe function for it")]
fn fork_and_exit() {
    // SAFETY: the fork calls nothing but `exit`, whose handlers know about forks.
    let fork = unsafe { libc::fork() };
    if fork == 0 {
        std::process::exit(0);
    }
    let mut status = -1;
    // SAFETY: the status has room for what is written there.
    assert_eq!(unsafe { libc::waitpid(fork, &raw mut status, 0) }, fork);
    assert_eq!(status, 0);
}
