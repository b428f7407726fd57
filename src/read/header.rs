//! The header of a document: the process, the devices, the GPU's library and the losses.

use super::raw::Raw;
use crate::trace::{CallsiteData, Device, DeviceId, Gpu, GpuLibrary, GpuProblem, Level, Losses, Metadata};
use std::{borrow::Cow, collections::BTreeMap, time::Duration};

/// The members of a document that are not its events.
#[derive(Debug, Default)]
pub(super) struct Header {
    /// The values, as they are written.
    members: BTreeMap<String, String>,
    is_ours: bool,
    is_torch: bool,
}

impl Header {
    /// Members that are not user metadata.
    const KNOWN: [&'static str; 12] = [
        "schemaVersion",
        "deviceProperties",
        "distributedInfo",
        "cupti_version",
        "cuda_driver_version",
        "trace_id",
        "host_name",
        "process_name",
        "displayTimeUnit",
        "baseTimeNanoseconds",
        "traceEvents",
        "traceName",
    ];

    /// The member that says how stacks were sampled.
    pub(super) const SAMPLING: &'static str = "kernspan_sampling";
    /// Members that are known if stacks were sampled. Before kernspan did that, users could have these names.
    const KNOWN_IF_SAMPLED: [&'static str; 2] = ["stackFrames", "samples"];

    pub(super) fn add(&mut self, key: String, value: String) {
        self.is_ours |= key == "kernspan_version";
        self.is_torch |= key == "kernspan_torch" && Raw(&value).bool() == Some(true);
        self.members.insert(key, value);
    }

    pub(super) fn get(&self, key: &str) -> Raw<'_> {
        self.members.get(key).map(|value| Raw(value)).unwrap_or_default()
    }

    fn text(&self, key: &str) -> Option<String> {
        self.get(key).text().map(Cow::into_owned)
    }

    /// Whether kernspan wrote the document.
    pub(super) fn is_ours(&self) -> bool {
        self.is_ours
    }

    /// Whether the trace is from PyTorch, in its own file or converted by kernspan.
    pub(super) fn is_torch(&self) -> bool {
        !self.is_ours || self.is_torch
    }

    /// Whether it is a PyTorch trace converted by kernspan.
    pub(super) fn is_converted(&self) -> bool {
        self.is_ours && self.is_torch
    }

    /// The moment that times count from.
    pub(super) fn base(&self) -> u64 {
        self.get("baseTimeNanoseconds").u64().unwrap_or(0)
    }

    /// The number of the window.
    pub(super) fn window(&self) -> u32 {
        self.get("kernspan_window").u32().unwrap_or(0)
    }

    /// When the window opened and closed, in nanoseconds since 1970.
    pub(super) fn extent(&self) -> Option<(u64, u64)> {
        Some((self.get("kernspan_start").u64()?, self.get("kernspan_end").u64()?))
    }

    pub(super) fn unrecorded_step(&self) -> Option<Duration> {
        self.get("kernspan_unrecorded_step").u64().map(Duration::from_nanos)
    }

    pub(super) fn filtered(&self) -> Option<Level> {
        self.get("kernspan_filtered").text().and_then(|text| level(&text))
    }

    pub(super) fn losses(&self) -> Losses {
        let mut losses = Losses::default();
        for (cause, count) in object(self.get("kernspan_losses")) {
            if let (Some(loss), Some(count)) = (losses.cause_mut(&cause), count.u64()) {
                *loss = count;
            }
        }
        losses
    }

    /// The process: `pid` and `name` are what the rows of the document say about it.
    pub(super) fn metadata(&self, pid: Option<u32>, name: Option<String>) -> Metadata {
        let distributed = object(self.get("distributedInfo"));
        let number = |key: &str| distributed.get(key).and_then(|value| value.u32());
        let is_sampled = self.members.contains_key(Self::SAMPLING);
        let is_user = |key: &str| {
            let is_known = Self::KNOWN.contains(&key) || (is_sampled && Self::KNOWN_IF_SAMPLED.contains(&key));
            !is_known && !key.starts_with("kernspan_")
        };
        let user = self.members.iter().filter(|(key, _)| is_user(key)).map(|(key, value)| {
            let value = Raw(value).text().map_or_else(|| value.clone(), Cow::into_owned);
            (key.strip_prefix("user.").unwrap_or(key).to_owned(), value)
        });
        Metadata {
            host: self.text("host_name").unwrap_or_default(),
            pid: pid.unwrap_or(0),
            process: self.text("process_name").or(name).unwrap_or_default(),
            rank: number("rank").unwrap_or(0),
            world_size: number("world_size").unwrap_or(1).max(1),
            run: self.text("kernspan_run"),
            user: user.collect(),
        }
    }

    pub(super) fn gpu(&self, has_work: bool) -> Gpu {
        let said = self.text("kernspan_gpu");
        if let Some(cupti_version) = self.get("cupti_version").u32() {
            let library = object(self.get("kernspan_library"));
            let text = |key: &str| library.get(key).and_then(|raw| raw.text()).map(Cow::into_owned);
            return Gpu::Available(GpuLibrary {
                path: text("path").unwrap_or_default(),
                cupti_version,
                driver_version: self.get("cuda_driver_version").u32().unwrap_or(0),
                warning: text("warning"),
            });
        }
        match said {
            Some(said) if said == Gpu::NotAsked.to_string() => Gpu::NotAsked,
            Some(said) => {
                let message = said.strip_prefix("GPU not recorded: ").unwrap_or(&said).to_owned();
                Gpu::Unavailable(GpuProblem::Said { message })
            }
            None if has_work => Gpu::Available(GpuLibrary::default()),
            None => Gpu::NotAsked,
        }
    }

    /// Fills in what the document states once per callsite: the target and the level.
    pub(super) fn complete(&self, callsites: &mut [CallsiteData]) {
        let said: BTreeMap<_, _> = self
            .get("kernspan_callsites")
            .list()
            .unwrap_or_default()
            .into_iter()
            .map(|raw| {
                let callsite = object(raw);
                let text = |key: &str| callsite.get(key).and_then(|raw| raw.text()).map(Cow::into_owned);
                ((text("name").unwrap_or_default(), text("src")), (text("target"), text("level")))
            })
            .collect();
        for callsite in callsites {
            if let Some((target, name)) = said.get(&(callsite.name.to_string(), callsite.location())) {
                callsite.target = target.clone().map_or(Cow::Borrowed(""), Cow::Owned);
                callsite.level = name.as_deref().and_then(level).unwrap_or(callsite.level);
            }
        }
    }

    pub(super) fn devices(&self) -> Vec<Device> {
        self.get("deviceProperties").list().unwrap_or_default().into_iter().map(device).collect()
    }
}

/// The members of an object; none if it is anything else.
fn object(raw: Raw<'_>) -> BTreeMap<Cow<'_, str>, Raw<'_>> {
    raw.members().unwrap_or_default().into_iter().collect()
}

fn device(raw: Raw<'_>) -> Device {
    let properties = object(raw);
    let number = |key: &str| properties.get(key).and_then(|value| value.u32()).unwrap_or(0);
    let text = |key: &str| properties.get(key).and_then(|value| value.text()).unwrap_or_default().into_owned();
    let known = |key: &str, otherwise: u32| properties.get(key).map_or(otherwise, |_| number(key));
    // Not in Kineto's files: what CUDA's programming guide says about the compute capability.
    let capability = (number("computeMajor"), number("computeMinor"));
    let blocks = match capability {
        (7, 5) | (8, 6 | 7) => 16,
        (8, 9) => 24,
        _ => 32,
    };
    let reserved = if capability.0 >= 8 { 1024 } else { 0 };
    Device {
        id: DeviceId::new(number("id")),
        name: text("name"),
        uuid: text("uuid"),
        memory: properties.get("totalGlobalMem").and_then(|value| value.u64()).unwrap_or(0),
        compute_capability: capability,
        multiprocessors: number("numSms"),
        warp_size: number("warpSize"),
        threads_per_block: number("maxThreadsPerBlock"),
        threads_per_multiprocessor: number("maxThreadsPerMultiprocessor"),
        blocks_per_multiprocessor: known("maxBlocksPerMultiprocessor", blocks),
        registers_per_block: number("regsPerBlock"),
        registers_per_multiprocessor: number("regsPerMultiprocessor"),
        shared_memory_per_block: number("sharedMemPerBlock"),
        shared_memory_per_block_optin: number("sharedMemPerBlockOptin"),
        shared_memory_per_multiprocessor: number("sharedMemPerMultiprocessor"),
        shared_memory_reserved: known("reservedSharedMemPerBlock", reserved),
        clock_khz: number("clockRate"),
        memory_clock_khz: number("memoryClockRate"),
        memory_bus_bits: number("memoryBusWidth"),
    }
}

/// Returns the level with this name.
pub(super) fn level(name: &str) -> Option<Level> {
    let levels = [Level::Trace, Level::Debug, Level::Info, Level::Warn, Level::Error];
    levels.into_iter().find(|level| level.to_string() == name)
}
