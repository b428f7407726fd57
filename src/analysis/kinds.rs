//! What API calls and GPU work do: most of it is known by their names.

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

/// The kind of a piece of GPU work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WorkKind {
    /// A kernel that computes.
    Compute,
    /// A kernel that communicates with other GPUs.
    Communication,
    /// A copy or fill of memory.
    Memory,
}

impl WorkKind {
    /// Returns the kind of a piece of work.
    pub(crate) fn of(work: Work<'_>) -> Self {
        match work.detail() {
            Detail::Kernel(kernel) if is_communication(&kernel.name) => Self::Communication,
            Detail::Kernel(_) => Self::Compute,
            Detail::Copy(_) | Detail::Fill(_) => Self::Memory,
        }
    }
}

/// Returns whether a kernel of this name communicates with other GPUs: NCCL's do.
pub(super) fn is_communication(kernel: &str) -> bool {
    kernel.starts_with("nccl")
}

/// Whether a function waits for the GPU, as its name says.
pub(super) fn waits_for_gpu(call: ApiCall<'_>) -> bool {
    let name = call.name();
    is_synchronization(call) || is_allocation(call) || name == "cuModuleUnload" || name == "cuLibraryUnload"
}

/// Whether a function does nothing but wait for the GPU.
pub(super) fn is_synchronization(call: ApiCall<'_>) -> bool {
    call.name().ends_with("Synchronize")
}

/// Whether a function allocates or frees memory without a pool, which may wait for the GPU.
pub(super) fn is_allocation(call: ApiCall<'_>) -> bool {
    let name = call.name();
    let names = [
        "cuMemAlloc",
        "cuMemFree",
        "cuMemHost",
        "cuMemCreate",
        "cuMemMap",
        "cuMemUnmap",
        "cuMemRelease",
        "cudaMalloc",
        "cudaFree",
        "cudaHostAlloc",
        "cudaHostRegister",
        "cudaHostUnregister",
    ];
    names.iter().any(|prefix| name.starts_with(prefix)) && !name.contains("Async")
}

/// Whether a function copies memory.
pub(super) fn is_copy(call: ApiCall<'_>) -> bool {
    call.name().starts_with("cuMemcpy") || call.name().starts_with("cudaMemcpy")
}

/// Whether a function launches a kernel or a graph.
pub(super) fn is_launch(call: ApiCall<'_>) -> bool {
    let name = call.name();
    let names = ["cuLaunch", "cudaLaunch", "cuGraphLaunch", "cudaGraphLaunch"];
    names.iter().any(|prefix| name.starts_with(prefix))
}

/// Whether a function loads or unloads kernels.
pub(super) fn is_load(call: ApiCall<'_>) -> bool {
    let name = call.name();
    let names = ["cuModule", "cuLibrary", "cudaLibrary"];
    names.iter().any(|prefix| name.starts_with(prefix)) && name.contains("oad")
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
