//! The categories of slices, as Kineto names them.

use crate::trace::{Api, ApiCall, Callsite, Detail, Trace, Work};

/// The category of spans.
pub(super) const SPAN: &str = "cpu_op";
/// The category of Python functions and of modules.
pub(super) const PYTHON: &str = "python_function";
/// The category of steps.
pub(super) const STEP: &str = "user_annotation";
/// The category of the ranges of steps and spans on a stream.
pub(super) const GPU_RANGE: &str = "gpu_user_annotation";
/// The category of calls that were entered several times, each as a whole.
pub(super) const CALL: &str = "call";
/// The category of waits for a GPU.
pub(super) const WAIT: &str = "cuda_sync";
/// The category of time taken by the profiling library.
pub(super) const OVERHEAD: &str = "overhead";

/// Returns the category of the spans of a callsite. In a PyTorch trace, they keep the category they were read with.
pub(super) fn of_span(trace: &Trace, callsite: &Callsite) -> &'static str {
    match (trace.torch(), callsite.target()) {
        (Some(_), "user_annotation") => STEP,
        (Some(_), PYTHON) => PYTHON,
        _ => SPAN,
    }
}

/// Returns the category of a call.
pub(super) fn of_call(call: ApiCall<'_>) -> &'static str {
    match call.api() {
        Api::CudaDriver => "cuda_driver",
        Api::CudaRuntime => "cuda_runtime",
    }
}

/// Returns the category of GPU work.
pub(super) fn of_work(work: Work<'_>) -> &'static str {
    match work.detail() {
        Detail::Kernel(_) => "kernel",
        Detail::Copy(_) => "gpu_memcpy",
        Detail::Fill(_) => "gpu_memset",
    }
}
