//! Tests of the commands that ask running programs.

use super::{Run, command};
use kernspan::{Profiler, Schedule, control::Listen};
use serde_json::Value;
use std::{
    env, fs,
    path::Path,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};
use tempfile::TempDir;
use tracing_subscriber::prelude::*;

/// The variable of processes that train.
const TRAINS: &str = "KERNSPAN_TEST_TRAINS";

/// The program that is asked: trains until there is a file `stop` in its folder.
#[test]
#[ignore = "other tests run it"]
fn training() {
    let folder = env::var_os(TRAINS).unwrap();
    let builder = Profiler::builder().schedule(Schedule::manual()).listen(Listen::default());
    let (layer, profiler) = builder.build().unwrap();
    tracing_subscriber::registry().with(layer).init();
    while !Path::new(&folder).join("stop").exists() {
        let step = profiler.current_step();
        tracing::info_span!("train_step", step).in_scope(|| thread::sleep(Duration::from_millis(1)));
        profiler.step();
    }
    profiler.finish().unwrap();
}

/// The ranks of a training, which end with this.
pub(super) struct Training {
    pub(super) folder: TempDir,
    ranks: Vec<Child>,
}

impl Training {
    pub(super) fn start(ranks: u32) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let start = |rank: u32| {
            Command::new(env::current_exe().unwrap())
                .args(["live::training", "--exact", "--ignored"])
                .env(TRAINS, folder.path())
                .env("XDG_RUNTIME_DIR", folder.path())
                .envs([("RANK", rank.to_string()), ("WORLD_SIZE", ranks.to_string())])
                .env("KERNSPAN_RUN_ID", "test run/7")
                .stdout(Stdio::null())
                .spawn()
                .unwrap()
        };
        let ranks: Vec<_> = (0..ranks).map(start).collect();
        let training = Self { folder, ranks };
        let until = Instant::now() + Duration::from_secs(300);
        let is_ready = |program: &Value| program["steps_per_second"].is_number();
        while training.programs().iter().filter(|it| is_ready(it)).count() < training.ranks.len() {
            assert!(Instant::now() < until, "the training does not begin");
            thread::sleep(Duration::from_millis(5));
        }
        training
    }

    /// Runs the program in the folder of the training.
    pub(super) fn run(&self, arguments: &[&str]) -> Run {
        let mut command = command(arguments);
        Run::of(command.env("XDG_RUNTIME_DIR", self.folder.path()).current_dir(self.folder.path()).output().unwrap())
    }

    pub(super) fn json(&self, arguments: &[&str]) -> Value {
        let run = self.run(arguments);
        assert_eq!(run.code, 0, "{}", run.err);
        serde_json::from_str(&run.out).unwrap()
    }

    fn programs(&self) -> Vec<Value> {
        let Value::Array(programs) = self.json(&["ps", "--json"])["programs"].take() else { panic!() };
        // Root may have others on this machine.
        let is_rank = |program: &Value| self.ranks.iter().any(|rank| program["pid"] == rank.id());
        programs.into_iter().filter(is_rank).collect()
    }

    pub(super) fn pid(&self) -> String {
        self.ranks[0].id().to_string()
    }
}

impl Drop for Training {
    fn drop(&mut self) {
        fs::write(self.folder.path().join("stop"), "").unwrap();
        for rank in &mut self.ranks {
            assert!(rank.wait().unwrap().success());
        }
    }
}

#[test]
fn a_running_program_is_listed_and_recorded() {
    let training = Training::start(1);
    let pid = training.pid();
    let listed = training.run(&["ps"]);
    let row = listed.out.lines().find(|line| line.trim_start().starts_with(&pid)).unwrap();
    assert!(row.contains("waiting") && row.trim_end().ends_with("test run/7"), "{}", listed.out);
    assert!(training.run(&["status", "--pid", &pid]).out.contains("schedule  by hand\n"));

    let recorded = training.run(&["record", "--pid", &pid, "--steps", "3"]);
    assert_eq!(recorded.code, 0, "{}", recorded.err);
    let states: Vec<_> = recorded.err.lines().map(|line| line.split([',', ' ']).nth(1).unwrap()).collect();
    assert!(states.first() == Some(&"waiting") && states.last() == Some(&"writing"), "{}", recorded.err);
    let files: Vec<_> = recorded.out.lines().map(str::trim).filter(|line| Path::new(line).exists()).collect();
    assert_eq!(files.len(), 3, "{}", recorded.out);

    // Each step takes longer than this. There is no flight recorder. States are shown four times a second.
    let slow = training.run(&["record", "--pid", &pid, "--steps", "400", "--when", "step_time > 1us", "--out", "slow"]);
    let states =
        ["waiting for step_time > 1µs, in step ", ", after the slow one: with .flight_recorder(…), the program"];
    assert!(slow.code == 0 && states.iter().all(|state| slow.err.contains(state)), "{}", slow.err);

    // Nothing is written where there is something already.
    let again = training.json(&["record", "--pid", &pid, "--steps", "2", "--json"]);
    let window = &again["windows"][0];
    assert_eq!((&window["steps"], &window["pid"]), (&2.into(), &training.ranks[0].id().into()));
    let folders = |path: &str| Path::new(path).parent().unwrap().to_owned();
    let (first, second) = (folders(files[0]), folders(window["files"][0].as_str().unwrap()));
    assert_eq!(second.to_str().unwrap(), format!("{}-2", first.display()));
}

#[test]
fn all_ranks_record_the_same_steps() {
    let training = Training::start(2);
    for length in [["--steps", "4"], ["--duration", "20ms"]] {
        let ask = ["record", "--run", "test run/7", "--json", length[0], length[1]];
        let recorded = training.json(&ask);
        let Value::Array(windows) = &recorded["windows"] else { panic!("{recorded}") };
        let steps = windows.iter().map(|window| (&window["first_step"], &window["steps"])).collect::<Vec<_>>();
        assert!(steps.len() == 2 && steps[0] == steps[1], "{recorded}");
        let folder = windows[0]["files"][0].as_str().unwrap();
        assert!(folder.contains("/kernspan-test_run_7"), "{folder}");
    }
}

#[test]
fn the_schedule_is_replaced() {
    let training = Training::start(1);
    let pid = training.pid();
    let set = training.run(&["schedule", "set", "--pid", &pid, "steps=1000000..1000010"]);
    assert_eq!((set.code, set.out), (0, format!("process {pid} records steps 1000000 to 1000009\n")));
    assert_eq!(training.json(&["status", "--pid", &pid, "--json"])["schedule"], "steps 1000000 to 1000009");
    let wrong = training.run(&["schedule", "set", "--pid", &pid, "active=0"]);
    assert!(wrong.code == 1 && wrong.err.contains("active is 0"), "{}", wrong.err);
}

#[test]
fn programs_that_cannot_be_asked_are_explained() {
    let training = Training::start(1);
    let pid = training.pid();
    let failed = |arguments: &[&str], code: i32, problem: &str| {
        let run = training.run(arguments);
        assert_eq!((run.code, run.out.as_str()), (code, ""), "{arguments:?} {}", run.err);
        assert!(run.err.contains(problem), "{arguments:?} {}", run.err);
    };
    let here = std::process::id().to_string();
    failed(&["status", "--pid", &here], 1, "does not listen: build its profiler with `.listen(");
    failed(&["record", "--pid", "2147483000"], 1, "there is no process 2147483000");
    failed(&["record", "--run", "other"], 1, "no program of run other listens");
    failed(&["snapshot", "--pid", &pid], 1, "memory_snapshots");
    failed(&["record", "--pid", &pid, "--at-step", "0"], 1, "step 0 has begun");
    failed(&["record", "--pid", &pid, "--out", "/proc/none"], 1, "cannot write /proc/none");
    failed(&["record"], 2, "required");
    failed(&["record", "--pid", &pid, "--steps", "0"], 2, "invalid value");
    failed(&["record", "--pid", &pid, "--steps", "1", "--duration", "1s"], 2, "cannot be used with");
    failed(&["record", "--pid", &pid, "--when", "loss > 3"], 2, "step_time > 2*median");
}
