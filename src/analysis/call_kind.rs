//! The kinds of API calls: launches, and calls that wait for the GPU.

use crate::trace::{ApiCall, Detail, Direction, MemoryKind, Trace, Work};

/// The kind of an API call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum CallKind {
    /// It neither asks for work nor waits for any, such as a call that allocates memory.
    #[default]
    Other,
    /// It asks for work.
    Launching,
    /// It returns when the GPU has done some work.
    Synchronizing,
}

impl CallKind {
    /// Returns the kind of each call of a trace, in the order of [`Trace::api_calls`].
    pub(crate) fn of_calls(trace: &Trace) -> Vec<Self> {
        let mut kinds: Vec<_> = trace.api_calls().map(|call| Self::of_name(call.name())).collect();
        for work in trace.work() {
            let Some(call) = work.call() else { continue };
            let kind = &mut kinds[call.id().index()];
            if is_awaited_copy(work, call) {
                *kind = Self::Synchronizing;
            } else if *kind == Self::Other {
                *kind = Self::Launching;
            }
        }
        kinds
    }

    /// Returns the kind of a call whose work is not known, by the name of its function.
    fn of_name(name: &str) -> Self {
        let is_queued = name.ends_with("Async");
        match name {
            _ if name.contains("Synchronize") => Self::Synchronizing,
            _ if name.contains("MemcpyDtoH") && !is_queued => Self::Synchronizing,
            _ if ["Launch", "Memcpy", "Memset"].iter().any(|part| name.contains(part)) => Self::Launching,
            _ => Self::Other,
        }
    }
}

/// Returns whether a call returns only when this work of it is done: a copy from a GPU, unless it is asynchronous and
/// into pinned memory.
fn is_awaited_copy(work: Work<'_>, call: ApiCall<'_>) -> bool {
    match work.detail() {
        Detail::Copy(copy) => {
            let is_queued = call.name().ends_with("Async") && copy.to != MemoryKind::Pageable;
            copy.direction == Direction::DeviceToHost && !is_queued
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::CallKind;
    use crate::trace::{Detail, Direction, MemoryKind, sample::gpu_trace};
    use std::sync::Arc;

    #[test]
    fn functions_are_known_by_name() {
        for (name, kind) in [
            ("cuStreamSynchronize", CallKind::Synchronizing),
            ("cudaDeviceSynchronize", CallKind::Synchronizing),
            ("cuMemcpyDtoH", CallKind::Synchronizing),
            ("cuMemcpyDtoHAsync", CallKind::Launching),
            ("cuLaunchKernelEx", CallKind::Launching),
            ("cudaGraphLaunch", CallKind::Launching),
            ("cuMemsetD8Async", CallKind::Launching),
            ("cuMemAllocAsync", CallKind::Other),
            ("cuEventRecord", CallKind::Other),
        ] {
            assert_eq!(CallKind::of_name(name), kind, "{name}");
        }
    }

    #[test]
    fn copies_into_pageable_memory_are_awaited() {
        let mut trace = gpu_trace();
        let call = trace.work[0].call.unwrap().index();
        assert_eq!(CallKind::of_calls(&trace)[call], CallKind::Launching);
        let mut kind = |to, name: &str| {
            if let Detail::Copy(copy) = &mut trace.work[0].detail {
                (copy.direction, copy.to) = (Direction::DeviceToHost, to);
            }
            trace.api_calls[call].name = Arc::from(name);
            CallKind::of_calls(&trace)[call]
        };
        assert_eq!(kind(MemoryKind::Pageable, "cudaMemcpyAsync"), CallKind::Synchronizing);
        assert_eq!(kind(MemoryKind::Pinned, "cudaMemcpyAsync"), CallKind::Launching);
        assert_eq!(kind(MemoryKind::Pinned, "cudaMemcpy"), CallKind::Synchronizing);
        assert_eq!(kind(MemoryKind::Pinned, "cuNewFunctionThatCopies"), CallKind::Synchronizing);
    }
}
