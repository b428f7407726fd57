//! OpenTelemetry for [kernspan]: trainings appear in Jaeger, Grafana and any other backend that accepts OTLP, alongside
//! your services.
//!
//! ```no_run
//! use kernspan::{Profiler, Schedule};
//! use kernspan_otlp::{GpuSpans, Otlp};
//! use tracing_subscriber::prelude::*;
//!
//! let (layer, profiler) = Profiler::builder()
//!     .schedule(Schedule::new().wait(500).warmup(1).active(2))
//!     .export(Otlp::from_env().service("mnist").gpu(GpuSpans::Kernels).samples_per_step(64))
//!     .build()?;
//! tracing_subscriber::registry().with(layer).init();
//!
//! for batch in 0..10_000 {
//!     train_step(batch);
//!     profiler.step();
//! }
//! profiler.finish_and_print()?; // also how many spans and points were sent and lost
//!
//! #[tracing::instrument]
//! fn train_step(batch: u64) {
//!     tracing::info!(counter.loss = 1.0 / (batch + 1) as f64);
//! }
//! # Ok::<(), kernspan::Error>(())
//! ```
//!
//! Each recorded step of each rank is a trace: its spans, and below them the GPU work they launched. A span is the
//! child of the span it [works for](kernspan::trace::Span::caller). One span is sent per enter, so a future has one per
//! poll; each but the first links to the [previous](kernspan::trace::Span::previous) one. Metrics cover all steps,
//! recorded or not, the process, and the GPUs' hardware. The training never waits for the collector: what cannot be
//! sent is counted, and the report says why.
//!
//! [`Otlp`] documents all attributes, metrics, environment variables and causes of losses.
//!
//! # How it works
//!
//! The exporter encodes each window as protobuf requests while it reads the trace. A bounded queue per signal passes
//! them to a thread that sends them.
//!
//! trace → spans, metrics → requests → queue → HTTP or gRPC
//!
//! # Features
//!
//! - `grpc`: OTLP over gRPC. HTTP needs no feature.
//! - `serving`: metrics of requests and of service levels, with kernspan's feature of that name.
//!
//! With kernspan's own feature `tracing-opentelemetry`, GPU work is sent as children of the spans of a
//! `tracing-opentelemetry` layer.

#![cfg_attr(not(test), warn(clippy::unwrap_used, clippy::expect_used))]

mod answer;
mod attributes;
mod endpoint;
mod environment;
mod gpu_totals;
#[cfg(feature = "grpc")]
mod grpc;
mod http;
mod ids;
mod metrics;
mod options;
mod otlp;
mod placement;
mod request;
mod resource;
#[cfg(feature = "grpc")]
mod retry_info;
mod run_trace;
mod send_queue;
mod sending;
mod settings;
mod span_writer;
mod spans;
mod tally;
mod transport;

pub use self::{endpoint::Protocol, options::GpuSpans, otlp::Otlp};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
