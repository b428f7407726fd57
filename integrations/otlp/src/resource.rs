use crate::{
    attributes::{Attributes, name},
    environment::SERVICE_NAME,
};
use kernspan::trace::{Device, Metadata};
use std::collections::BTreeMap;

/// The attributes of the sender: service, process, rank and GPUs. The GPUs are known once a window has been recorded.
#[derive(Clone, Debug)]
pub(crate) struct Resource {
    encoded: Vec<u8>,
    /// Whether the user's attributes include `hw.id`.
    has_hardware: bool,
}

impl Resource {
    /// The environment variables in which launchers give the rank among the processes of a host.
    const LOCAL_RANK_VARIABLES: [&str; 4] =
        ["LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID"];

    /// Encodes the attributes. Those of `user`, then those of the metadata, replace others of the same name.
    pub(crate) fn new(metadata: &Metadata, service: Option<&str>, user: &BTreeMap<String, String>) -> Self {
        let mut encoded = Vec::new();
        let mut attributes = Attributes::new(&mut encoded, 1);
        let Metadata { host, pid, process, rank, world_size, .. } = metadata;
        let unknown = format!("unknown_service:{process}");
        let instance = format!("{host}:{pid}");
        let version = env!("CARGO_PKG_VERSION");
        let own = [
            (SERVICE_NAME, service.unwrap_or(&unknown)),
            ("service.instance.id", &instance),
            ("host.name", host),
            ("process.executable.name", process),
            ("telemetry.sdk.name", "kernspan"),
            ("telemetry.sdk.language", "rust"),
            ("telemetry.sdk.version", version),
        ];
        let mut custom: BTreeMap<&str, &str> =
            metadata.user.iter().chain(user).map(|(name, value)| (name.as_str(), value.as_str())).collect();
        if service.is_some() {
            custom.remove(SERVICE_NAME);
        }
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

    /// Returns the encoded `Resource` message, with the GPUs visible to the process.
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

#[cfg(test)]
mod tests {
    use super::{BTreeMap, Metadata, Resource};
    use opentelemetry_proto::tonic::{common::v1::any_value::Value, resource::v1::Resource as Message};
    use prost::Message as _;

    /// The values of an attribute, of which there must be at most one.
    fn values(resource: &Resource, name: &str) -> Vec<String> {
        let message = Message::decode(&*resource.with_devices(&[])).unwrap();
        let named = message.attributes.into_iter().filter(|attribute| attribute.key == name);
        let text = |value| match value {
            Some(Value::StringValue(text)) => text,
            other => panic!("{other:?}"),
        };
        named.map(|attribute| text(attribute.value.and_then(|value| value.value))).collect()
    }

    fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect()
    }

    #[test]
    fn a_resource_has_each_attribute_once() {
        let mut metadata = Metadata::of_this_process();
        let plain = Resource::new(&metadata, None, &map(&[]));
        assert_eq!(values(&plain, "service.name"), [format!("unknown_service:{}", metadata.process)]);
        metadata.user = map(&[("service.name", "metadata"), ("team", "metadata"), ("host.name", "metadata")]);
        let settings = map(&[("team", "settings")]);
        let of_metadata = Resource::new(&metadata, None, &settings);
        assert_eq!(values(&of_metadata, "service.name"), ["metadata"]);
        assert_eq!(values(&of_metadata, "team"), ["settings"]);
        assert_eq!(values(&of_metadata, "host.name"), ["metadata"]);
        assert_eq!(values(&Resource::new(&metadata, Some("settings"), &settings), "service.name"), ["settings"]);
    }
}
