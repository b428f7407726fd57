//! Tests of programs that have handlers of signals themselves, registered before the profiler is built or after it.

use super::{is_saved, program, train, wait_for_ever};
use crate::support::child::{Captured, Ended};
use kernspan::ProfilerBuilder;
use rustix::process::Signal;
use signal_hook::consts::SIGINT;
use std::{
    future::{Future, poll_fn},
    os::unix::process::ExitStatusExt,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    task::Poll,
};

/// Sends a signal to the program as soon as it is ready, and waits for its end.
fn end(mut running: Captured, signal: Signal) -> Ended {
    running.wait_for_output("ready");
    running.send(signal);
    running.wait()
}

/// Checks that the program has shut down by itself, and that its recording is saved.
fn check_shut_down(ended: &Ended, folder: &tempfile::TempDir) {
    assert_eq!(ended.status.code(), Some(0), "{ended:?}");
    assert!(ended.stdout.contains("shut down\n") && ended.stderr.is_empty(), "{ended:?}");
    assert!(is_saved(folder.path()), "{ended:?}");
}

/// Checks that the signal has ended the program, after its recording was saved.
fn check_killed(ended: &Ended, folder: &tempfile::TempDir) {
    assert_eq!(ended.status.signal(), Some(SIGINT), "{ended:?}");
    assert!(is_saved(folder.path()) && ended.stderr.is_empty(), "{ended:?}");
}

/// Runs a future on a runtime of one thread.
fn block_on(future: impl Future<Output = ()>) {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future);
}

/// Waits for Ctrl-C. Calls `registered` as soon as tokio has its handler.
async fn ctrl_c(registered: impl FnOnce()) {
    let mut ctrl_c = pin!(tokio::signal::ctrl_c());
    let waiting = poll_fn(|context| Poll::Ready(ctrl_c.as_mut().poll(context).is_pending())).await;
    assert!(waiting);
    registered();
    ctrl_c.await.unwrap();
}

#[test]
fn of_tokio_before() {
    let folder = tempfile::tempdir().unwrap();
    let running = program("handlers::of_tokio_before", folder.path(), || {
        block_on(async {
            let mut profiler = None;
            ctrl_c(|| {
                profiler = Some(train(ProfilerBuilder::save_on_exit));
                println!("ready");
            })
            .await;
            drop(profiler);
            println!("shut down");
        });
    });
    check_shut_down(&end(running, Signal::INT), &folder);
}

/// It ends as if `ctrl_c` had not been called.
#[test]
fn of_tokio_after() {
    let folder = tempfile::tempdir().unwrap();
    let running = program("handlers::of_tokio_after", folder.path(), || {
        let _profiler = train(ProfilerBuilder::save_on_exit);
        block_on(async {
            ctrl_c(|| println!("ready")).await;
            wait_for_ever();
        });
    });
    check_killed(&end(running, Signal::INT), &folder);
}

/// A handler that finishes the profiler finds the recording saved, or saves it first.
#[test]
fn of_tokio_after_that_finishes() {
    let folder = tempfile::tempdir().unwrap();
    let running = program("handlers::of_tokio_after_that_finishes", folder.path(), || {
        let profiler = train(ProfilerBuilder::save_on_exit);
        block_on(async {
            ctrl_c(|| println!("ready")).await;
            let _ = profiler.finish();
            wait_for_ever();
        });
    });
    let ended = end(running, Signal::INT);
    assert_eq!(ended.status.signal(), Some(SIGINT), "{ended:?}");
    assert!(is_saved(folder.path()), "{ended:?}");
}

#[test]
fn of_ctrlc_before() {
    let folder = tempfile::tempdir().unwrap();
    let running = program("handlers::of_ctrlc_before", folder.path(), || {
        let (stop, stopped) = mpsc::channel();
        ctrlc::set_handler(move || stop.send(()).unwrap()).unwrap();
        let profiler = train(ProfilerBuilder::save_on_exit);
        println!("ready");
        stopped.recv().unwrap();
        drop(profiler);
        println!("shut down");
    });
    check_shut_down(&end(running, Signal::INT), &folder);
}

/// Its handler takes the place of those that were there before.
#[test]
fn of_ctrlc_after() {
    let folder = tempfile::tempdir().unwrap();
    let running = program("handlers::of_ctrlc_after", folder.path(), || {
        let _profiler = train(ProfilerBuilder::save_on_exit);
        let exit = || {
            println!("shut down");
            std::process::exit(0);
        };
        ctrlc::set_handler(exit).unwrap();
        wait_for_ever();
    });
    check_shut_down(&end(running, Signal::INT), &folder);
}

#[test]
fn of_ctrlc_leave_other_signals() {
    let folder = tempfile::tempdir().unwrap();
    let running = program("handlers::of_ctrlc_leave_other_signals", folder.path(), || {
        ctrlc::set_handler(|| ()).unwrap();
        let _profiler = train(ProfilerBuilder::save_on_exit);
        wait_for_ever();
    });
    let ended = end(running, Signal::TERM);
    assert_eq!(ended.status.signal(), Some(Signal::TERM.as_raw()), "{ended:?}");
    assert!(is_saved(folder.path()), "{ended:?}");
}

/// Returns a flag that is set at Ctrl-C.
fn flag() -> Arc<AtomicBool> {
    let flag = Arc::new(AtomicBool::new(false));
    signal_hook::flag::register(SIGINT, Arc::clone(&flag)).unwrap();
    flag
}

#[test]
fn that_set_a_flag_before() {
    let folder = tempfile::tempdir().unwrap();
    let running = program("handlers::that_set_a_flag_before", folder.path(), || {
        let stop = flag();
        let profiler = train(ProfilerBuilder::save_on_exit);
        println!("ready");
        while !stop.load(Ordering::Relaxed) {
            std::thread::yield_now();
        }
        drop(profiler);
        println!("shut down");
    });
    check_shut_down(&end(running, Signal::INT), &folder);
}

#[test]
fn that_set_a_flag_after() {
    let folder = tempfile::tempdir().unwrap();
    let running = program("handlers::that_set_a_flag_after", folder.path(), || {
        let _profiler = train(ProfilerBuilder::save_on_exit);
        let stop = flag();
        println!("ready");
        while !stop.load(Ordering::Relaxed) {
            std::thread::yield_now();
        }
        wait_for_ever();
    });
    check_killed(&end(running, Signal::INT), &folder);
}

#[test]
fn of_ctrlc_that_do_not_replace_others() {
    let folder = tempfile::tempdir().unwrap();
    let running = program("handlers::of_ctrlc_that_do_not_replace_others", folder.path(), || {
        let _profiler = train(ProfilerBuilder::save_on_exit);
        assert!(ctrlc::try_set_handler(|| ()).is_err());
        wait_for_ever();
    });
    check_killed(&end(running, Signal::INT), &folder);
}
