//! Calls to the GPU's API on the host.

use super::{Attribution, BatchId, Span, SpanId, ThreadId, Timestamp, Trace, Track, TrackId, id::define_id};
use std::{sync::Arc, time::Duration};

define_id! {
    /// Names an [`ApiCall`] of one trace.
    pub struct ApiCallId;

    /// The index of the call in [`Trace::api_calls`](crate::Trace::api_calls).
    pub fn index;
}

/// The API that a function belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Api {
    /// CUDA's driver API, with functions such as `cuLaunchKernel`.
    CudaDriver,
    /// CUDA's runtime API, with functions such as `cudaLaunchKernel`.
    CudaRuntime,
}

impl Api {
    /// CUPTI's number for the runtime API.
    pub(crate) const CUDA_RUNTIME: u8 = 2;
}

/// The stored data of an [`ApiCall`].
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

/// A call to the GPU's API on the host: a launch, a copy, an allocation or a synchronisation.
///
/// In time, it lies within the innermost span open on the calling thread.
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

    /// The API that the function belongs to.
    pub fn api(self) -> Api {
        self.data().api
    }

    /// The name of the function, such as `cuLaunchKernel`, without the version suffix of the driver's own names.
    pub fn name(self) -> &'a str {
        &self.data().name
    }

    /// CUPTI's number for the function.
    pub fn function(self) -> u32 {
        self.data().function
    }

    /// The calling thread.
    pub fn thread(self) -> ThreadId {
        self.track().thread()
    }

    /// The track of the calling thread.
    pub fn track(self) -> &'a Track {
        self.trace.track(self.data().track)
    }

    /// The id of the calling thread's track.
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

    /// The time from start to end.
    pub fn duration(self) -> Duration {
        self.end().since(self.start())
    }

    /// The correlation id: the number that the driver gave the call and all work that the call caused.
    pub fn correlation(self) -> u32 {
        self.data().correlation
    }

    /// The result code it returned, 0 for success.
    pub fn result(self) -> u32 {
        self.data().result
    }

    /// How its span was found.
    pub fn attribution(self) -> Attribution {
        self.data().attribution
    }

    pub(crate) fn batch_id(self) -> Option<BatchId> {
        self.data().batch
    }

    /// The span it belongs to. If the call was handed over, the span may be on another thread.
    pub fn span(self) -> Option<Span<'a>> {
        self.data().span.map(|id| self.trace.span(id))
    }
}

impl Trace {
    /// The API call with this id.
    pub(crate) fn api_call(&self, id: ApiCallId) -> ApiCall<'_> {
        ApiCall::new(self, id.index())
    }
}
