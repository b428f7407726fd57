//! Tests that are programs for other tests.

use super::PATIENCE;
use std::{
    env,
    ffi::OsStr,
    fs::File,
    process::{Child, Command, ExitStatus, Stdio},
    time::{Duration, Instant},
};

/// What this process must not hand down: it would change what is found.
const CLEARED: [&str; 7] =
    ["KERNSPAN_CUPTI", "CUDA_HOME", "CUDA_PATH", "CUDA_ROOT", "CONDA_PREFIX", "VIRTUAL_ENV", "LD_PRELOAD"];

/// Runs the test named so in a process of its own, which ends well and soon.
pub fn run(test: &str, variables: &[(&str, &OsStr)]) {
    finish(Command::new(env::current_exe().unwrap()), test, variables);
}

/// Runs a test in a process of its own, which may change what a process has one of, such as the global subscriber. The
/// name is that of the test that calls this.
pub fn alone(name: &str, test: impl FnOnce()) {
    const ALONE: &str = "KERNSPAN_TEST_ALONE";
    if env::var_os(ALONE).is_some_and(|alone| alone == name) {
        test();
    } else {
        run(name, &[(ALONE, name.as_ref())]);
    }
}

/// As [`run`], where no file can be larger than 64 KiB, as on a disk that is full.
pub fn run_with_small_files(test: &str, variables: &[(&str, &OsStr)]) {
    // In units of 512 bytes. Without the trap it would be killed instead of told.
    let limited = "trap '' XFSZ; ulimit -f 128; exec \"$0\" \"$@\"";
    let mut command = Command::new("sh");
    command.args(["-c", limited]).arg(env::current_exe().unwrap());
    finish(command, test, variables);
}

/// Starts the test named so in a process of its own.
pub fn start(test: &str, variables: &[(&str, &OsStr)]) -> Running {
    let mut command = Command::new(env::current_exe().unwrap());
    prepare(&mut command, test, variables);
    Running(command.stdout(Stdio::null()).spawn().unwrap())
}

/// A process that is killed when this is dropped.
pub struct Running(Child);

impl Running {
    /// How it ended, if it has.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.0.try_wait().unwrap()
    }

    pub fn kill(&mut self) {
        let _ = self.0.kill();
        self.0.wait().unwrap();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.kill();
    }
}

fn prepare(command: &mut Command, test: &str, variables: &[(&str, &OsStr)]) {
    for name in CLEARED {
        command.env_remove(name);
    }
    command.args([test, "--exact", "--nocapture"]).envs(variables.iter().copied());
}

fn finish(mut command: Command, test: &str, variables: &[(&str, &OsStr)]) {
    let output = tempfile::NamedTempFile::new().unwrap();
    let [stdout, stderr] = [(); 2].map(|()| File::options().append(true).open(output.path()).unwrap());
    prepare(&mut command, test, variables);
    let mut child = Running(command.stdout(stdout).stderr(stderr).spawn().unwrap());
    let until = Instant::now() + PATIENCE;
    let said = || std::fs::read_to_string(output.path()).unwrap();
    let status = loop {
        if let Some(status) = child.ended() {
            break status;
        }
        assert!(Instant::now() < until, "{test} with {variables:?} hangs\n{}", said());
        // The processor is for the child.
        std::thread::sleep(Duration::from_millis(10));
    };
    let said = said();
    assert!(status.success(), "{test} with {variables:?}: {status}\n{said}");
    assert!(said.contains("1 passed"), "{test} is no test: {said}");
}
