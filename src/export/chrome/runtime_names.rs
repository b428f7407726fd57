//! Names of CUDA's runtime API for functions of its driver API.

/// Returns the function of the runtime API that does the same as a function of the driver API, if there is one.
pub(super) fn runtime_name(driver: &str) -> Option<&'static str> {
    let queued = driver.ends_with("Async");
    Some(match driver {
        "cuLaunchKernel" => "cudaLaunchKernel",
        "cuLaunchKernelEx" => "cudaLaunchKernelExC",
        "cuLaunchCooperativeKernel" => "cudaLaunchCooperativeKernel",
        "cuLaunchHostFunc" => "cudaLaunchHostFunc",
        "cuGraphLaunch" => "cudaGraphLaunch",
        "cuMemAlloc" => "cudaMalloc",
        "cuMemAllocAsync" => "cudaMallocAsync",
        "cuMemAllocFromPoolAsync" => "cudaMallocFromPoolAsync",
        "cuMemAllocHost" => "cudaMallocHost",
        "cuMemAllocManaged" => "cudaMallocManaged",
        "cuMemHostAlloc" => "cudaHostAlloc",
        "cuMemFree" => "cudaFree",
        "cuMemFreeAsync" => "cudaFreeAsync",
        "cuMemFreeHost" => "cudaFreeHost",
        "cuCtxSynchronize" => "cudaDeviceSynchronize",
        "cuStreamCreate" => "cudaStreamCreateWithFlags",
        "cuStreamDestroy" => "cudaStreamDestroy",
        "cuStreamQuery" => "cudaStreamQuery",
        "cuStreamSynchronize" => "cudaStreamSynchronize",
        "cuStreamWaitEvent" => "cudaStreamWaitEvent",
        "cuEventCreate" => "cudaEventCreateWithFlags",
        "cuEventDestroy" => "cudaEventDestroy",
        "cuEventElapsedTime" => "cudaEventElapsedTime",
        "cuEventQuery" => "cudaEventQuery",
        "cuEventRecord" => "cudaEventRecord",
        "cuEventSynchronize" => "cudaEventSynchronize",
        // In the runtime API, the direction is an argument.
        _ if driver.starts_with("cuMemcpy") && queued => "cudaMemcpyAsync",
        _ if driver.starts_with("cuMemcpy") => "cudaMemcpy",
        _ if driver.starts_with("cuMemset") && queued => "cudaMemsetAsync",
        _ if driver.starts_with("cuMemset") => "cudaMemset",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::runtime_name;

    #[test]
    fn functions_of_both_apis_have_one_name() {
        for (driver, runtime) in [
            ("cuLaunchKernel", Some("cudaLaunchKernel")),
            ("cuLaunchKernelEx", Some("cudaLaunchKernelExC")),
            ("cuMemcpyHtoDAsync", Some("cudaMemcpyAsync")),
            ("cuMemcpyDtoH", Some("cudaMemcpy")),
            ("cuMemsetD8Async", Some("cudaMemsetAsync")),
            ("cuMemsetD32", Some("cudaMemset")),
            ("cuMemAllocAsync", Some("cudaMallocAsync")),
            ("cuStreamSynchronize", Some("cudaStreamSynchronize")),
            ("cuModuleLoadData", None),
            ("cuCtxGetCurrent", None),
        ] {
            assert_eq!(runtime_name(driver), runtime, "{driver}");
        }
    }
}
