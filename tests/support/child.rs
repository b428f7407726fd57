//! Tests that are programs for other tests.

use std::{
    env,
    ffi::OsStr,
    fs::File,
    process::Command,
    time::{Duration, Instant},
};

/// What this process must not hand down: it would change what is found.
const CLEARED: [&str; 7] =
    ["KERNSPAN_CUPTI", "CUDA_HOME", "CUDA_PATH", "CUDA_ROOT", "CONDA_PREFIX", "VIRTUAL_ENV", "LD_PRELOAD"];

/// Runs the test named so in a process of its own, which ends well and soon.
pub fn run(test: &str, variables: &[(&str, &OsStr)]) {
    let output = tempfile::NamedTempFile::new().unwrap();
    let [stdout, stderr] = [(); 2].map(|()| File::options().append(true).open(output.path()).unwrap());
    let mut command = Command::new(env::current_exe().unwrap());
    for name in CLEARED {
        command.env_remove(name);
    }
    command.args([test, "--exact", "--nocapture"]).envs(variables.iter().copied()).stdout(stdout).stderr(stderr);
    let mut child = command.spawn().unwrap();
    let until = Instant::now() + Duration::from_secs(120);
    let said = || std::fs::read_to_string(output.path()).unwrap();
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            let said = said();
            assert!(status.success(), "{test} with {variables:?}: {status}\n{said}");
            assert!(said.contains("1 passed"), "{test} is no test: {said}");
            return;
        }
        if Instant::now() > until {
            let _ = child.kill();
            panic!("{test} with {variables:?} hangs\n{}", said());
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}
