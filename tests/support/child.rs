//! Child processes: tests that other tests run in a process of their own.

use super::PATIENCE;
use std::{
    env,
    ffi::OsStr,
    fs::File,
    process::{Child, Command, ExitStatus, Stdio},
    time::{Duration, Instant},
};

/// Variables that a child process must not inherit, since they would change which libraries are found.
const CLEARED: [&str; 7] =
    ["KERNSPAN_CUPTI", "CUDA_HOME", "CUDA_PATH", "CUDA_ROOT", "CONDA_PREFIX", "VIRTUAL_ENV", "LD_PRELOAD"];

/// Runs the test with this name in a process of its own. Fails if the process fails or hangs.
pub fn run(test: &str, variables: &[(&str, &OsStr)]) {
    finish(Command::new(env::current_exe().unwrap()), test, variables);
}

/// Runs a test in a process of its own, in which it may change global state such as the global subscriber. `name` is
/// the name of the test that calls this.
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
    // The limit is in units of 512 bytes. Without the trap, the process would be killed instead of getting an error.
    let limited = "trap '' XFSZ; ulimit -f 128; exec \"$0\" \"$@\"";
    let mut command = Command::new("sh");
    command.args(["-c", limited]).arg(env::current_exe().unwrap());
    finish(command, test, variables);
}

/// Starts the test with this name in a process of its own.
pub fn start(test: &str, variables: &[(&str, &OsStr)]) -> Running {
    let mut command = Command::new(env::current_exe().unwrap());
    prepare(&mut command, test, variables);
    Running(command.stdout(Stdio::null()).spawn().unwrap())
}

/// A process that is killed when this is dropped.
pub struct Running(Child);

impl Running {
    /// Returns the exit status, if the process has ended.
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
    let read = || std::fs::read_to_string(output.path()).unwrap();
    let status = loop {
        if let Some(status) = child.ended() {
            break status;
        }
        assert!(Instant::now() < until, "{test} with {variables:?} hangs\n{}", read());
        // Leave the processor to the child.
        std::thread::sleep(Duration::from_millis(10));
    };
    let text = read();
    assert!(status.success(), "{test} with {variables:?}: {status}\n{text}");
    assert!(text.contains("1 passed"), "{test} is no test: {text}");
}
