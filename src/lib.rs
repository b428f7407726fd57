//! A profiler for Rust training loops: it shows where the time goes and what the GPU did in each span.
//!
//! Add the [layer](ProfilerLayer) to a `tracing` subscriber, put `#[instrument]` on the functions that matter, and call
//! [`step`](Profiler::step) once per iteration. A [`Schedule`] like PyTorch's decides which steps are recorded. Each
//! recorded window becomes a [`Trace`]. [Exporters](export) pass it to Perfetto, TensorBoard, flame graphs,
//! OpenTelemetry or your own code. [`finish_and_print`](Profiler::finish_and_print) prints a [`Report`] as a table and
//! returns every failure.
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
//! // A global filter would hide spans from the profiler, too, so filter only the layer that prints.
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
//! 1. Capture: the layer and the GPU library's callbacks write records into the calling thread's bounded lane.
//! 2. Session: the [`Profiler`] follows the schedule and opens and closes windows.
//! 3. Correlate: on a background thread, the records of a window become one immutable [`trace`].
//! 4. [`analysis`] answers questions about a trace: how busy was each GPU in each step, and what did the step wait for?
//! 5. [`report`] aggregates the traces of a run: averages, kernels, operations, steps, memory peaks.
//! 6. [`export`] writes and sends them; [`framework`] is for integrations that launch work on their own threads.
//!
//! # Spans
//!
//! A span is one enter and exit on one thread. A span that is created once and entered repeatedly has one instance per
//! entry, and an async span has one per poll; the polls of a future are [one call](trace::Span::previous). A span that
//! crosses the edge of a window is cut there and [marked as such](trace::Cut).
//!
//! The [parent](trace::Span::parent) of a span is the span that was open on its thread when it was entered. Self times,
//! GPU time and the tracks in viewers follow threads. Its [caller](trace::Span::caller) is the span it works for: the
//! one given as `parent: other` when it was created, or else its parent. A span without either, such as a spawned task,
//! belongs to the span that was current when it was created. The report's stacks and flame graphs follow callers.
//!
//! # The GPU
//!
//! NVIDIA GPUs are recorded on Linux without any setup: the driver and CUPTI are located at run time (`KERNSPAN_CUPTI`
//! can name the file). Each kernel, copy and fill ([`trace::Work`]) belongs to the call that caused it
//! ([`trace::ApiCall`]), and the call belongs to the innermost span open on its thread; no clocks are compared.
//! [`trace::Attribution`] says how this is known. For work that is passed between threads, see [`framework::HandOver`].
//! [`ProfilerBuilder::activities`] selects what is recorded.
//!
//! Without a GPU the same program runs, and [`Profiler::gpu`], the table and every export say why no GPU was recorded.
//!
//! Attaching CUPTI takes a few milliseconds, so it happens in warm-up steps; waits that are long enough detach it: see
//! [`ProfilerBuilder::detach_after`]. Both happen inside `step()`. Other threads that launch work at that moment wait a
//! few microseconds, or milliseconds if one of them is in the middle of a long call.
//!
//! # Fields with a meaning
//!
//! `counter.NAME` on an event is a sample of a counter. On spans and operations, `op.name`, `op.module`,
//! `op.shape.ARG`, `op.dtype.ARG`, `op.flops`, `op.bytes` and `op.gemm` describe the work: see [`trace::convention`].
//! The report computes FLOP/s and [MFU](report::Average::gpu_mfu) from them. The duration and the counters of every
//! step, recorded or not, are available through [`export::StepExporter`].
//!
//! # Cost
//!
//! While the schedule waits, a span costs what any layer costs, and a kernel launch costs nothing once CUPTI is
//! detached. While it records, a span costs two clock readings and two records. Fields cost more, in every phase: they
//! are kept as long as the span lives, and `?value` and `%value` are formatted. So write `#[instrument(skip_all)]` and
//! name the fields you want. Figures are in `benches/README.md`. Once the profiler has finished, levels that no other
//! layer wants are turned off.
//!
//! # Losses
//!
//! Memory is bounded: the process takes at most a quarter more than the
//! [`memory_limit_bytes`](ProfilerBuilder::memory_limit_bytes), not counting the threads' lanes and what exporters
//! hold. What does not fit is counted by cause in [`trace::Losses`], which every export and the report show.
//!
//! # Frameworks and collectors
//!
//! - `kernspan-candle`: Candle's modules, backward passes, optimizers and data loading as spans, with shapes and
//!   FLOPs.
//! - `kernspan-burn`: attributes Burn's kernels to the spans that requested them, across its fusion and device threads.
//! - `kernspan-otlp`: traces and metrics for Jaeger, Grafana and other OpenTelemetry collectors.
//! - `kernspan-check`: checks whether a run is worse than an earlier one, for tests and CI.
//! - `kernspan-nccl`: NCCL's profiler plugin, so that kernels have their exact collectives and hangs are named.
//! - `kernspan-cli`: the program `kernspan`, which prints tables from trace files and converts them.
//!
//! # Features
//!
//! - `clap`: overrides such as `--profiling.active 2` for programs that use clap; includes `config`.
//! - `config`: settings from files and environment variables ([`Profiler`]`::from_env`).
//! - `cuda` (default): records NVIDIA GPUs, on Linux. Building it does not require CUDA.
//! - `cpu-time`: the CPU time of spans and steps, context switches and page faults, on Unix
//!   ([`ProfilerBuilder::cpu_time`]).
//! - `gzip` (default): compressed Chrome traces.
//! - `control`: a running program can be asked for its state and for windows by other processes of the same user, on
//!   Unix ([`ProfilerBuilder`]`::listen`).
//! - `nvtx`: spans can be NVTX ranges, for Nsight Systems and Nsight Compute, on Unix ([`ProfilerBuilder`]`::nvtx`).
//! - `read`: reads traces back from files written by kernspan or by PyTorch's profiler.
//! - `sampling`: samples the call stacks of all threads, on Linux ([`ProfilerBuilder::samples`]).
//! - `serde`: makes the report serializable.
//! - `serving`: counts and times every request of a service, recorded or not ([`serving`]).
//! - `signals`: saves a recording when a signal or a call to `exit` ends the process, on Unix
//!   ([`ProfilerBuilder`]`::save_on_exit`).
//! - `vitals`: CPU, memory, disks, networks, temperatures, GPUs and energy over the whole run, on Linux
//!   ([`ProfilerBuilder::vitals`]).
//! - `tracing-opentelemetry`: spans carry the ids that a layer of that crate gives them ([`trace::Span::context`]). The
//!   layer is asked when a span is entered, which starts the span there, so set a parent before that.

#![cfg_attr(not(test), warn(clippy::unwrap_used, clippy::expect_used))]
#![cfg_attr(
    not(all(feature = "cuda", target_os = "linux")),
    allow(dead_code, reason = "without GPU support, the code that handles GPU records is unused")
)]

mod activity;
pub mod analysis;
mod budget;
mod builder;
mod clock;
mod collector;
#[cfg(feature = "config")]
pub mod config;
#[cfg(feature = "config")]
mod config_error;
pub mod control;
mod correlate;
mod cpu_time;
mod delivery;
mod disk_limit;
mod ending;
mod error;
#[cfg(all(feature = "signals", unix))]
mod exit;
pub mod export;
mod failure;
mod file;
mod flight;
pub mod framework;
mod gallop_search;
mod gpu;
mod heap;
mod hint;
mod host;
mod kernel_names;
mod memory;
mod pipeline;
mod profiler;
mod progress;
#[cfg(feature = "read")]
pub mod read;
mod recent_readings;
mod recording;
#[cfg(all(feature = "cuda", target_os = "linux"))]
mod replay;
pub mod report;
mod request;
mod sampling;
mod schedule;
#[cfg(feature = "serving")]
pub mod serving;
mod session;
mod span_table;
mod step_sample;
mod steps;
mod thread;
pub mod trace;
pub mod units;
pub mod vitals;

#[cfg(feature = "read")]
pub use self::read::read;
#[cfg(all(feature = "cuda", target_os = "linux"))]
pub use self::replay::replay;
pub use self::{
    activity::Activity,
    builder::ProfilerBuilder,
    cpu_time::CpuTime,
    error::Error,
    export::{Chrome, Collected, Exporter, Html, Perfetto, Stacks, TensorBoard},
    failure::Failure,
    flight::{FlightLength, FlightRecorder},
    gpu::Counters,
    heap::Allocator,
    host::ProfilerLayer,
    memory::MemorySnapshots,
    profiler::{Profiler, RecordGuard},
    report::Report,
    sampling::Samples,
    schedule::{Phase, Schedule, ScheduleError},
    trace::Trace,
    vitals::Vitals,
};

/// The README's examples, which must compile.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
