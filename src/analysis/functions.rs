//! Functions of the GPU's API, and what they do, by their names.

use crate::trace::ApiCall;

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
