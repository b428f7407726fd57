//! Error messages on machines without a driver and for paths without a library.

#![cfg(unix)]

use cupti_sys::{Cupti, Driver, LoadError};
use std::path::PathBuf;

#[test]
fn without_a_driver_loading_it_says_so() {
    // SAFETY: loading runs NVIDIA's initialisers, on which every CUDA program relies.
    if unsafe { libloading::Library::new("libcuda.so.1") }.is_ok() {
        eprintln!("skipped: this machine has a driver");
        return;
    }
    let error = Driver::load().unwrap_err();
    assert!(matches!(error, LoadError::NoDriver { .. }), "{error:?}");
    let text = error.to_string();
    assert!(text.starts_with("no NVIDIA driver: ") && text.contains("libcuda.so.1"), "{text}");
    assert_one_clause(&text);
}

#[test]
fn without_a_library_the_error_says_where_it_was_looked_for() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("libcupti.so.13");
    // SAFETY: there is no library, so none of its functions is called.
    let error = unsafe { Cupti::load_without_driver(path.clone()) }.unwrap_err();
    let LoadError::NotFound { looked } = &error else { panic!("{error:?}") };
    assert_eq!(looked.iter().map(|(path, _)| path).collect::<Vec<_>>(), [&path]);
    assert!(error.to_string().contains(path.to_str().unwrap()), "{error}");
    assert_one_clause(&error.to_string());

    // The error is the same with a driver.
    if let Ok(driver) = Driver::load() {
        assert_eq!(Cupti::load(driver, [path]).unwrap_err(), error);
        assert_eq!(Cupti::load(driver, Vec::<PathBuf>::new()).unwrap_err(), LoadError::NotFound { looked: Vec::new() });
    }
}

fn assert_one_clause(text: &str) {
    assert!(!text.contains('\n') && !text.ends_with('.') && !text.contains("  "), "{text}");
    assert!(text.starts_with(|first: char| first.is_lowercase()), "{text}");
}
