//! What comes before the events: where the trace is from, and what was recorded how.

use super::{json::Json, kineto::Kineto};
use crate::trace::{Device, Gpu, Trace};
use std::io::Write;

/// Keys that a user's metadata may not take.
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

impl<W: Write> Kineto<'_, W> {
    pub(super) fn header(&mut self) {
        let metadata = self.trace.metadata();
        let json = &mut self.json;
        json.raw("{\"schemaVersion\":1,\n\"deviceProperties\":[");
        for (place, device) in self.trace.devices().iter().enumerate() {
            json.raw(if place == 0 { "" } else { ",\n" });
            properties(json, device);
        }
        // HolisticTraceAnalysis looks for the rank with a regular expression that wants the space.
        json.raw("],\n\"distributedInfo\":{\"backend\":\"\",\"rank\": ").number(metadata.rank);
        json.raw(",\"world_size\": ").number(metadata.world_size).raw("},\n");
        if let Gpu::Available(library) = self.trace.gpu() {
            json.raw("\"cupti_version\":").number(library.cupti_version);
            json.raw(",\n\"cuda_driver_version\":").number(library.driver_version).raw(",\n");
        }
        json.raw("\"trace_id\":").string(&trace_id(self.trace));
        json.raw(",\n\"host_name\":").string(&metadata.host);
        json.raw(",\n\"process_name\":").string(&metadata.process);
        json.raw(",\n\"kernspan_version\":").string(env!("CARGO_PKG_VERSION"));
        json.raw(",\n\"kernspan_window\":").number(self.trace.window());
        json.raw(",\n\"kernspan_losses\":{");
        for (place, (cause, count)) in self.trace.losses().causes().enumerate() {
            json.raw(if place == 0 { "" } else { "," }).string(cause).raw(":").number(count);
        }
        json.raw("},\n\"kernspan_gpu\":").string(&self.trace.gpu().to_string()).raw(",\n");
        let attributions = self.trace.attributions();
        if attributions.total() > 0 {
            json.raw("\"kernspan_attribution\":{\"direct\":").number(attributions.direct);
            json.raw(",\"handed_off\":").number(attributions.handed_off);
            json.raw(",\"unattributed\":").number(attributions.unattributed);
            if attributions.before > 0 {
                json.raw(",\"before\":").number(attributions.before);
            }
            json.raw("},\n");
        }
        for (key, value) in &metadata.user {
            if RESERVED.contains(&key.as_str()) {
                json.string(&format!("user.{key}"))
            } else {
                json.string(key)
            };
            json.raw(":").string(value).raw(",\n");
        }
        json.raw("\"displayTimeUnit\":\"ms\",\n\"baseTimeNanoseconds\":").number(self.base);
        json.raw(",\n\"traceEvents\":[\n");
    }
}

/// A device, with the names that CUDA's `cudaDeviceProp` has.
fn properties<W: Write>(json: &mut Json<W>, device: &Device) {
    json.raw("{\"id\":").number(device.id.as_u32()).raw(",\"name\":").string(&device.name);
    let (major, minor) = device.compute_capability;
    for (name, value) in [
        ("totalGlobalMem", device.memory),
        ("computeMajor", major.into()),
        ("computeMinor", minor.into()),
        ("maxThreadsPerBlock", device.threads_per_block.into()),
        ("maxThreadsPerMultiprocessor", device.threads_per_multiprocessor.into()),
        ("regsPerBlock", device.registers_per_block.into()),
        ("warpSize", device.warp_size.into()),
        ("sharedMemPerBlock", device.shared_memory_per_block.into()),
        ("numSms", device.multiprocessors.into()),
        ("regsPerMultiprocessor", device.registers_per_multiprocessor.into()),
        ("sharedMemPerBlockOptin", device.shared_memory_per_block_optin.into()),
        ("sharedMemPerMultiprocessor", device.shared_memory_per_multiprocessor.into()),
    ] {
        json.raw(",").string(name).raw(":").number(value);
    }
    json.raw("}");
}

/// Unlike that of any other window of any process.
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
