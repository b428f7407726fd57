//! A profiler for Rust training loops: shows where the time goes, and what the GPU did in each span.
//!
//! Add the [layer](ProfilerLayer) to a `tracing` subscriber, put `#[instrument]` on functions that matter, and call
//! [`step`](Profiler::step) once a turn. A [`Schedule`] like PyTorch's says which steps are recorded. Each recorded
//! window becomes a [`Trace`]; [exporters](export) take it to Perfetto, TensorBoard, flame graphs, OpenTelemetry or
//! your own code, and [`finish_and_print`](Profiler::finish_and_print) prints a [`Report`], whose `Display` is a
//! table, and returns every failure.
//!
//! ```
//! use kernspan::{Chrome, Perfetto, Profiler, Schedule};
//! use tracing_subscriber::{EnvFilter, fmt, prelude::*};
//!
//! # let runs = tempfile::tempdir().unwrap();
//! # let runs = runs.path();
//! let (layer, profiler) = Profiler::builder()
//!     .schedule(Schedule::new().wait(5).warmup(1).active(3).repeat(2))
//!     .export(Chrome::to_dir(runs))
//!     .export(Perfetto::to_dir(runs))
//!     .build()?;
//! // A filter for all layers would hide spans from the profiler, too: give it to the layer that prints.
//! let print = fmt::layer().with_filter(EnvFilter::from_default_env());
//! tracing_subscriber::registry().with(layer).with(print).init();
//!
//! for batch in 0..20 {
//!     train_step(batch);
//!     profiler.step();
//! }
//! profiler.finish_and_print()?;
//!
//! #[tracing::instrument(skip_all)]
//! fn train_step(batch: u32) {
//!     tracing::info_span!("forward").in_scope(|| ());
//!     tracing::info!(counter.loss = 1.0 / f64::from(batch + 1));
//! }
//! # Ok::<(), kernspan::Error>(())
//! ```
//!
//! # Stages
//!
//! 1. Capture: the layer, and callbacks of the GPU's library, write records into the calling thread's bounded lane.
//! 2. Session: the [`Profiler`] follows the schedule, and opens and closes windows.
//! 3. Correlate: on a background thread, the records of a window become one immutable [`trace`].
//! 4. [`analysis`] answers questions about a trace: how busy was each GPU in each step, and what did the step wait
//!    for?
//! 5. [`report`] adds the traces of a run up: averages, kernels, operations, steps, peaks of memory.
//! 6. [`export`] writes and sends them; [`framework`] is for integrations that launch on threads of their own.
//!
//! # Spans
//!
//! A span is one enter and exit on one thread. A span that is made once and entered for ever has an instance for each
//! time, and an async span has one for each poll; the polls of a future are [one call](trace::Span::previous). A span
//! that lies across a window's edge is cut there, and [says so](trace::Cut).
//!
//! The [parent](trace::Span::parent) of a span is the one that was open on the thread when it was entered: self times,
//! GPU time and the tracks of viewers are those of threads. Its [caller](trace::Span::caller) is the span that it works
//! for: the one given as `parent: other` where it was made, or else its parent, or, if it has none, the span that was
//! current where it was made, as for tasks that are spawned. The report's stacks and flame graphs show callers.
//!
//! # The GPU
//!
//! NVIDIA GPUs are recorded on Linux, with nothing to set up: the driver and CUPTI are looked for when the program
//! runs (`KERNSPAN_CUPTI` may name the file). Each kernel, copy and fill ([`trace::Work`]) belongs to the call that
//! caused it ([`trace::ApiCall`]), and that to the innermost span open on its thread; no clocks are compared.
//! [`trace::Attribution`] says how it is known. For work that is passed on between threads, see
//! [`framework::HandOver`]. [`ProfilerBuilder::activities`] says what is recorded. Without a GPU the same program
//! runs, and [`Profiler::gpu`], the table and every export say why there is nothing of it. CUPTI is attached in
//! warm-up steps, since that takes some milliseconds, and detached in waits that are long enough: see
//! [`ProfilerBuilder::detach_after`]. Both happen inside `step()`; other threads that launch just then wait for some
//! microseconds, or for milliseconds if one of them is in the middle of a long call.
//!
//! # Fields with a meaning
//!
//! `counter.NAME` on an event is a sample of a counter. On spans and operations, `op.name`, `op.module`,
//! `op.shape.ARG`, `op.dtype.ARG`, `op.flops`, `op.bytes` and `op.gemm` say what was done: see [`trace::convention`].
//! The report has FLOP/s and [MFU](report::Average::gpu_mfu) from these. How long each step took, and its counters,
//! can be had of all steps, recorded or not: see [`export::StepExporter`].
//!
//! # Cost
//!
//! While the schedule waits, a span costs what any layer costs, and a kernel launch nothing once CUPTI is detached.
//! While it records, a span costs two readings of the clock and two records. Fields cost more, in every phase: they
//! are kept as long as the span lives, and `?value` and `%value` are formatted. So write `#[instrument(skip_all)]`,
//! and name the fields you want. Figures are in `benches/README.md`. Once the profiler has finished, levels that
//! no other layer wants are off.
//!
//! # Losses
//!
//! Memory is bounded: the process takes at most a quarter more than the
//! [`memory_limit_bytes`](ProfilerBuilder::memory_limit_bytes), beside the threads' lanes and what exporters hold. What
//! does not fit is counted by cause in [`trace::Losses`], which every export and the report show.
//!
//! # Frameworks and collectors
//!
//! - `kernspan-candle`: Candle's modules, backward passes, optimizers and data loading as spans, with shapes and
//!   FLOPs.
//! - `kernspan-burn`: Burn's kernels in the spans that asked for them, through its fusion and device threads.
//! - `kernspan-otlp`: traces and metrics for Jaeger, Grafana and other collectors of OpenTelemetry.
//! - `kernspan-check`: whether a run is worse than an earlier one, for tests and CI.
//! - `kernspan-cli`: the program `kernspan`, which prints tables of files that were written, and converts them.
//!
//! # Features
//!
//! - `cuda` (default): records NVIDIA GPUs, on Linux. Nothing of CUDA is needed to build it.
//! - `gzip` (default): compressed Chrome traces.
//! - `read`: reads traces back from files, of kernspan and of PyTorch's profiler.
//! - `serde`: the report can be serialized.
//! - `signals`: a recording can be saved when a signal or a call of `exit` ends the process, on Unix
//!   ([`ProfilerBuilder`]`::save_on_exit`).
//! - `tracing-opentelemetry`: spans know the ids that a layer of that crate gives them ([`trace::Span::context`]).
//!   The layer is asked when a span is entered, which begins the span there: set a parent before.

#![cfg_attr(not(test), warn(clippy::unwrap_used, clippy::expect_used))]
#![cfg_attr(
    not(all(feature = "cuda", target_os = "linux")),
    allow(dead_code, reason = "a build that records no GPUs has no use for the code that handles their records")
)]

mod activity;
pub mod analysis;
mod budget;
mod builder;
mod clock;
mod collector;
mod correlate;
mod delivery;
mod ending;
mod error;
#[cfg(all(feature = "signals", unix))]
mod exit;
pub mod export;
mod failure;
mod file;
pub mod framework;
mod gallop_search;
mod gpu;
mod hint;
mod host;
mod pipeline;
mod profiler;
mod progress;
#[cfg(feature = "read")]
pub mod read;
mod recording;
#[cfg(all(feature = "cuda", target_os = "linux"))]
mod replay;
pub mod report;
mod schedule;
mod session;
mod step_sample;
mod steps;
mod thread;
pub mod trace;

#[cfg(feature = "read")]
pub use self::read::read;
#[cfg(all(feature = "cuda", target_os = "linux"))]
pub use self::replay::replay;
pub use self::{
    activity::Activity,
    builder::ProfilerBuilder,
    error::Error,
    export::{Chrome, Collected, Exporter, Html, Perfetto, Stacks, TensorBoard},
    failure::Failure,
    host::ProfilerLayer,
    profiler::{Profiler, RecordGuard},
    report::Report,
    schedule::{Phase, Schedule, ScheduleError},
    trace::Trace,
};

/// The examples of the README, which must compile.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
