//! Child processes: tests that other tests run in a process of their own.

use super::{PATIENCE, eventually};
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

/// The variable that names the test that a child process is for.
const ALONE: &str = "KERNSPAN_TEST_ALONE";

/// Runs the test with this name in a process of its own. Fails if the process fails or hangs.
pub fn run(test: &str, variables: &[(&str, &OsStr)]) {
    finish(Command::new(env::current_exe().unwrap()), test, variables);
}

/// Runs a test in a process of its own, in which it may change global state such as the global subscriber. `name` is
/// the name of the test that calls this.
pub fn alone(name: &str, test: impl FnOnce()) {
    if env::var_os(ALONE).is_some_and(|alone| alone == name) {
        test();
    } else {
        run(name, &[(ALONE, name.as_ref())]);
    }
}

/// Runs `program` in a process of its own, which exits with status 0 after it, and whose output is kept. `name` is the
/// name of the test that calls this.
pub fn program(name: &str, variables: &[(&str, &OsStr)], program: impl FnOnce()) -> Captured {
    capture(Command::new(env::current_exe().unwrap()), name, variables, program)
}

/// As [`program`], in a process that a shell becomes after it has run this command.
pub fn program_in_shell(before: &str, name: &str, variables: &[(&str, &OsStr)], program: impl FnOnce()) -> Captured {
    let mut command = Command::new("sh");
    command.args(["-c", &format!("{before}; exec \"$0\" \"$@\"")]).arg(env::current_exe().unwrap());
    capture(command, name, variables, program)
}

fn capture(mut command: Command, name: &str, variables: &[(&str, &OsStr)], program: impl FnOnce()) -> Captured {
    if env::var_os(ALONE).is_some_and(|alone| alone == name) {
        program();
        std::process::exit(0);
    }
    let [stdout, stderr] = [(); 2].map(|()| tempfile::NamedTempFile::new().unwrap());
    prepare(&mut command, name, variables);
    command.env(ALONE, name).stdout(stdout.reopen().unwrap()).stderr(stderr.reopen().unwrap());
    Captured { running: Running(command.spawn().unwrap()), stdout, stderr }
}

/// A process whose output is kept.
pub struct Captured {
    running: Running,
    stdout: tempfile::NamedTempFile,
    stderr: tempfile::NamedTempFile,
}

/// The end of a process: its status, and the text that it printed.
#[derive(Debug)]
pub struct Ended {
    pub status: ExitStatus,
    pub stdout: String,
    pub stderr: String,
}

impl Captured {
    /// Sends a signal to the process.
    #[cfg(unix)]
    pub fn send(&self, signal: rustix::process::Signal) {
        rustix::process::kill_process(rustix::process::Pid::from_child(&self.running.0), signal).unwrap();
    }

    /// Waits until the process has printed this to its standard output. Fails if it ends or hangs.
    pub fn wait_for_output(&mut self, text: &str) {
        eventually(text, || {
            // Asked first, since the process may print and end in between.
            let ended = self.running.ended();
            let [printed, errors] =
                [&self.stdout, &self.stderr].map(|file| std::fs::read_to_string(file.path()).unwrap());
            let found = printed.contains(text);
            assert!(found || ended.is_none(), "{ended:?} without {text}: {printed}{errors}");
            found.then_some(())
        });
    }

    /// Waits for the end of the process. Fails if it hangs.
    pub fn wait(mut self) -> Ended {
        let status = eventually("the end of the process", || self.running.ended());
        let [stdout, stderr] = [&self.stdout, &self.stderr].map(|file| std::fs::read_to_string(file.path()).unwrap());
        Ended { status, stdout, stderr }
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
