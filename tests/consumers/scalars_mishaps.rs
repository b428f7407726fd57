//! Tests of TensorBoard's scalars in failures: processes are killed, disks are full.

use crate::support::{
    Unchecked, child, eventually,
    steps::{StepCollector, failures, step_summaries, training},
    tensorboard::{shown, values},
};
use kernspan::{Profiler, Schedule, TensorBoard};
use std::{
    path::{Path, PathBuf},
    time::Duration,
};
use tracing::info;
use tracing_subscriber::prelude::*;

/// Returns the numbers of the steps that have a loss in an events file. An event that is cut off at the end does not
/// count.
fn step_numbers(file: &Path) -> Vec<u64> {
    let bytes = std::fs::read(file).unwrap();
    let (mut left, mut steps) = (&bytes[..], Vec::new());
    while left.len() >= 12 {
        let length = u64::from_le_bytes(left[..8].try_into().unwrap()) as usize;
        let Some(event) = left.get(12..12 + length) else { break };
        // An event begins with the time and the step, which is a varint.
        if event.windows(4).any(|part| part == b"loss") {
            let varint = event[10..].iter().take_while(|byte| **byte & 0x80 != 0).count();
            steps.push(event[10..=10 + varint].iter().rev().fold(0, |step, byte| step << 7 | u64::from(byte & 0x7f)));
        }
        left = &left[(16 + length).min(left.len())..];
    }
    steps
}

fn events_file(folder: &Path) -> Option<PathBuf> {
    std::fs::read_dir(folder)
        .ok()?
        .flatten()
        .map(|entry| entry.path())
        .find(|path| path.to_string_lossy().contains("tfevents"))
}

/// Trains until it is killed, and writes the number of its step to a file. Other tests run it.
#[test]
fn trains_for_ever() {
    let Some(folder) = std::env::var_os("KERNSPAN_TEST_FOLDER") else { return };
    let folder = PathBuf::from(folder);
    let exporter = TensorBoard::to_dir(&folder);
    let (layer, profiler) =
        Profiler::builder().rank(0, 1).schedule(Schedule::manual()).export(exporter).build().unwrap();
    tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
        for step in 0_u64.. {
            info!(counter.loss = 0.5);
            profiler.step();
            // Without a pause there would be too many steps.
            std::thread::sleep(Duration::from_millis(1));
            if step % 100 == 0 {
                std::fs::write(folder.join("progress.tmp"), step.to_string()).unwrap();
                std::fs::rename(folder.join("progress.tmp"), folder.join("progress")).unwrap();
            }
        }
    });
}

#[test]
fn a_killed_process_leaves_all_steps_but_the_last() {
    let folder = tempfile::tempdir().unwrap();
    let mut child =
        child::start("scalars_mishaps::trains_for_ever", &[("KERNSPAN_TEST_FOLDER", folder.path().as_os_str())]);
    let progress = || std::fs::read_to_string(folder.path().join("progress")).ok()?.parse::<u64>().ok();
    let taken = eventually("the first steps", || progress().filter(|step| *step >= 500));
    // The steps are written while the training goes on, and not when it ends.
    let file = eventually("the steps in the file", || {
        events_file(folder.path()).filter(|file| step_numbers(file).len() as u64 >= taken)
    });
    child.kill();
    let steps = step_numbers(&file);
    assert!(steps.iter().enumerate().all(|(index, &step)| step == index as u64), "{steps:?}");
    let Some(shown) = shown(folder.path(), steps.len() * 3 - 2) else { return };
    for shown in shown {
        let series = values(&shown.scalars["."]["loss"]);
        assert_eq!(series.iter().map(|&(step, _)| step).collect::<Vec<_>>(), steps);
    }
}

/// Waits until this many steps have been collected. The exporters before this one have tried to write them by then.
fn wait_until_collected(kept: &StepCollector, steps: usize) {
    eventually("the steps", || (kept.steps().len() >= steps).then_some(()));
}

/// Waits until this many steps can be read in a folder.
fn wait_until_written(folder: &Path, steps: usize) {
    eventually("the steps in the file", || {
        events_file(folder).filter(|file| step_numbers(file).len() >= steps).map(drop)
    });
}

#[test]
fn a_folder_that_cannot_be_made_is_reported_once_and_the_training_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let in_the_way = folder.path().join("runs");
    std::fs::write(&in_the_way, "somebody else's").unwrap();
    let schedule = Schedule::new().active(1).wait(1);
    let exporter = Unchecked(TensorBoard::to_dir(in_the_way.join("mnist")));
    let kept = StepCollector::default();
    let (steps_taken, report) = step_summaries(
        |builder| builder.schedule(schedule).export(exporter).export(kept.clone()),
        |profiler| {
            for step in 1..=20 {
                profiler.step();
                if step % 5 == 0 {
                    wait_until_collected(&kept, step);
                }
            }
        },
    );
    assert_eq!(steps_taken.len(), 20);
    let failures = failures(report);
    let [profile, scalars, other_profiles] = &failures[..] else { panic!("{failures:?}") };
    assert!(profile.starts_with("TensorBoard, window 0: cannot write ") && profile.contains("profile"), "{failures:?}");
    assert!(scalars.starts_with("TensorBoard: cannot write ") && scalars.contains("mnist: "), "{failures:?}");
    assert_eq!(other_profiles, "TensorBoard: 9 more profiles could not be written");
    assert_eq!(std::fs::read_to_string(in_the_way).unwrap(), "somebody else's");
}

#[test]
fn a_folder_that_is_deleted_is_made_anew() {
    let folder = tempfile::tempdir().unwrap();
    let runs = folder.path().join("runs");
    let exporter = TensorBoard::to_dir(&runs).hparam("lr", 0.5);
    let (steps_taken, report) = step_summaries(
        |builder| builder.schedule(Schedule::manual()).export(exporter),
        |profiler| {
            training(10)(profiler);
            wait_until_written(&runs, 10);
            std::fs::remove_dir_all(&runs).unwrap();
            training(10)(profiler);
        },
    );
    assert_eq!(steps_taken.len(), 20);
    let [file] = report.unwrap().files().to_vec().try_into().unwrap();
    assert_eq!(step_numbers(&file), (10..20).collect::<Vec<_>>());
    assert_eq!(events_file(&runs), Some(file));
    let Some(shown) = shown(&runs, 30) else { return };
    for shown in shown {
        let series = values(&shown.scalars["."]["step/time_ms"]);
        assert_eq!(series.iter().map(|&(step, _)| step).collect::<Vec<_>>(), (10..20).collect::<Vec<_>>());
        assert!(!shown.text["."]["kernspan/configuration"].is_null(), "{}", shown.text);
        assert_eq!(shown.hparams["groups"][0]["hparams"]["lr"], 0.5, "{}", shown.hparams);
    }
}

#[test]
fn a_folder_that_is_deleted_after_the_last_step_is_a_failure() {
    let folder = tempfile::tempdir().unwrap();
    let runs = folder.path().join("runs");
    let exporter = TensorBoard::to_dir(&runs);
    let (_, report) = step_summaries(
        |builder| builder.schedule(Schedule::manual()).export(exporter),
        |profiler| {
            training(10)(profiler);
            wait_until_written(&runs, 10);
            std::fs::remove_dir_all(&runs).unwrap();
        },
    );
    let failures = failures(report);
    assert_eq!(failures.len(), 1, "{failures:?}");
    assert!(failures[0].ends_with(" was deleted before the run ended"), "{failures:?}");
}

#[test]
fn a_training_that_panics_has_failed() {
    let folder = tempfile::tempdir().unwrap();
    let exporter = TensorBoard::to_dir(folder.path()).hparam("lr", 0.5);
    let panics = |profiler: &Profiler| {
        training(5)(profiler);
        panic!("no more data");
    };
    let trains = move || step_summaries(|builder| builder.schedule(Schedule::manual()).export(exporter), panics);
    assert!(std::thread::spawn(trains).join().is_err());
    assert_eq!(step_numbers(&events_file(folder.path()).unwrap()).len(), 5);
    let Some(shown) = shown(folder.path(), 13) else { return };
    for shown in shown {
        let session = &shown.hparams["groups"][0]["sessions"][0];
        assert_eq!(session["status"], "STATUS_FAILURE", "{}", shown.hparams);
    }
}

/// Trains in a process whose files cannot become larger than 64 KiB. Another test runs it.
#[test]
fn trains_on_a_full_disk() {
    let Some(folder) = std::env::var_os("KERNSPAN_TEST_FOLDER") else { return };
    let exporter = TensorBoard::to_dir(PathBuf::from(folder));
    let kept = StepCollector::default();
    let (steps_taken, report) = step_summaries(
        |builder| builder.schedule(Schedule::manual()).export(exporter).export(kept.clone()),
        |profiler| {
            for turn in 1..=10 {
                training(300)(profiler);
                wait_until_collected(&kept, 300 * turn);
            }
        },
    );
    assert_eq!(steps_taken.len(), 3000);
    let failures = failures(report);
    assert_eq!(failures.len(), 1, "{failures:?}");
    assert!(failures[0].contains("File too large"), "{failures:?}");
}

#[test]
fn a_full_disk_is_reported_once_and_the_steps_before_can_be_read() {
    let folder = tempfile::tempdir().unwrap();
    child::run_with_small_files(
        "scalars_mishaps::trains_on_a_full_disk",
        &[("KERNSPAN_TEST_FOLDER", folder.path().as_os_str())],
    );
    let file = events_file(folder.path()).unwrap();
    assert_eq!(std::fs::metadata(&file).unwrap().len(), 64 << 10);
    let steps = step_numbers(&file);
    assert!(steps.len() > 300 && steps.iter().enumerate().all(|(index, &step)| step == index as u64), "{steps:?}");
}
