//! Tests of requests: every one is counted, whatever its span goes through.

#![cfg(feature = "serving")]

#[path = "../support/mod.rs"]
mod support;

mod fields;
mod levels;
mod logs;
mod slowest;
mod spans;

use kernspan::{
    Profiler, ProfilerBuilder, Report, Schedule,
    serving::{Requests, RequestsOfKind},
};
use tracing::subscriber::with_default;
use tracing_subscriber::prelude::*;

/// Runs a program under a profiler that records nothing but requests, and returns what it says during the run and in
/// its report.
fn served(
    settings: impl FnOnce(ProfilerBuilder) -> ProfilerBuilder,
    program: impl FnOnce(&Profiler),
) -> (Requests, Report) {
    let (layer, profiler) = settings(Profiler::builder().schedule(Schedule::manual())).build().unwrap();
    let live = with_default(tracing_subscriber::registry().with(layer), || {
        program(&profiler);
        profiler.requests()
    });
    (live, profiler.finish().unwrap())
}

/// Returns the requests of spans named `request`.
fn of(requests: &Requests) -> &RequestsOfKind {
    requests.kind("request").unwrap()
}

/// Returns the number of requests that have ended, that failed, and that are in flight.
fn counts(requests: &Requests) -> (u64, u64, u64) {
    let kind = of(requests);
    (kind.total.count(), kind.total.errors, kind.in_flight)
}
