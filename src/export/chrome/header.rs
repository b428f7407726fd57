//! The header of a document: the members before its events.

use super::{
    counters,
    flavor::{Flavor, Options, Times},
    samples,
};
use crate::{
    analysis::{Analysis, Finding},
    export::json::{Json, Object},
    trace::{Callsite, Device, Gpu, Trace, Value},
};
use std::time::Duration;

/// Keys of the document itself. An entry of the user's metadata with the same key is called `user.KEY`.
const RESERVED: [&str; 30] = [
    "schemaVersion",
    "deviceProperties",
    "distributedInfo",
    "cupti_version",
    "cuda_driver_version",
    "trace_id",
    "host_name",
    "process_name",
    "kernspan_version",
    "kernspan_run",
    "kernspan_window",
    "kernspan_start",
    "kernspan_end",
    "kernspan_filtered",
    "kernspan_library",
    "kernspan_torch",
    "kernspan_callsites",
    "kernspan_findings",
    "kernspan_unrecorded_step",
    "kernspan_losses",
    "kernspan_gpu",
    "kernspan_attribution",
    "kernspan_sampling",
    "kernspan_counters",
    "stackFrames",
    "samples",
    "displayTimeUnit",
    "baseTimeNanoseconds",
    "traceEvents",
    "traceName",
];

/// Returns the header, which says where the trace comes from and how it was recorded.
pub(super) fn members(window: &Analysis<'_>, options: Options, times: Times) -> Json {
    let (trace, metadata) = (window.trace(), window.metadata());
    let is_torch = trace.torch().is_some() && options.flavor == Flavor::Kineto;
    Json::of_lines(|header| {
        header.number("schemaVersion", 1);
        header.array_of_lines("deviceProperties", |devices| {
            trace.devices().iter().for_each(|device| devices.object(|object| properties(object, device)));
        });
        header.object("distributedInfo", |info| {
            info.string("backend", "");
            // HolisticTraceAnalysis finds the rank with a regular expression that requires the space.
            info.spaced_number("rank", metadata.rank);
            info.spaced_number("world_size", metadata.world_size);
        });
        if let Gpu::Available(library) = trace.gpu() {
            header.number("cupti_version", library.cupti_version);
            header.number("cuda_driver_version", library.driver_version);
        }
        header.string("trace_id", &trace_id(trace));
        header.string("host_name", &metadata.host);
        header.string("process_name", &metadata.process);
        header.string("kernspan_version", env!("CARGO_PKG_VERSION"));
        if is_torch {
            // Spans, steps and rows are as PyTorch writes them.
            header.bool("kernspan_torch", true);
        }
        metadata.run.iter().for_each(|run| header.string("kernspan_run", run));
        header.number("kernspan_window", trace.window());
        header.number("kernspan_start", trace.start().as_unix_nanos());
        header.number("kernspan_end", trace.end().as_unix_nanos());
        if let Some(level) = trace.filtered() {
            header.string("kernspan_filtered", &level.to_string());
        }
        if let Some(time) = trace.unrecorded_step() {
            header.number("kernspan_unrecorded_step", time.as_nanos() as u64);
        }
        header.object("kernspan_losses", |losses| {
            trace.losses().causes().for_each(|(cause, count)| losses.number(cause, count));
        });
        header.string("kernspan_gpu", &trace.gpu().to_string());
        if let Gpu::Available(library) = trace.gpu() {
            header.object("kernspan_library", |object| {
                object.string("path", &library.path);
                library.warning.iter().for_each(|warning| object.string("warning", warning));
            });
        }
        attributions(header, trace);
        if !is_torch {
            header.array_of_lines("kernspan_callsites", |list| {
                trace.callsites().iter().for_each(|callsite| list.object(|object| place(object, callsite)));
            });
        }
        if !window.findings().is_empty() {
            header.array_of_lines("kernspan_findings", |list| {
                window.findings().iter().for_each(|found| list.object(|object| finding(object, found)));
            });
        }
        if options.flavor == Flavor::Kineto {
            samples::write(header, trace, times);
            counters::write(header, trace);
        }
        for (key, value) in &metadata.user {
            let value = Value::from(value.as_str());
            match RESERVED.contains(&key.as_str()) {
                true => header.entry(&format!("user.{key}"), &value),
                false => header.entry(key, &value),
            }
        }
        header.string("displayTimeUnit", "ms");
        header.number("baseTimeNanoseconds", times.base());
    })
}

/// Adds a device's properties under the names of CUDA's `cudaDeviceProp`.
fn properties(object: &mut Object<'_>, device: &Device) {
    let (major, minor) = device.compute_capability;
    object.number("id", device.id.as_u32());
    object.string("name", &device.name);
    object.number("totalGlobalMem", device.memory);
    object.number("computeMajor", major);
    object.number("computeMinor", minor);
    object.number("maxThreadsPerBlock", device.threads_per_block);
    object.number("maxThreadsPerMultiprocessor", device.threads_per_multiprocessor);
    object.number("regsPerBlock", device.registers_per_block);
    object.number("warpSize", device.warp_size);
    object.number("sharedMemPerBlock", device.shared_memory_per_block);
    object.number("numSms", device.multiprocessors);
    object.number("regsPerMultiprocessor", device.registers_per_multiprocessor);
    object.number("sharedMemPerBlockOptin", device.shared_memory_per_block_optin);
    object.number("sharedMemPerMultiprocessor", device.shared_memory_per_multiprocessor);
    // Not in Kineto's files, but needed to know what the device can do.
    object.string("uuid", &device.uuid);
    object.number("maxBlocksPerMultiprocessor", device.blocks_per_multiprocessor);
    object.number("reservedSharedMemPerBlock", device.shared_memory_reserved);
    object.number("clockRate", device.clock_khz);
    object.number("memoryClockRate", device.memory_clock_khz);
    object.number("memoryBusWidth", device.memory_bus_bits);
}

/// Adds a callsite. Its spans give only their name and their place in the source.
fn place(object: &mut Object<'_>, callsite: &Callsite) {
    object.string("name", callsite.name());
    object.string("target", callsite.target());
    object.string("level", &callsite.level().to_string());
    callsite.location().iter().for_each(|location| object.string("src", location));
}

/// Adds a finding. Times are in nanoseconds per step.
fn finding(object: &mut Object<'_>, finding: &Finding) {
    let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    object.string("kind", finding.kind.as_str());
    object.string("title", &finding.title);
    object.string("spans", &finding.path.join(" > "));
    finding.location.iter().for_each(|location| object.string("src", location));
    object.number("saving", nanos(finding.saving.likely));
    object.number("step", nanos(finding.step));
    object.string("advice", finding.advice());
    if finding.remedies.len() > 1 {
        object.array("remedies", |remedies| {
            for remedy in &finding.remedies {
                remedies.object(|object| {
                    object.string("change", &remedy.change);
                    object.number("saving", nanos(remedy.saving.likely));
                });
            }
        });
    }
}

/// Adds how much work was attributed in which way, if any.
fn attributions(header: &mut Object<'_>, trace: &Trace) {
    let attributions = trace.attributions();
    if attributions.total() == 0 {
        return;
    }
    header.object("kernspan_attribution", |object| {
        object.number("direct", attributions.direct);
        object.number("handed_off", attributions.handed_off);
        object.number("unattributed", attributions.unattributed);
        if attributions.before > 0 {
            object.number("before", attributions.before);
        }
    });
}

/// Returns an id that differs from that of any other window of any process.
fn trace_id(trace: &Trace) -> String {
    use std::hash::{DefaultHasher, Hash, Hasher};
    let metadata = trace.metadata();
    let half = |salt: u8| {
        let mut hasher = DefaultHasher::new();
        (salt, &metadata.host, metadata.pid, metadata.rank, trace.window(), trace.start()).hash(&mut hasher);
        hasher.finish()
    };
    format!("{:016X}{:016X}", half(0), half(1))
}
