//! The header of a document: the members before its events.

use super::{
    json::{Json, Object},
    times::Times,
};
use crate::trace::{Device, Gpu, Trace, Value};

/// Keys of the document itself. An entry of the user's metadata with the same key is called `user.KEY`.
const RESERVED: [&str; 17] = [
    "schemaVersion",
    "deviceProperties",
    "distributedInfo",
    "cupti_version",
    "cuda_driver_version",
    "trace_id",
    "host_name",
    "process_name",
    "kernspan_version",
    "kernspan_window",
    "kernspan_losses",
    "kernspan_gpu",
    "kernspan_attribution",
    "displayTimeUnit",
    "baseTimeNanoseconds",
    "traceEvents",
    "traceName",
];

/// Returns the header, which says where the trace is from and how it was recorded.
pub(super) fn members(trace: &Trace, times: Times) -> Json {
    let metadata = trace.metadata();
    Json::of_lines(|header| {
        header.number("schemaVersion", 1);
        header.array_of_lines("deviceProperties", |devices| {
            trace.devices().iter().for_each(|device| devices.object(|object| properties(object, device)));
        });
        header.object("distributedInfo", |info| {
            info.string("backend", "");
            // HolisticTraceAnalysis finds the rank with a regular expression that wants the space.
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
        header.number("kernspan_window", trace.window());
        header.object("kernspan_losses", |losses| {
            trace.losses().causes().for_each(|(cause, count)| losses.number(cause, count));
        });
        header.string("kernspan_gpu", &trace.gpu().to_string());
        attributions(header, trace);
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
}

/// Adds how much work was attributed in which way, if there is any.
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
