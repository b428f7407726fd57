//! Real releases of CUPTI from Python wheels, and fake drivers compiled from C.
//!
//! The releases are where `downloads.rs` puts them.

use super::wheels::{files_under, missing, run, unpack};
use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

/// Releases of CUDA and the wheels of their CUPTI, the oldest first.
pub const RELEASES: [(&str, [&str; 1]); 5] = [
    ("12.0", ["nvidia-cuda-cupti-cu12==12.0.146"]),
    ("12.9", ["nvidia-cuda-cupti-cu12==12.9.79"]),
    ("13.0", ["nvidia-cuda-cupti==13.0.85"]),
    ("13.2", ["nvidia-cuda-cupti==13.2.75"]),
    ("13.4", ["nvidia-cuda-cupti==13.4.92"]),
];

/// Returns the libraries of the releases, the oldest first; none if there is no Python, which is an error if `CI=true`.
pub fn libraries() -> Vec<(&'static str, PathBuf)> {
    let folder = unpack("cupti", &RELEASES);
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
