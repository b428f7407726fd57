//! Small programs as others write them, each in a process of its own: everything that they do is recorded, once.

#[path = "../support/mod.rs"]
mod support;

mod composed;
mod parallel;
mod service;

use kernspan::Report;

/// Returns the number of calls of each span by name, in the order of names, after checking that nothing was lost.
fn calls(report: &Report) -> Vec<(String, u64)> {
    assert!(report.losses().is_empty(), "{}", report.losses());
    let mut calls: Vec<_> = report.averages().rows().into_iter().map(|row| (row.name, row.calls)).collect();
    calls.sort();
    calls
}

/// Checks that a report has exactly these calls, in the order of names, lost nothing, and has no hints.
fn check(report: &Report, expected: &[(&str, u64)]) {
    let expected: Vec<_> = expected.iter().map(|&(name, number)| (name.to_owned(), number)).collect();
    assert_eq!((calls(report), report.hints()), (expected, &[][..]));
}
