//! Machines without a driver, and places without a library: that is said, in one clause.

#![cfg(unix)]

use cupti_sys::{Cupti, Driver, LoadError};
use std::path::PathBuf;

#[test]
fn without_a_driver_loading_it_says_so() {
    // SAFETY: every CUDA program loads it.
    if unsafe { libloading::Library::new("libcuda.so.1") }.is_ok() {
        eprintln!("there is a driver here");
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
    // SAFETY: there is none, so none of its functions is called.
    let error = unsafe { Cupti::load_without_driver(path.clone()) }.unwrap_err();
    let LoadError::NotFound { looked } = &error else { panic!("{error:?}") };
    assert_eq!(looked.iter().map(|(place, _)| place).collect::<Vec<_>>(), [&path]);
    assert!(error.to_string().contains(path.to_str().unwrap()), "{error}");
    assert_one_clause(&error.to_string());

    // With a driver, the same.
    if let Ok(driver) = Driver::load() {
        assert_eq!(Cupti::load(driver, [path]).unwrap_err(), error);
        assert_eq!(Cupti::load(driver, Vec::<PathBuf>::new()).unwrap_err(), LoadError::NotFound { looked: Vec::new() });
    }
}

fn assert_one_clause(text: &str) {
    assert!(!text.contains('\n') && !text.ends_with('.') && !text.contains("  "), "{text}");
    assert!(text.starts_with(|first: char| first.is_lowercase()), "{text}");
}
