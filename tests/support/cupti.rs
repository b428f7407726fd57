//! Real releases of CUPTI from Python wheels, and fake drivers compiled from C.
//!
//! The releases are where `downloads.rs` puts them.

use super::downloads;
use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};

/// Releases of CUDA and the wheels of their CUPTI, the oldest first.
pub const RELEASES: [(&str, &str); 5] = [
    ("12.0", "nvidia-cuda-cupti-cu12==12.0.146"),
    ("12.9", "nvidia-cuda-cupti-cu12==12.9.79"),
    ("13.0", "nvidia-cuda-cupti==13.0.85"),
    ("13.2", "nvidia-cuda-cupti==13.2.75"),
    ("13.4", "nvidia-cuda-cupti==13.4.92"),
];

/// Returns the libraries of the releases, the oldest first; none if there is no Python, which is an error if `CI=true`.
pub fn libraries() -> Vec<(&'static str, PathBuf)> {
    let folder = unpack();
    if folder.is_none() {
        missing("no python3 with venv: real releases of CUPTI do NOT check what is said without a GPU");
    }
    let library = |folder: &PathBuf, name: &str| {
        let ending = format!("libcupti.so.{}", &name[..2]);
        let [library] = files_under(&folder.join(name), &ending).try_into().unwrap();
        library
    };
    folder.iter().flat_map(|folder| RELEASES.map(|(name, _)| (name, library(folder, name)))).collect()
}

/// Reports that a tool is missing; fails if `CI=true`.
pub fn missing(message: &str) {
    assert_ne!(std::env::var("CI").as_deref(), Ok("true"), "{message}");
    eprintln!("\n*** {message} ***\n");
}

/// Downloads and unpacks the releases, unless that has been done, and returns their folder.
fn unpack() -> Option<PathBuf> {
    downloads::folder("cupti", format!("{RELEASES:#?}").as_bytes(), |releases| {
        let work = tempfile::tempdir().unwrap();
        let folder = |name: &str| work.path().join(name);
        run(Command::new("python3").args(["-m", "venv"]).arg(folder("environment"))).ok()?;
        let python = || Command::new(folder("environment/bin/python"));
        for (name, wheel) in RELEASES {
            let downloaded = folder("wheels").join(name);
            let pip = ["-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps", wheel, "--dest"];
            run(python().args(pip).arg(&downloaded)).unwrap();
            for wheel in files_under(&downloaded, ".whl") {
                run(python().args(["-m", "zipfile", "--extract"]).arg(wheel).arg(releases.join(name))).unwrap();
            }
        }
        Some(())
    })
}

/// Compiles a `libcuda.so.1` from C into the folder. Returns false if there is no compiler.
pub fn make_driver(folder: &Path, source: &str) -> bool {
    let file = folder.join("driver.c");
    fs::write(&file, source).unwrap();
    if Command::new("cc").arg("--version").output().is_err() {
        missing("no cc: drivers that fail do NOT check what is said without a GPU");
        return false;
    }
    let shared = ["-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", "-o"];
    run(Command::new("cc").args(shared).arg(folder.join("libcuda.so.1")).arg(file)).unwrap();
    true
}

fn run(command: &mut Command) -> Result<Output, String> {
    let output = command.output().map_err(|error| format!("{command:?}: {error}"))?;
    let message = || format!("{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    if output.status.success() { Ok(output) } else { Err(message()) }
}

fn files_under(folder: &Path, ending: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files_under(&path, ending));
        } else if path.to_string_lossy().ends_with(ending) {
            found.push(path);
        }
    }
    found
}
