use crate::attributes::{Attributes, name};
use kernspan::trace::{Device, Metadata};
use std::collections::BTreeMap;

/// The attributes of the sender: service, process, rank and GPUs. The GPUs are known once a window has been recorded.
#[derive(Clone, Debug)]
pub(crate) struct Resource {
    encoded: Vec<u8>,
    /// Whether the user's attributes have `hw.id`.
    has_hardware: bool,
}

impl Resource {
    /// The environment variables in which launchers say the rank among the processes of a host.
    const LOCAL_RANK_VARIABLES: [&str; 4] =
        ["LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID"];

    /// Encodes the attributes. Those of `user` and of the metadata replace others of the same name.
    pub(crate) fn new(metadata: &Metadata, service: Option<&str>, user: &BTreeMap<String, String>) -> Self {
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
        let custom = metadata.user.iter().filter(|(name, _)| !user.contains_key(*name)).chain(user);
        let custom: BTreeMap<&str, &str> = custom.map(|(name, value)| (name.as_str(), value.as_str())).collect();
        for (name, value) in own.into_iter().filter(|(name, _)| !custom.contains_key(name)) {
            attributes.text(name, value);
        }
        attributes.number("process.pid", *pid).number(name::RANK, *rank).number("dl.world_size", *world_size);
        let local =
            Self::LOCAL_RANK_VARIABLES.iter().find_map(|name| std::env::var(name).ok()?.trim().parse::<u32>().ok());
        if let Some(local) = local {
            attributes.number("dl.local_rank", local);
        }
        for (name, value) in &custom {
            attributes.text(name, value);
        }
        Self { has_hardware: custom.contains_key(name::HARDWARE), encoded }
    }

    /// Returns the encoded `Resource` message, with the GPUs that the process sees.
    pub(crate) fn with_devices(&self, devices: &[Device]) -> Vec<u8> {
        let mut encoded = self.encoded.clone();
        let mut attributes = Attributes::new(&mut encoded, 1);
        match devices {
            [] => {}
            _ if self.has_hardware => {}
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
