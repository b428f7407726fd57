//! Tests of the signal that asks for a window.

use crate::{
    support::eventually,
    training::{self, files_in, profiler, train, train_with, until_stopped},
};
use kernspan::{Chrome, control::Listen};
use rustix::process::Signal;
use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

#[test]
fn sigusr2_records_the_next_steps_into_a_folder() {
    let training = training::start("signal::sigusr2_records_the_next_steps_into_a_folder", || {
        std::env::set_current_dir(training::runtime()).unwrap();
        train();
    });
    let pid = training.status().pid;
    // Until its first step has ended, a program may be one without steps, which is recorded for a time.
    training.wait_for_steps();
    training.process.send(Signal::USR2);
    let folder = eventually("the folder", || {
        let mut folders = files_in(training.folder.path()).into_iter();
        folders.find(|path| path.to_string_lossy().ends_with(&format!("-{pid}")))
    });
    let files = eventually("the files", || Some(files_in(&folder)).filter(|files| files.len() == 3));
    let trace = files.iter().find(|file| file.to_string_lossy().contains(".json")).unwrap();
    assert_eq!(kernspan::read(trace).unwrap()[0].steps().len(), 10);
    let ended = training.stop();
    assert!(ended.stderr.contains("kernspan: recorded 10 steps: "), "{ended:?}");
}

#[test]
fn sigusr2_records_for_the_exporters_if_there_are_any() {
    let training = training::start("signal::sigusr2_records_for_the_exporters_if_there_are_any", || {
        let exports = training::runtime().join("exports");
        train_with(|builder| builder.export(Chrome::to_dir(exports)).listen(Listen::default().signal_steps(3)));
    });
    let exports = training.folder.path().join("exports");
    training.wait_for_steps();
    for windows in 1..=2 {
        training.process.send(Signal::USR2);
        let files = eventually("the files", || Some(files_in(&exports)).filter(|files| files.len() == windows));
        let steps = |file: &std::path::PathBuf| kernspan::read(file).unwrap()[0].steps().len();
        assert!(files.iter().all(|file| steps(file) == 3), "{files:?}");
        eventually("the end", || (training.status().pending == 0).then_some(()));
    }
    training.stop();
}

#[test]
fn a_handler_of_the_program_is_left_alone() {
    let training = training::start("signal::a_handler_of_the_program_is_left_alone", || {
        let caught = Arc::new(AtomicBool::new(false));
        signal_hook::flag::register(signal_hook::consts::SIGUSR2, Arc::clone(&caught)).unwrap();
        let profiler = profiler(|builder| builder);
        until_stopped(&profiler, |_| {
            if caught.swap(false, Ordering::SeqCst) {
                println!("mine");
            }
        });
        assert_eq!(profiler.finish().unwrap().windows(), 0);
    });
    let mut training = training;
    training.process.send(Signal::USR2);
    training.process.wait_for_output("mine");
    training.wait_for_steps();
    assert_eq!((training.status().windows, training.status().recording), (0, false));
    training.stop();
}
