//! OpenTelemetry: how spans and metrics are sent, what becomes of them on the way, and which are left to another layer.

#[path = "../support/collector.rs"]
mod collector;
#[path = "../support/mod.rs"]
mod support;

mod foreign;
mod soak;
mod transport;
