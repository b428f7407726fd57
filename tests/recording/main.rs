//! Tests of recording on the host: capture, windows, losses, the end of a run, and the report.

#[path = "../support/mod.rs"]
mod support;

mod calls;
mod capture;
mod edges;
mod ending;
mod fields;
mod filtered;
mod losses;
mod report;
mod schedule;
mod steps;
mod teardown;
mod watch;
