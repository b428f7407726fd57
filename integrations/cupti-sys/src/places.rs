//! Where libcupti may be.

use std::{
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
};

/// Places to look for CUPTI, the likeliest first; `major` is the driver's, whose CUPTI is the one to prefer.
pub(crate) fn places(major: u32, variable: impl Fn(&str) -> Option<OsString>) -> Vec<PathBuf> {
    // A variable that is set to nothing is as good as none.
    let folder = |name: &str| variable(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let names: Vec<_> = names(major).iter().map(PathBuf::from).collect();
    let folders = toolkits(folder).into_iter().chain(wheels(folder));
    let files = folders.flat_map(|folder| names.iter().map(move |name| folder.join(name)).collect::<Vec<_>>());
    let files = files.filter(|path| path.exists());
    let mut places = Vec::new();
    for place in names.iter().cloned().chain(files) {
        if !places.contains(&place) {
            places.push(place);
        }
    }
    // Wheels and toolkits of the other major release come last.
    places.sort_by_key(|place| place.extension() != names[0].extension());
    places
}

/// The library's names. The plain one is only in toolkits, where it is what was installed.
///
/// A driver serves older releases, not newer ones: beside a driver that lacks what 13.2 wants of it, that one recurses for ever.
pub(crate) fn names(major: u32) -> &'static [&'static str] {
    match major {
        ..=12 => &["libcupti.so.12", "libcupti.so"],
        _ => &["libcupti.so.13", "libcupti.so.12", "libcupti.so"],
    }
}

/// Folders of toolkits, and of the packages that conda makes of them.
fn toolkits(variable: impl Fn(&str) -> Option<PathBuf>) -> Vec<PathBuf> {
    let variables = ["CUDA_HOME", "CUDA_PATH", "CUDA_ROOT", "CONDA_PREFIX"].into_iter().filter_map(variable);
    let homes = variables.chain(["/usr/local/cuda", "/opt/cuda"].map(PathBuf::from));
    homes.flat_map(|home| ["extras/CUPTI/lib64", "lib64", "lib"].map(|folder| home.join(folder))).collect()
}

/// Folders of Python packages, such as the ones PyTorch brings.
fn wheels(variable: impl Fn(&str) -> Option<PathBuf>) -> Vec<PathBuf> {
    let environments = ["VIRTUAL_ENV", "CONDA_PREFIX"].into_iter().filter_map(variable);
    let roots = environments.chain(["/usr", "/usr/local"].map(PathBuf::from)).map(|root| root.join("lib"));
    let pythons = roots.flat_map(|root| folders(&root).into_iter().filter(|path| named(path, "python3")));
    let packages = pythons.flat_map(|python| ["site-packages", "dist-packages"].map(|name| python.join(name)));
    packages.flat_map(|packages| ["nvidia/cu13/lib", "nvidia/cuda_cupti/lib"].map(|lib| packages.join(lib))).collect()
}

fn folders(root: &Path) -> Vec<PathBuf> {
    let mut folders: Vec<_> = fs::read_dir(root).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    folders.sort();
    folders
}

fn named(path: &Path, prefix: &str) -> bool {
    path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(prefix))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tempfile::TempDir;

    const CU12: &str = "lib/python3.11/site-packages/nvidia/cuda_cupti/lib/libcupti.so.12";
    const CU13: &str = "lib/python3.12/site-packages/nvidia/cu13/lib/libcupti.so.13";

    /// A folder with these files.
    fn folder_with(files: &[&str]) -> TempDir {
        let folder = tempfile::tempdir().unwrap();
        for file in files {
            let path = folder.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "").unwrap();
        }
        folder
    }

    /// The places in `folder`, and the loader's own, if these variables name the folder. What the machine has of its own is
    /// left out.
    fn found(major: u32, folder: &TempDir, variables: &[&str]) -> Vec<String> {
        let places = places(major, |name| variables.contains(&name).then(|| folder.path().into()));
        let ours = places.iter().filter_map(|place| match place.strip_prefix(folder.path()) {
            Ok(inside) => Some(inside),
            Err(_) => (place.components().count() == 1).then_some(place.as_path()),
        });
        ours.map(|place| place.to_str().unwrap().to_owned()).collect()
    }

    #[test]
    fn the_loader_is_asked_first_for_the_release_of_the_driver() {
        let empty = folder_with(&[]);
        assert_eq!(found(13, &empty, &[]), ["libcupti.so.13", "libcupti.so.12", "libcupti.so"]);
        assert_eq!(found(12, &empty, &[]), ["libcupti.so.12", "libcupti.so"], "a driver serves no newer release");
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
    fn a_place_that_is_named_twice_is_looked_at_once() {
        let toolkit = folder_with(&["lib64/libcupti.so.13", "lib64/libcupti.so.12", "lib64/libcupti.so"]);
        let twice = found(13, &toolkit, &["CUDA_HOME", "CUDA_PATH", "CUDA_ROOT"]);
        assert_eq!(twice, found(13, &toolkit, &["CUDA_HOME"]));
        assert_eq!(twice.len(), 6);
    }

    #[test]
    fn a_variable_that_is_empty_names_no_place() {
        assert_eq!(places(13, |_| Some(OsString::new())), places(13, |_| None));
    }

    #[test]
    fn a_folder_that_is_not_there_or_has_nothing_is_no_place() {
        let empty =
            folder_with(&["lib/python3.11/site-packages/nvidia/cuda_cupti/lib/libnvperf_host.so", "lib/ruby/a"]);
        assert_eq!(found(12, &empty, &["VIRTUAL_ENV", "CUDA_HOME", "CONDA_PREFIX"]).len(), 2);
    }
}
