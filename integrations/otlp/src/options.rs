//! The options that the user can set in the program.

use crate::endpoint::{Headers, Protocol, Url};
use std::{collections::BTreeMap, path::PathBuf, time::Duration};

/// The settings made by the program. A setting that is `None` comes from the environment, or else is the default.
#[derive(Clone, Debug, Default)]
pub(crate) struct Options {
    /// The address of the collector, for both signals.
    pub(crate) endpoint: Option<Url>,
    pub(crate) protocol: Option<Protocol>,
    /// Added to those of the environment, replacing those of the same name.
    pub(crate) headers: Headers,
    pub(crate) gzip: Option<bool>,
    pub(crate) answer_within: Option<Duration>,
    pub(crate) certificate: Option<PathBuf>,
    /// Certificate and key.
    pub(crate) client_certificate: Option<(PathBuf, PathBuf)>,
    pub(crate) service: Option<String>,
    /// Added to the attributes of the environment, replacing those of the same name.
    pub(crate) resource: BTreeMap<String, String>,
    pub(crate) parent: Option<String>,
    pub(crate) traces: Option<bool>,
    pub(crate) metrics: Option<bool>,
    pub(crate) metrics_every: Option<Duration>,
    // OpenTelemetry has no variables for the rest.
    pub(crate) gpu: Option<GpuSpans>,
    pub(crate) kernels_per_trace: Option<usize>,
    pub(crate) samples_per_step: Option<u64>,
    pub(crate) buffer_bytes: Option<usize>,
    pub(crate) finish_within: Option<Duration>,
}

/// How much of the GPUs' work appears in the traces.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum GpuSpans {
    /// Attributes of each span: how many kernels and copies it launched, how long the GPU was busy with them, and which
    /// kernels took the longest.
    #[default]
    Aggregate,
    /// The same, plus a span for each kernel, copy and fill, as a child of the span that launched it.
    Kernels,
    /// Attributes of steps only.
    Off,
}
