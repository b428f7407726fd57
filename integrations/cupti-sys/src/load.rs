//! Finding and loading libcupti.

use crate::{Cupti, Driver, LoadError, error::reason, places};
use libloading::os::unix::{Library, RTLD_NOW};
use std::{ffi::c_int, path::PathBuf};

impl Cupti {
    /// Loads CUPTI from wherever it is: the process may have it already; then the loader's own places, toolkits, and Python
    /// packages. The release that fits the driver comes first.
    ///
    /// # Errors
    ///
    /// If it is nowhere, or does not work.
    pub fn find(driver: Driver) -> Result<Self, LoadError> {
        let major = driver.version()? / 1000;
        // A second copy in one process would not work, so ask for the first.
        const RTLD_NOLOAD: c_int = 4;
        for &name in places::names(major) {
            // SAFETY: nothing is loaded that is not there already.
            if let Ok(library) = unsafe { Library::open(Some(name), RTLD_NOW | RTLD_NOLOAD) } {
                return Self::new(library, PathBuf::from(name));
            }
        }
        Self::load(driver, places::places(major, |name| std::env::var_os(name)))
    }

    /// Loads CUPTI from the first of these places that has it.
    ///
    /// # Errors
    ///
    /// If it is at none, or does not work.
    pub fn load(_: Driver, places: impl IntoIterator<Item = PathBuf>) -> Result<Self, LoadError> {
        let (library, place) = open(places)?;
        Self::new(library, place)
    }

    /// Loads CUPTI where there is no driver, for tests of [`records`](Self::records): the version is 0.
    ///
    /// # Errors
    ///
    /// If it is not there.
    ///
    /// # Safety
    ///
    /// No function but [`records`](Self::records) is called: without a driver some releases recurse for ever.
    #[doc(hidden)]
    pub unsafe fn load_without_driver(path: PathBuf) -> Result<Self, LoadError> {
        let (library, path) = open([path])?;
        Ok(Self::untried(library, path))
    }
}

/// Loads the first of these that can be loaded.
fn open(places: impl IntoIterator<Item = PathBuf>) -> Result<(Library, PathBuf), LoadError> {
    let mut looked = Vec::new();
    for place in places {
        // SAFETY: what the library does when it is loaded is NVIDIA's business.
        match unsafe { Library::open(Some(&place), RTLD_NOW) } {
            Ok(library) => return Ok((library, place)),
            Err(error) => looked.push((place, reason(&error))),
        }
    }
    Err(LoadError::NotFound { looked })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_nowhere_is_not_found_and_the_error_says_where_it_was_looked_for() {
        let folder = tempfile::tempdir().unwrap();
        let (absent, wrong) = (folder.path().join("libcupti.so.13"), folder.path().join("libcupti.so.12"));
        std::fs::write(&wrong, "no library").unwrap();
        let error = open([PathBuf::from("libcupti-of-nobody.so.13"), absent.clone(), wrong.clone()]).unwrap_err();

        let LoadError::NotFound { looked } = &error else { panic!("{error:?}") };
        let places: Vec<_> = looked.iter().map(|(place, _)| place.clone()).collect();
        assert_eq!(places, [PathBuf::from("libcupti-of-nobody.so.13"), absent, wrong]);
        let reasons: Vec<_> = looked.iter().map(|(_, reason)| reason.as_str()).collect();
        assert!(reasons[1].contains("No such file") || reasons[1].contains("not found"), "{reasons:?}");
        assert_ne!(reasons[1], reasons[2]);
        assert!(error.to_string().starts_with("libcupti not found; looked for libcupti-of-nobody.so.13, "), "{error}");
    }

    #[test]
    fn there_is_nothing_to_find_in_no_places() {
        let error = open([]).unwrap_err();
        assert_eq!(error, LoadError::NotFound { looked: Vec::new() });
        assert_eq!(error.to_string(), "libcupti not found; there was no place to look");
    }
}
