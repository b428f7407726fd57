//! Python wheels with NVIDIA's libraries and headers, unpacked where `downloads.rs` puts them.

use super::downloads;
use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};

/// Downloads and unpacks the wheels of each release, unless that has been done. Returns a folder with a folder for each
/// release, or `None` if there is no Python.
pub fn unpack<const N: usize>(name: &str, releases: &[(&str, [&str; N])]) -> Option<PathBuf> {
    downloads::folder(name, format!("{releases:#?}").as_bytes(), |unpacked| {
        let work = tempfile::tempdir().unwrap();
        let folder = |name: &str| work.path().join(name);
        run(Command::new("python3").args(["-m", "venv"]).arg(folder("environment"))).ok()?;
        let python = || Command::new(folder("environment/bin/python"));
        for (name, wheels) in releases {
            let downloaded = folder("wheels").join(name);
            let pip = ["-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps", "--dest"];
            run(python().args(pip).arg(&downloaded).args(wheels)).unwrap();
            for wheel in files_under(&downloaded, ".whl") {
                run(python().args(["-m", "zipfile", "--extract"]).arg(wheel).arg(unpacked.join(name))).unwrap();
            }
        }
        Some(())
    })
}

/// Reports that a tool is missing; fails if `CI=true`.
pub fn missing(message: &str) {
    assert_ne!(std::env::var("CI").as_deref(), Ok("true"), "{message}");
    eprintln!("\n*** {message} ***\n");
}

/// Runs a command. Returns what it wrote to standard error if it fails.
pub fn run(command: &mut Command) -> Result<Output, String> {
    let output = command.output().map_err(|error| format!("{command:?}: {error}"))?;
    let message = || format!("{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    if output.status.success() { Ok(output) } else { Err(message()) }
}

/// Returns the files in a folder and the folders in it whose paths end like this, sorted.
pub fn files_under(folder: &Path, ending: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files_under(&path, ending));
        } else if path.to_string_lossy().ends_with(ending) {
            found.push(path);
        }
    }
    found.sort();
    found
}
