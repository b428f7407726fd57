use super::{Attribution, BatchId, Span, SpanId, ThreadId, Timestamp, Trace, Track, TrackId};
use std::{sync::Arc, time::Duration};

/// Names an [`ApiCall`] of one trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ApiCallId(u32);

impl ApiCallId {
    pub(crate) fn new(index: usize) -> Self {
        Self(u32::try_from(index).unwrap_or(u32::MAX))
    }

    /// The place of the call in [`Trace::api_calls`](crate::Trace::api_calls).
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// Which API a function belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Api {
    /// CUDA's driver API: `cuLaunchKernel`.
    CudaDriver,
    /// CUDA's runtime API: `cudaLaunchKernel`.
    CudaRuntime,
}

impl Api {
    /// CUPTI's number of the runtime API.
    pub(crate) const CUDA_RUNTIME: u8 = 2;
}

#[derive(Clone, Debug)]
pub(crate) struct ApiCallData {
    pub(crate) api: Api,
    pub(crate) function: u32,
    pub(crate) name: Arc<str>,
    pub(crate) track: TrackId,
    pub(crate) start: Timestamp,
    pub(crate) end: Timestamp,
    pub(crate) correlation: u32,
    pub(crate) result: u32,
    pub(crate) attribution: Attribution,
    pub(crate) span: Option<SpanId>,
    pub(crate) batch: Option<BatchId>,
}

/// A call of the GPU's API on the host: a launch, a copy, an allocation, a synchronisation.
///
/// It lies inside the innermost span of its thread.
#[derive(Clone, Copy, Debug)]
pub struct ApiCall<'a> {
    trace: &'a Trace,
    index: usize,
}

impl<'a> ApiCall<'a> {
    pub(super) fn new(trace: &'a Trace, index: usize) -> Self {
        Self { trace, index }
    }

    fn data(self) -> &'a ApiCallData {
        &self.trace.api_calls[self.index]
    }

    /// The id, unique in the trace.
    pub fn id(self) -> ApiCallId {
        ApiCallId::new(self.index)
    }

    /// Which API.
    pub fn api(self) -> Api {
        self.data().api
    }

    /// The function's name, as `cuLaunchKernel`, without the version that the driver's own names end in.
    pub fn name(self) -> &'a str {
        &self.data().name
    }

    /// The number that CUPTI has for the function.
    pub fn function(self) -> u32 {
        self.data().function
    }

    /// The thread that called.
    pub fn thread(self) -> ThreadId {
        self.track().thread()
    }

    /// The track of the thread that called.
    pub fn track(self) -> &'a Track {
        self.trace.track(self.data().track)
    }

    /// The id of the track of the thread that called.
    pub fn track_id(self) -> TrackId {
        self.data().track
    }

    /// When it was called.
    pub fn start(self) -> Timestamp {
        self.data().start
    }

    /// When it returned.
    pub fn end(self) -> Timestamp {
        self.data().end
    }

    /// From start to end.
    pub fn duration(self) -> Duration {
        self.end().since(self.start())
    }

    /// The number that the driver gave the call and everything that came of it.
    pub fn correlation(self) -> u32 {
        self.data().correlation
    }

    /// What it returned, 0 for success.
    pub fn result(self) -> u32 {
        self.data().result
    }

    /// How it is known which span it belongs to.
    pub fn attribution(self) -> Attribution {
        self.data().attribution
    }

    pub(crate) fn batch_id(self) -> Option<BatchId> {
        self.data().batch
    }

    /// The span it belongs to. One that was handed over is on another thread.
    pub fn span(self) -> Option<Span<'a>> {
        self.data().span.map(|id| self.trace.span(id))
    }
}
