//! Who sends: the service, the process, its rank and its GPUs.

use super::attributes::{Attributes, name};
use crate::trace::{Device, Metadata};
use std::collections::BTreeMap;

/// The `Resource` message without its GPUs, which are known once something has been recorded.
#[derive(Clone, Debug)]
pub(super) struct Resource {
    encoded: Vec<u8>,
    /// Whether the user says which hardware it is.
    own_hardware: bool,
}

impl Resource {
    /// Where launchers say the rank among the processes of a host.
    const LOCAL_RANK: [&str; 4] = ["LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID"];

    pub(super) fn new(metadata: &Metadata, service: Option<&str>, user: &BTreeMap<String, String>) -> Self {
        let mut encoded = Vec::new();
        let mut attributes = Attributes::new(&mut encoded, 1);
        let Metadata { host, pid, process, rank, world_size, .. } = metadata;
        let unknown = format!("unknown_service:{process}");
        let instance = format!("{host}:{pid}");
        let version = env!("CARGO_PKG_VERSION");
        let own = [
            ("service.name", service.unwrap_or(&unknown)),
            ("service.instance.id", &instance),
            ("host.name", host),
            ("process.executable.name", process),
            ("telemetry.sdk.name", "kernspan"),
            ("telemetry.sdk.language", "rust"),
            ("telemetry.sdk.version", version),
        ];
        let said = metadata.user.iter().filter(|(name, _)| !user.contains_key(*name)).chain(user);
        let said: BTreeMap<&str, &str> = said.map(|(name, value)| (name.as_str(), value.as_str())).collect();
        for (name, value) in own.into_iter().filter(|(name, _)| !said.contains_key(name)) {
            attributes.text(name, value);
        }
        attributes.number("process.pid", *pid).number(name::RANK, *rank).number("dl.world_size", *world_size);
        let local = Self::LOCAL_RANK.iter().find_map(|name| std::env::var(name).ok()?.trim().parse::<u32>().ok());
        if let Some(local) = local {
            attributes.number("dl.local_rank", local);
        }
        for (name, value) in &said {
            attributes.text(name, value);
        }
        Self { own_hardware: said.contains_key(name::HARDWARE), encoded }
    }

    /// The message, with the GPUs that the process sees.
    pub(super) fn with(&self, devices: &[Device]) -> Vec<u8> {
        let mut encoded = self.encoded.clone();
        let mut attributes = Attributes::new(&mut encoded, 1);
        match devices {
            [] => {}
            _ if self.own_hardware => {}
            [only] => {
                attributes.text(name::HARDWARE, &only.uuid).text("hw.model", &only.name);
            }
            several => {
                attributes.texts(name::HARDWARE, several.iter().map(|device| &device.uuid));
                attributes.texts("hw.model", several.iter().map(|device| &device.name));
            }
        }
        encoded
    }
}
