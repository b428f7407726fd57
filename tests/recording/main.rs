//! Recording on the host: what is captured, when it is, how it ends, and what the report says of it.

#[path = "../support/mod.rs"]
mod support;

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
