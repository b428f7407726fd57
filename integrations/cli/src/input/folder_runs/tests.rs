//! Tests of what belongs to one run.

use super::FolderRun;
use kernspan::{
    read::Origin,
    trace::{Metadata, Timestamp},
};
use std::path::PathBuf;

/// A window of a process: the name of its file, and the second in which it starts.
fn window(file: &str, second: u64, number: Option<u32>, process: impl FnOnce(&mut Metadata)) -> (PathBuf, Origin) {
    let mut origin = Origin::default();
    origin.start = Timestamp::from_unix_nanos((1_789_000_000 + second) * 1_000_000_000);
    origin.window = number;
    origin.metadata.world_size = 1;
    process(&mut origin.metadata);
    (PathBuf::from("runs").join(file), origin)
}

/// A process of kernspan's.
fn of(host: &str, pid: u32) -> impl FnOnce(&mut Metadata) {
    move |it: &mut Metadata| (it.host, it.pid) = (host.to_owned(), pid)
}

/// A rank of PyTorch's, whose host is in no file.
fn rank(pid: u32, rank: u32, world_size: u32) -> impl FnOnce(&mut Metadata) {
    move |it: &mut Metadata| (it.pid, it.rank, it.world_size) = (pid, rank, world_size)
}

/// Returns the runs: the name of each, with its files.
#[track_caller]
fn assert_runs(windows: Vec<(PathBuf, Origin)>, expected: &[(&str, &[&str])]) {
    // The order of the files is of no importance.
    for reversed in [false, true] {
        let mut windows = windows.clone();
        if reversed {
            windows.reverse();
        }
        let runs = FolderRun::group(windows);
        let files = |run: &FolderRun| {
            let mut files: Vec<_> = run.files().map(|path| path.strip_prefix("runs").unwrap().to_owned()).collect();
            files.sort();
            (run.name.clone(), files)
        };
        let expected =
            expected.iter().map(|(name, files)| ((*name).to_owned(), files.iter().map(PathBuf::from).collect()));
        assert_eq!(runs.iter().map(files).collect::<Vec<_>>(), expected.collect::<Vec<_>>());
    }
}

#[test]
fn windows_of_a_process_are_a_run_and_other_processes_are_others() {
    assert_runs(
        vec![
            window("vm_9.1.pt.trace.json", 0, Some(1), of("vm", 9)),
            window("vm_9.2.pt.trace.json", 60, Some(2), of("vm", 9)),
            window("vm_7.3.pt.trace.json", 30, Some(1), of("vm", 7)),
            // A window in two files.
            window("vm_7.3.kernspan", 30, Some(1), of("vm", 7)),
        ],
        &[
            ("vm_9", &["vm_9.1.pt.trace.json", "vm_9.2.pt.trace.json"]),
            ("vm_7", &["vm_7.3.kernspan", "vm_7.3.pt.trace.json"]),
        ],
    );
}

#[test]
fn a_process_whose_windows_are_numbered_anew_is_another() {
    let file = |second| format!("box_1.{second}.pt.trace.json");
    let windows = [(0, 1), (9, 2), (99, 1), (108, 2)];
    let windows = windows.map(|(second, number)| window(&file(second), second, Some(number), of("box", 1)));
    assert_runs(windows.to_vec(), &[("box_1", &[&file(0), &file(9)]), ("box_1-2", &[&file(108), &file(99)])]);
}

#[test]
fn a_process_of_pytorch_that_counts_its_steps_anew_is_another() {
    let with_step = |file: &str, second, step, copied| {
        let (path, mut origin) = window(file, second, None, rank(7, 0, 1));
        origin.step = Some((step, origin.start));
        // The earliest event of a converted file may be another.
        origin.start = Timestamp::from_unix_nanos(origin.start.as_unix_nanos() + copied);
        (path, origin)
    };
    let windows = [("a.json", 0, 5, 0), ("copy.json", 0, 5, 1), ("b.json", 1, 20, 0), ("c.json", 2, 5, 0)];
    let windows = windows.map(|(file, second, step, copied)| with_step(file, second, step, copied));
    assert_runs(windows.to_vec(), &[("a", &["a.json", "b.json", "copy.json"]), ("c", &["c.json"])]);
}

#[test]
fn ranks_of_a_run_stay_together() {
    // In containers, all have the same id.
    let ranks = |run: u32, begin: u64| {
        (0..3).map(move |it| window(&format!("{run}-rank{it}.json.gz"), begin + u64::from(it), None, rank(run, it, 3)))
    };
    let all = |run| [0, 1, 2].map(|it| format!("{run}-rank{it}.json.gz"));
    let [first, second] = [1, 2].map(all);
    let [first, second] = [&first, &second].map(|all| all.each_ref().map(String::as_str));
    let runs: [(&str, &[&str]); 2] = [("1-rank0", &first), ("2-rank0", &second)];
    for begin in [60, 3600] {
        let windows: Vec<_> = ranks(1, 0).chain(ranks(2, begin)).collect();
        assert_runs(windows, &runs);
    }
    // Runs of other sizes are others, and so are ranks of which each came long after the other.
    let other = [window("a.json", 0, None, rank(7, 0, 3)), window("b.json", 1, None, rank(8, 1, 2))];
    assert_runs(other.to_vec(), &[("a", &["a.json"]), ("b", &["b.json"])]);
    let other = [window("a.json", 0, None, rank(7, 0, 2)), window("b.json", 601, None, rank(8, 1, 2))];
    assert_runs(other.to_vec(), &[("a", &["a.json"]), ("b", &["b.json"])]);
}

#[test]
fn the_name_of_a_run_is_above_the_time() {
    let named = |file: &str, second, number, run: &str| {
        window(file, second, Some(1), |it| {
            rank(10 + number, number, 2)(it);
            (it.host, it.run) = ("vm".to_owned(), Some(run.to_owned()));
        })
    };
    // Recorded on request, at different times.
    let windows = vec![named("a.json", 0, 0, "42"), named("b.json", 7200, 1, "42")];
    assert_runs(windows, &[("vm_10", &["a.json", "b.json"])]);
    let windows = vec![named("a.json", 0, 0, "42"), named("b.json", 1, 1, "43")];
    assert_runs(windows, &[("a", &["a.json"]), ("b", &["b.json"])]);
}

#[test]
fn the_host_of_pytorch_s_files_is_in_their_names() {
    let pid = |pid| move |it: &mut Metadata| it.pid = pid;
    assert_runs(
        vec![
            window("one_7.1.pt.trace.json.gz", 0, None, pid(7)),
            window("one_7.2.pt.trace.json.gz", 50, None, pid(7)),
            window("two_7.3.pt.trace.json.gz", 20, None, pid(7)),
            // Its name is a user's.
            window("one_8.4.pt.trace.json.gz", 30, None, pid(9)),
        ],
        &[
            ("one_7", &["one_7.1.pt.trace.json.gz", "one_7.2.pt.trace.json.gz"]),
            ("two_7", &["two_7.3.pt.trace.json.gz"]),
            ("one_8", &["one_8.4.pt.trace.json.gz"]),
        ],
    );
}

#[test]
fn a_run_is_called_by_its_name_its_process_or_its_file() {
    let runs = FolderRun::group(vec![window("slow.json.gz", 3907, Some(1), of("vm", 12))]);
    let [run] = runs.as_slice() else { panic!("{}", runs.len()) };
    assert!(["slow", "slow.json.gz", "12"].iter().all(|name| run.is_called(name)) && !run.is_called("slo"));
    assert_eq!(run.described(), "slow, started 2026-09-10 01:31:47 UTC");
}
