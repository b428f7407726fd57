//! Tests of recording on the host: capture, windows, losses, the end of a run, and the report.

#[path = "../support/mod.rs"]
mod support;

mod callers;
mod calls;
mod capture;
#[cfg(all(feature = "cpu-time", unix))]
mod cpu_time;
mod edges;
mod ending;
mod exits;
mod fields;
mod filtered;
mod findings;
mod finished;
mod flight;
mod futures;
mod hints;
mod losses;
mod report;
mod requests;
mod schedule;
#[cfg(all(feature = "signals", unix))]
mod signals;
mod steps;
mod teardown;
mod watch;
