//! kernspan shows where a Rust training loop spends its time, and what the GPU did in each span.
//!
//! Add its layer to a `tracing` subscriber, put `#[instrument]` on what matters, and call [`step`](Profiler::step) once a
//! turn. A [`Schedule`] like PyTorch's says which steps are recorded; while it waits, a span costs nanoseconds and a kernel launch
//! nothing. Each recorded window becomes a [`Trace`], which [`Exporter`]s take to Perfetto, to TensorBoard, to OpenTelemetry, to flame graphs or to your own
//! code, and the end is a table of where the time went.
//!
//! ```
//! use kernspan::{Chrome, Perfetto, Profiler, Schedule, TensorBoard};
//! use tracing_subscriber::prelude::*;
//!
//! # let runs = tempfile::tempdir().unwrap();
//! # let runs = runs.path();
//! let (layer, profiler) = Profiler::builder()
//!     .schedule(Schedule::new().wait(5).warmup(1).active(3).repeat(2))
//!     .export(Chrome::to_dir(runs))
//!     .export(Perfetto::to_dir(runs))
//!     .export(TensorBoard::to_dir(runs))
//!     .build()?;
//! tracing_subscriber::registry().with(layer).init(); // beside fmt, EnvFilter, any other layer
//!
//! for batch in 0..20 {
//!     train_step(batch);
//!     profiler.step();
//! }
//! println!("{}", profiler.finish()?);
//!
//! #[tracing::instrument(skip_all)]
//! fn train_step(batch: u32) {
//!     tracing::info_span!("forward").in_scope(|| ());
//!     tracing::info_span!("backward").in_scope(|| ());
//!     tracing::info!(counter.loss = 1.0 / f64::from(batch + 1));
//! }
//! # Ok::<(), kernspan::Error>(())
//! ```
//!
//! # One hallway
//!
//! capture → session → correlate → **trace** → export and report.
//!
//! - *Capture*: [`ProfilerLayer`] writes what a thread does into that thread's own bounded lane: no lock, no allocation, no
//!   formatting for a span without fields. Calls that launch GPU work go there, too, between the spans around them; what came
//!   of them, the GPU's own profiling library says.
//! - *Session*: the [`Profiler`] follows the schedule; each run of recorded steps is a window.
//! - *Correlate*: on a background thread, the records of a window become one immutable [`Trace`].
//! - *Export*: [`Chrome`], [`Perfetto`], [`TensorBoard`], [`Stacks`], [`Collected`], your own; and the [`Report`], with
//!   the GPUs' part in [`Kernels`], [`Operations`], [`MemoryPeaks`] and [`GpuSteps`].
//!
//! # What is a span here
//!
//! One enter and exit on one thread: a span made once and entered for ever has an instance for each time, and so has an
//! async span for each poll. What a span is nested in is what was open on the thread when it was entered. A span that lies
//! across a window's edge is cut there, and says so.
//!
//! # The GPU
//!
//! On a machine with an NVIDIA GPU there is nothing to set up: the driver and CUPTI are looked for when the program runs. Each
//! kernel, copy and fill ([`Work`]) belongs to the call ([`ApiCall`]) that caused it, and so to the innermost span open on that thread
//! during the call: exactly, not by comparing clocks. How that is known is said with it ([`Attribution`]). Where a framework launches
//! on threads of its own, whoever passes the work on hands the attribution over: see [`HandOver`]. The nodes of a CUDA graph belong
//! to the span that launched the graph.
//!
//! Where a framework puts off what it is asked for and does several things in one kernel, it tells of each [`Operation`] and of the batch
//! that it is done in: then [`Work::operations`] is what a kernel did, [`Work::spans`] who asked for it, and [`Operations`] a table of it.
//!
//! What is recorded is [`ProfilerBuilder::activities`]' business. Without a GPU the same program runs, and [`Profiler::gpu`], the
//! table and every export say why there is nothing of it. CUPTI is looked for in the process, in the loader's places, in
//! `$CUDA_HOME` and `/usr/local/cuda`, and in Python packages such as PyTorch's; `KERNSPAN_CUPTI` may name the file.
//!
//! A piece of work is in a window if the call that caused it is, and is waited for when the window closes, in the background. CUPTI
//! is attached when the schedule warms up, as the first time takes some 15 ms and more where many modules are loaded. It is switched
//! off when the window closes, and let go if the wait is long enough to pay for that: see [`ProfilerBuilder::detach_after`]. Both happen
//! inside `step()`, `start()` and `stop()`, between two steps: other threads that launch just then wait for some microseconds, or
//! for some milliseconds if one of them stays inside a call, as while it copies to the host.
//!
//! # Fields with a meaning
//!
//! `counter.NAME` on an event is a sample of a counter; `op.name` on a span is what it is called; `op.module`, `op.shape.ARG`,
//! `op.dtype.ARG`, `op.flops`, `op.bytes` and `op.gemm`, on spans and operations, say what was done: see [`convention`]. From these the report has
//! FLOP/s and [MFU](Average::gpu_mfu).
//!
//! # Every step
//!
//! How long each step took, and the counters in it, can be had of all steps, whatever the schedule says: [`TensorBoard`] draws them, with what
//! recorded steps know besides, and a [`StepExporter`] of your own takes them elsewhere. It costs some fifty nanoseconds a step and twenty a counter,
//! and nothing if nobody asks.
//!
//! # OpenTelemetry
//!
//! The crate `kernspan-otlp` sends recorded steps as traces, and metrics of all steps, to any collector: a training
//! appears in Jaeger and Grafana beside a company's services.
//!
//! # Frameworks
//!
//! For Candle there is the crate `kernspan-candle`: its modules, backward passes, optimizers and data as spans that say all that.
//!
//! # What it costs
//!
//! While the schedule waits, a span costs what it costs to have a layer at all, and while it records, little more than two
//! readings of the clock. Fields cost more, in every phase: a span may be made long before the window it is entered in, so its
//! fields are kept as long as it lives, and what is given as `?value` or `%value` is formatted (up to [`Value::MAX_TEXT`]). So
//! write `#[instrument(skip_all)]`, and name the fields you want.
//!
//! A kernel launch costs nothing while CUPTI is not attached. While kernels are recorded it costs 0.8 to 1.5 µs more on an H200,
//! nearly all of it CUPTI's own; `benches/README.md` has the figures.
//!
//! # Nothing lost silently
//!
//! Memory is bounded. What does not fit is counted in [`Losses`], which every export and the report show.
//!
//! # Features
//!
//! - `cuda` (default): what NVIDIA GPUs do, on Linux. It needs no CUDA to be built.
//! - `gzip` (default): compressed Chrome traces.
//! - `serde`: the report can be serialized.
//! - `tracing-opentelemetry`: spans that a layer of the crate of that name makes spans of OpenTelemetry's of are known by their ids there
//!   ([`Span::context`]). It is asked when a span is entered, and so begins the span, as it does itself by default: a parent is to be set before.

#![cfg_attr(not(test), warn(clippy::unwrap_used, clippy::expect_used))]
#![cfg_attr(
    not(all(feature = "cuda", target_os = "linux")),
    allow(dead_code, reason = "where nothing records GPUs, the part of the hallway for them is empty")
)]

mod activity;
pub mod analysis;
mod budget;
mod builder;
mod clock;
mod collector;
mod correlate;
mod delivery;
mod error;
pub mod export;
mod failure;
mod file;
pub mod framework;
mod gallop_search;
mod gpu;
mod host;
mod pipeline;
mod profiler;
mod recording;
#[cfg(all(feature = "cuda", target_os = "linux"))]
mod replay;
pub mod report;
mod schedule;
mod session;
mod steps;
mod thread;
pub mod trace;

#[cfg(all(feature = "cuda", target_os = "linux"))]
pub use self::replay::replay;
pub use self::{
    activity::Activity,
    builder::ProfilerBuilder,
    error::Error,
    export::{Chrome, Collected, Exporter, Perfetto, Stacks, TensorBoard},
    failure::Failure,
    host::ProfilerLayer,
    profiler::{Profiler, RecordGuard},
    report::Report,
    schedule::{Phase, Schedule, ScheduleError},
    trace::Trace,
};
