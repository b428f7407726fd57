//! Finding and loading libcupti.

use crate::{
    cupti::Cupti,
    driver::Driver,
    error::{LoadError, reason},
    search_paths::{library_names, search_paths},
};
use libloading::os::unix::{Library, RTLD_NOW};
use std::{ffi::c_int, path::PathBuf};

impl Cupti {
    /// Finds and loads CUPTI: the copy already loaded in the process, or else the first one in the loader's search
    /// path, CUDA toolkits and Python packages. The release that matches the driver is preferred.
    ///
    /// # Errors
    ///
    /// If CUPTI is not found or does not work.
    pub fn find(driver: Driver) -> Result<Self, LoadError> {
        let major = driver.version()? / 1000;
        // CUPTI does not work twice in one process, so a copy that is already loaded comes first.
        const RTLD_NOLOAD: c_int = 4;
        for &name in library_names(major) {
            // SAFETY: RTLD_NOLOAD loads nothing.
            if let Ok(library) = unsafe { Library::open(Some(name), RTLD_NOW | RTLD_NOLOAD) } {
                return Self::new(library, PathBuf::from(name));
            }
        }
        Self::load(driver, search_paths(major, |name| std::env::var_os(name)))
    }

    /// Loads CUPTI from the first of these paths that can be loaded.
    ///
    /// # Errors
    ///
    /// If none can be loaded, or CUPTI does not work.
    pub fn load(_: Driver, paths: impl IntoIterator<Item = PathBuf>) -> Result<Self, LoadError> {
        let (library, path) = open(paths)?;
        Self::new(library, path)
    }

    /// Loads CUPTI on a machine without a driver, for tests of [`records`](Self::records). The version is 0.
    ///
    /// # Errors
    ///
    /// If it cannot be loaded.
    ///
    /// # Safety
    ///
    /// No function but [`records`](Self::records) is called, because without a driver some releases recurse endlessly.
    #[doc(hidden)]
    pub unsafe fn load_without_driver(path: PathBuf) -> Result<Self, LoadError> {
        let (library, path) = open([path])?;
        Ok(Self::unchecked(library, path))
    }
}

/// Loads the first of these paths that can be loaded.
fn open(paths: impl IntoIterator<Item = PathBuf>) -> Result<(Library, PathBuf), LoadError> {
    let mut looked = Vec::new();
    for path in paths {
        // SAFETY: loading runs NVIDIA's initialisers, on which every CUDA program relies.
        match unsafe { Library::open(Some(&path), RTLD_NOW) } {
            Ok(library) => return Ok((library, path)),
            Err(error) => looked.push((path, reason(&error))),
        }
    }
    Err(LoadError::NotFound { looked })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_library_is_an_error_that_lists_the_paths_looked_at() {
        let folder = tempfile::tempdir().unwrap();
        let (absent, wrong) = (folder.path().join("libcupti.so.13"), folder.path().join("libcupti.so.12"));
        std::fs::write(&wrong, "no library").unwrap();
        let error = open([PathBuf::from("libcupti-of-nobody.so.13"), absent.clone(), wrong.clone()]).unwrap_err();

        let LoadError::NotFound { looked } = &error else { panic!("{error:?}") };
        let paths: Vec<_> = looked.iter().map(|(path, _)| path.clone()).collect();
        assert_eq!(paths, [PathBuf::from("libcupti-of-nobody.so.13"), absent, wrong]);
        let reasons: Vec<_> = looked.iter().map(|(_, reason)| reason.as_str()).collect();
        assert!(reasons[1].contains("No such file") || reasons[1].contains("not found"), "{reasons:?}");
        assert_ne!(reasons[1], reasons[2]);
        assert!(error.to_string().starts_with("libcupti not found; looked for libcupti-of-nobody.so.13, "), "{error}");
    }

    #[test]
    fn nothing_is_found_without_paths() {
        let error = open([]).unwrap_err();
        assert_eq!(error, LoadError::NotFound { looked: Vec::new() });
        assert_eq!(error.to_string(), "libcupti not found; there were no paths to try");
    }
}
