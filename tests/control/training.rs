//! A training in a process of its own, which is asked from outside.

use crate::support::{
    child::{self, Captured, Ended},
    eventually,
};
use kernspan::{
    Profiler, ProfilerBuilder, Schedule,
    control::{Client, Listen, protocol::RunStatus},
};
use std::{
    ffi::OsStr,
    fs,
    path::{Path, PathBuf},
    time::Duration,
};
use tempfile::TempDir;
use tracing::{info, info_span};
use tracing_subscriber::prelude::*;

/// The folder of the sockets, of the training's files, and of the file that ends it.
const RUNTIME: &str = "XDG_RUNTIME_DIR";

/// A training that runs until it is stopped.
pub(crate) struct Training {
    pub(crate) process: Captured,
    pub(crate) folder: TempDir,
}

/// Runs `program` in a process of its own, once it listens. `name` is that of the test that calls this.
pub(crate) fn start(name: &str, program: impl FnOnce()) -> Training {
    let folder = tempfile::tempdir().unwrap();
    start_in(name, folder, &[], program)
}

/// As [`start`], with a folder and more variables.
pub(crate) fn start_in(name: &str, folder: TempDir, variables: &[(&str, &OsStr)], program: impl FnOnce()) -> Training {
    let variables: Vec<_> = variables.iter().copied().chain([(RUNTIME, folder.path().as_os_str())]).collect();
    let mut process = child::program(name, &variables, program);
    process.wait_for_output("training");
    Training { process, folder }
}

/// The program: trains until it is stopped, in steps of about a millisecond.
pub(crate) fn train() {
    train_with(|builder| builder);
}

/// As [`train`], with other settings of the profiler.
pub(crate) fn train_with(setup: impl FnOnce(ProfilerBuilder) -> ProfilerBuilder) {
    let profiler = profiler(setup);
    until_stopped(&profiler, |_| ());
    profiler.finish().unwrap();
}

/// Builds a profiler that listens and records on demand, and says so.
pub(crate) fn profiler(setup: impl FnOnce(ProfilerBuilder) -> ProfilerBuilder) -> Profiler {
    let builder = Profiler::builder().schedule(Schedule::manual()).listen(Listen::default());
    let (layer, profiler) = setup(builder).build().unwrap();
    tracing_subscriber::registry().with(layer).init();
    println!("training");
    profiler
}

/// Trains until the training is stopped.
pub(crate) fn until_stopped(profiler: &Profiler, mut also: impl FnMut(u64)) {
    let stop = runtime().join("stop");
    while !stop.exists() {
        let step = profiler.current_step();
        info_span!("train_step", step).in_scope(|| {
            // So that others get the processor, too.
            info_span!("forward").in_scope(|| std::thread::sleep(Duration::from_millis(1)));
            info!(counter.loss = 1.0 / (step + 1) as f64);
        });
        also(step);
        profiler.step();
    }
}

/// The folder of the training, in the training itself.
pub(crate) fn runtime() -> PathBuf {
    std::env::var_os(RUNTIME).unwrap().into()
}

impl Training {
    /// The folder of the sockets.
    pub(crate) fn sockets(&self) -> PathBuf {
        self.folder.path().join("kernspan")
    }

    /// The socket of the training.
    pub(crate) fn socket(&self) -> PathBuf {
        let sockets = files_in(&self.sockets());
        let [socket] = &sockets[..] else { panic!("{sockets:?}") };
        socket.clone()
    }

    pub(crate) fn client(&self) -> Client {
        Client::connect(self.socket()).unwrap()
    }

    pub(crate) fn status(&self) -> RunStatus {
        self.client().status().unwrap()
    }

    /// Waits until the training has taken another few steps.
    pub(crate) fn wait_for_steps(&self) {
        let first = self.status().step;
        eventually("more steps", || (self.status().step > first + 3).then_some(()));
    }

    /// Lets the training end.
    pub(crate) fn stop(self) -> Ended {
        fs::write(self.folder.path().join("stop"), "").unwrap();
        let sockets = self.sockets();
        let ended = self.process.wait();
        assert!(ended.status.success(), "{ended:?}");
        assert_eq!(files_in(&sockets), Vec::<PathBuf>::new(), "the socket is removed");
        ended
    }
}

/// The files in a folder, sorted; none if there is no folder.
pub(crate) fn files_in(folder: &Path) -> Vec<PathBuf> {
    let mut files: Vec<_> = fs::read_dir(folder).into_iter().flatten().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}
