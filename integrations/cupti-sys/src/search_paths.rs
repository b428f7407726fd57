//! The files to search for libcupti.

use std::{
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
};

/// Returns the paths to try, the most likely first. `major` is the major CUDA version of the driver, whose CUPTI is
/// preferred.
pub(crate) fn search_paths(major: u32, variable: impl Fn(&str) -> Option<OsString>) -> Vec<PathBuf> {
    // An empty variable counts as unset.
    let folder = |name: &str| variable(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let names: Vec<_> = library_names(major).iter().map(PathBuf::from).collect();
    let folders = toolkits(folder).into_iter().chain(wheels(folder));
    let files = folders.flat_map(|folder| names.iter().map(move |name| folder.join(name)).collect::<Vec<_>>());
    let files = files.filter(|path| path.exists());
    let mut paths = Vec::new();
    for path in names.iter().cloned().chain(files) {
        if !paths.contains(&path) {
            paths.push(path);
        }
    }
    // Wheels and toolkits of the other major release come last.
    paths.sort_by_key(|path| path.extension() != names[0].extension());
    paths
}

/// Returns the file names of the library, the preferred one first. `libcupti.so` is in toolkits only, and names the
/// installed release.
///
/// A driver works with older releases of CUPTI but not with newer ones: CUPTI 13.2 recurses endlessly with a driver
/// that is too old for it.
pub(crate) fn library_names(major: u32) -> &'static [&'static str] {
    match major {
        ..=12 => &["libcupti.so.12", "libcupti.so"],
        _ => &["libcupti.so.13", "libcupti.so.12", "libcupti.so"],
    }
}

/// Returns the library folders of CUDA toolkits and of conda's packages of them.
fn toolkits(variable: impl Fn(&str) -> Option<PathBuf>) -> Vec<PathBuf> {
    let variables = ["CUDA_HOME", "CUDA_PATH", "CUDA_ROOT", "CONDA_PREFIX"].into_iter().filter_map(variable);
    let homes = variables.chain(["/usr/local/cuda", "/opt/cuda"].map(PathBuf::from));
    homes.flat_map(|home| ["extras/CUPTI/lib64", "lib64", "lib"].map(|folder| home.join(folder))).collect()
}

/// Returns the library folders of Python packages, such as the ones that PyTorch depends on.
fn wheels(variable: impl Fn(&str) -> Option<PathBuf>) -> Vec<PathBuf> {
    let environments = ["VIRTUAL_ENV", "CONDA_PREFIX"].into_iter().filter_map(variable);
    let roots = environments.chain(["/usr", "/usr/local"].map(PathBuf::from)).map(|root| root.join("lib"));
    let pythons = roots.flat_map(|root| entries(&root).into_iter().filter(|path| has_prefix(path, "python3")));
    let packages = pythons.flat_map(|python| ["site-packages", "dist-packages"].map(|name| python.join(name)));
    packages.flat_map(|packages| ["nvidia/cu13/lib", "nvidia/cuda_cupti/lib"].map(|lib| packages.join(lib))).collect()
}

fn entries(root: &Path) -> Vec<PathBuf> {
    let mut entries: Vec<_> = fs::read_dir(root).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    entries.sort();
    entries
}

fn has_prefix(path: &Path, prefix: &str) -> bool {
    path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(prefix))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tempfile::TempDir;

    const CU12: &str = "lib/python3.11/site-packages/nvidia/cuda_cupti/lib/libcupti.so.12";
    const CU13: &str = "lib/python3.12/site-packages/nvidia/cu13/lib/libcupti.so.13";

    /// Returns a folder with these files.
    fn folder_with(files: &[&str]) -> TempDir {
        let folder = tempfile::tempdir().unwrap();
        for file in files {
            let path = folder.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "").unwrap();
        }
        folder
    }

    /// Returns the search paths inside `folder` and the bare names, if these variables name the folder. Paths of the
    /// machine that runs the test are left out.
    fn found(major: u32, folder: &TempDir, variables: &[&str]) -> Vec<String> {
        let paths = search_paths(major, |name| variables.contains(&name).then(|| folder.path().into()));
        let ours = paths.iter().filter_map(|path| match path.strip_prefix(folder.path()) {
            Ok(inside) => Some(inside),
            Err(_) => (path.components().count() == 1).then_some(path.as_path()),
        });
        ours.map(|path| path.to_str().unwrap().to_owned()).collect()
    }

    #[test]
    fn the_loader_is_asked_first_for_the_release_of_the_driver() {
        let empty = folder_with(&[]);
        assert_eq!(found(13, &empty, &[]), ["libcupti.so.13", "libcupti.so.12", "libcupti.so"]);
        assert_eq!(found(12, &empty, &[]), ["libcupti.so.12", "libcupti.so"], "a driver works with no newer release");
        assert_eq!(found(14, &empty, &[])[0], "libcupti.so.13");
        assert_eq!(found(11, &empty, &[])[0], "libcupti.so.12");
    }

    #[test]
    fn wheels_are_found_in_the_environment_and_those_of_the_driver_come_first() {
        let environment = folder_with(&[CU12, CU13]);
        for variable in ["VIRTUAL_ENV", "CONDA_PREFIX"] {
            assert_eq!(
                found(13, &environment, &[variable]),
                ["libcupti.so.13", CU13, "libcupti.so.12", "libcupti.so", CU12]
            );
            assert_eq!(found(12, &environment, &[variable]), ["libcupti.so.12", CU12, "libcupti.so"]);
        }
    }

    #[test]
    fn toolkits_come_before_wheels() {
        let toolkit = "extras/CUPTI/lib64/libcupti.so.12";
        let both = folder_with(&[CU12, toolkit, "lib/libcupti.so"]);
        assert_eq!(
            found(12, &both, &["CUDA_HOME", "VIRTUAL_ENV"]),
            ["libcupti.so.12", toolkit, CU12, "libcupti.so", "lib/libcupti.so"]
        );
    }

    #[test]
    fn conda_packages_are_found() {
        let environment = folder_with(&["lib/libcupti.so.12"]);
        assert_eq!(found(12, &environment, &["CONDA_PREFIX"])[1], "lib/libcupti.so.12");
    }

    #[test]
    fn a_path_that_is_named_twice_is_tried_once() {
        let toolkit = folder_with(&["lib64/libcupti.so.13", "lib64/libcupti.so.12", "lib64/libcupti.so"]);
        let twice = found(13, &toolkit, &["CUDA_HOME", "CUDA_PATH", "CUDA_ROOT"]);
        assert_eq!(twice, found(13, &toolkit, &["CUDA_HOME"]));
        assert_eq!(twice.len(), 6);
    }

    #[test]
    fn an_empty_variable_adds_no_path() {
        assert_eq!(search_paths(13, |_| Some(OsString::new())), search_paths(13, |_| None));
    }

    #[test]
    fn a_folder_without_the_library_adds_no_path() {
        let empty =
            folder_with(&["lib/python3.11/site-packages/nvidia/cuda_cupti/lib/libnvperf_host.so", "lib/ruby/a"]);
        assert_eq!(found(12, &empty, &["VIRTUAL_ENV", "CUDA_HOME", "CONDA_PREFIX"]).len(), 2);
    }
}
