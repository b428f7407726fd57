//! Exporters, which write the trace of each recorded window to files, or pass it on.
//!
//! Add as many as you like with [`ProfilerBuilder::export`](crate::ProfilerBuilder::export). Each receives every
//! window's [`Trace`](crate::Trace), on a background thread.
//!
//! | exporter | writes | read by |
//! |---|---|---|
//! | [`Chrome`] | `*.pt.trace.json`: `torch.profiler`'s JSON | [Perfetto], HolisticTraceAnalysis, [others](Flavor) |
//! | [`Perfetto`](struct@Perfetto) | `*.pftrace`: protobuf, a fifth of the size of JSON | [Perfetto] |
//! | [`TensorBoard`] | `*.xplane.pb`: profiles; `*.tfevents.*`: scalars of every step | [TensorBoard][board], [XProf] |
//! | [`Html`] | `*.html`: one page with tables, charts, flame graphs and a timeline | a browser, without a network |
//! | [`Stacks`] | `*.folded`: folded stacks of the host and of GPUs | inferno, speedscope, flamegraph.pl |
//! | [`Firefox`] | `*.firefox.json`: sampled stacks, spans and GPU work | the [Firefox Profiler] |
//! | [`Pprof`] | `*.pb.gz`: sampled stacks with their spans | [pprof] |
//! | [`Collected`] | no file: the traces stay in memory | tests and your own code |
//!
//! [Perfetto]: https://ui.perfetto.dev
//! [XProf]: https://openxla.org/xprof
//! [Firefox Profiler]: https://profiler.firefox.com
//! [pprof]: https://github.com/google/pprof
//! [board]: https://www.tensorflow.org/tensorboard
//!
//! A file appears whole or not at all, under a unique name. It says how much was lost, and if GPUs were not recorded,
//! why not.
//!
//! # Your own exporter
//!
//! A closure is enough if nothing can fail: [`ProfilerBuilder::on_trace`](crate::ProfilerBuilder::on_trace). Otherwise
//! implement [`Exporter`], which has one required method:
//!
//! ```
//! use kernspan::{Exporter, Profiler, analysis::Analysis, export::ExportResult};
//!
//! struct SlowestSpan;
//!
//! impl Exporter for SlowestSpan {
//!     fn export(&mut self, window: &Analysis<'_>) -> ExportResult {
//!         if let Some(span) = window.spans().max_by_key(|span| span.self_time()) {
//!             eprintln!("window {}: {} took {:?}", window.window(), span.name(), span.self_time());
//!         }
//!         Ok(vec![])
//!     }
//! }
//!
//! let (layer, profiler) = Profiler::builder().export(SlowestSpan).build()?;
//! # drop(layer);
//! # profiler.finish()?;
//! # Ok::<(), kernspan::Error>(())
//! ```
//!
//! [`write_torch_snapshot`] writes the memory at one moment for PyTorch's viewer.
//! [`write_file`] writes a file that appears whole or not at all, like those of the exporters here. [`wire`] encodes
//! protobuf field by field.
//!
//! An exporter that also wants the [summary](StepSummary) of every step, recorded or not, returns a [`StepExporter`]
//! from [`Exporter::steps`].

mod category;
mod chrome;
mod collected;
mod exporter;
mod firefox;
mod flows;
mod gpu_ranges;
mod html;
mod index_ranges;
mod json;
mod perfetto;
#[cfg(feature = "gzip")]
mod pprof;
mod run_id;
#[cfg(test)]
mod samples;
mod stacks;
mod steps;
mod tensorboard;
mod time_text;
mod torch_snapshot;
pub mod wire;
mod work_text;

#[cfg(feature = "read")]
pub(crate) use self::chrome::RESERVED;
pub(crate) use self::exporter::{LatestVitals, OnTrace};
#[cfg(feature = "gzip")]
pub use self::pprof::Pprof;
#[cfg(any(feature = "config", feature = "read"))]
pub(crate) use self::time_text::Utc;
pub use self::{
    chrome::{Chrome, Flavor},
    collected::Collected,
    exporter::{ExportResult, Exporter, Run, StepExporter, StepSummary},
    firefox::Firefox,
    html::{Html, HtmlDocument, HtmlReport},
    perfetto::Perfetto,
    run_id::RunId,
    stacks::Stacks,
    tensorboard::TensorBoard,
    torch_snapshot::{write_torch_snapshot, write_torch_snapshot_of_windows},
};
pub use crate::{
    delivery::Delivery,
    file::{FileError, write_file},
    thread::mute_this_thread,
};
