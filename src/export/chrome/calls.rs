//! Calls to the GPU's API, under the names of either of CUDA's APIs, and the arrows that begin at them.

use super::{
    event::Head,
    fields,
    flavor::{Flavor, Options},
    output::Output,
    torch::Collectives,
};
use crate::{
    export::{category, flows::LaunchFlows, json::Members},
    trace::{Api, ApiCall, NameKey},
};
use rustc_hash::FxHashMap;
use std::io;

/// Writes all calls. A call that launches only a collective is enclosed in the op of that collective.
pub(super) fn write(out: &mut Output<'_>, flows: &LaunchFlows, collectives: &Collectives) -> io::Result<()> {
    let rows = out.rows();
    let mut texts: FxHashMap<_, CallText> = FxHashMap::default();
    for call in out.trace.api_calls() {
        let function = (NameKey::of(call.name()), call.function(), call.api());
        let text = texts.entry(function).or_insert_with(|| CallText::new(call, out.options));
        let row = &rows[call.track_id().index()];
        let collective = collectives.get(call.id());
        if let Some(collective) = collective {
            let op = out.events.slice("cpu_op", collective.name).on_row(row).during(call.start(), call.end());
            op.args(|args| args.number("External id", collective.id))?;
        }
        let owner = collective.map(|collective| collective.id).or(out.external_id(call.span()));
        let mut digits = itoa::Buffer::new();
        let correlation = digits.format(call.correlation());
        out.events.event(&text.head).on_row(row).during(call.start(), call.end()).args(|args| {
            fields::write_external_id(args, owner);
            args.members(&text.function);
            args.digits("correlation", correlation);
            if call.result() != 0 {
                args.number("result", call.result());
            }
            fields::write_attribution(args, call.attribution(), call.span().is_some());
            if let Some(batch) = call.batch_id() {
                args.number("batch", batch.index() + 1);
            }
        })?;
        if !flows.of_call(call.id()).is_empty() {
            out.events.arrow_from(LaunchFlows::CATEGORY, correlation, row)?;
        }
    }
    Ok(())
}

/// The text shared by all calls of a function.
#[derive(Debug)]
struct CallText {
    head: Head,
    function: Members,
}

impl CallText {
    fn new(call: ApiCall<'_>, options: Options) -> Self {
        let is_driver = call.api() == Api::CudaDriver;
        let runtime_name = if options.runtime_names && is_driver { runtime_name(call.name()) } else { None };
        let category = match options.flavor {
            Flavor::TorchTensorBoard => "runtime",
            Flavor::Kineto if runtime_name.is_some() => "cuda_runtime",
            Flavor::Kineto => category::of_call(call),
        };
        Self {
            head: Head::slice(category, runtime_name.unwrap_or(call.name())),
            function: Members::new(|args| {
                if runtime_name.is_some() {
                    args.string("driver name", call.name());
                }
                args.number("cbid", call.function());
            }),
        }
    }
}

/// Returns the function of the runtime API that does the same as a function of the driver API, if there is one.
fn runtime_name(driver: &str) -> Option<&'static str> {
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
