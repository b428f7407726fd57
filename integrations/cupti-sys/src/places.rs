//! Where libcupti may be.

use std::{
    env, fs,
    path::{Path, PathBuf},
};

/// Places to look for CUPTI, the likeliest first; `major` is the driver's, whose CUPTI is the one to prefer.
pub(crate) fn places(major: u32) -> Vec<PathBuf> {
    let names: Vec<_> = names(major).map(PathBuf::from).to_vec();
    let mut places = names.clone();
    for folder in toolkits().into_iter().chain(wheels()) {
        places.extend(names.iter().map(|name| folder.join(name)).filter(|path| path.exists()));
    }
    // Wheels and toolkits of the other major release come last.
    let wanted = format!(".{}", names[0].extension().unwrap_or_default().to_string_lossy());
    places.sort_by_key(|place| !place.to_string_lossy().ends_with(&wanted));
    places.dedup();
    places
}

/// The library's names. The plain one is only in toolkits, where it is what was installed.
pub(crate) fn names(major: u32) -> [&'static str; 3] {
    match major {
        ..=12 => ["libcupti.so.12", "libcupti.so.13", "libcupti.so"],
        _ => ["libcupti.so.13", "libcupti.so.12", "libcupti.so"],
    }
}

fn toolkits() -> Vec<PathBuf> {
    let variables = ["CUDA_HOME", "CUDA_PATH", "CUDA_ROOT"].into_iter().filter_map(env::var_os).map(PathBuf::from);
    let homes = variables.chain(["/usr/local/cuda", "/opt/cuda"].map(PathBuf::from));
    homes.flat_map(|home| ["extras/CUPTI/lib64", "lib64", "lib"].map(|folder| home.join(folder))).collect()
}

/// Folders of Python packages, such as the ones PyTorch brings.
fn wheels() -> Vec<PathBuf> {
    let environments = ["VIRTUAL_ENV", "CONDA_PREFIX"].into_iter().filter_map(env::var_os).map(PathBuf::from);
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
