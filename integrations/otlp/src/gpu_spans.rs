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
