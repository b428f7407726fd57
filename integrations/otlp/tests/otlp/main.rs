//! OpenTelemetry: how spans and metrics are sent, what becomes of them, and which spans another layer sends.

#[path = "../support/collector.rs"]
mod collector;
#[path = "../support/mod.rs"]
mod support;

mod contexts;
mod environment;
mod foreign_spans;
mod layers;
mod reentrancy;
#[cfg(feature = "serving")]
mod requests;
mod soak;
mod tls;
mod training;
mod transport;
#[cfg(target_os = "linux")]
mod vitals;
