//! Jaeger, Prometheus and a Collector between them, which give back what they are sent.
//!
//! They have to be built, with Go, which takes minutes, so these tests run only if they are asked for:
//! `cargo test -p kernspan-otlp --all-features --test collectors -- --ignored`.

#[path = "../support/mod.rs"]
mod support;

mod jaeger;
mod prometheus;
#[cfg(feature = "serving")]
mod requests;
mod round_trip;
