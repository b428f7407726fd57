//! The machine that a run was on.

use crate::trace::{Device, Trace};
use std::fmt;

/// The machine that a run was on, as far as traces tell.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(any(feature = "read", feature = "serde"), derive(serde::Serialize))]
#[cfg_attr(feature = "read", derive(serde::Deserialize))]
#[cfg_attr(feature = "read", serde(default))]
#[non_exhaustive]
pub struct Machine {
    /// The host's name.
    pub host: String,
    /// A name for machines of one kind, such as a pool of CI runners, if the program gives one as the
    /// [metadata](crate::ProfilerBuilder::metadata) `machine`.
    pub kind: Option<String>,
    /// The models of the GPUs that did work.
    pub gpus: Vec<String>,
}

impl Machine {
    /// The key of the metadata that has [`kind`](Self::kind).
    pub const KEY: &'static str = "machine";

    pub(super) fn of(trace: &Trace) -> Self {
        let metadata = trace.metadata();
        Self { host: metadata.host.clone(), kind: metadata.user.get(Self::KEY).cloned(), gpus: gpus(trace) }
    }

    /// Returns whether times can be compared: the kinds are the same if both are known, or else the hosts, and the
    /// models of GPUs.
    pub fn is_like(&self, other: &Self) -> bool {
        let same = match (&self.kind, &other.kind) {
            (Some(kind), Some(other)) => kind == other,
            _ => self.host == other.host,
        };
        same && self.gpus == other.gpus
    }
}

/// Returns the models of the GPUs that did work, in the order of their numbers.
fn gpus(trace: &Trace) -> Vec<String> {
    let worked = |device: &&Device| trace.streams().iter().any(|stream| stream.device() == device.id);
    trace.devices().iter().filter(worked).map(|device| device.name.clone()).collect()
}

impl fmt::Display for Machine {
    /// Writes `host (2 x NVIDIA H200)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.kind.as_deref().unwrap_or(&self.host);
        f.write_str(if name.is_empty() { "unknown machine" } else { name })?;
        let mut models: Vec<(&str, usize)> = Vec::new();
        for gpu in &self.gpus {
            match models.iter_mut().find(|(model, _)| model == gpu) {
                Some((_, count)) => *count += 1,
                None => models.push((gpu, 1)),
            }
        }
        let text = |&(model, count): &(&str, usize)| match count {
            1 => model.to_owned(),
            _ => format!("{count} x {model}"),
        };
        match models.is_empty() {
            true => Ok(()),
            false => write!(f, " ({})", models.iter().map(text).collect::<Vec<_>>().join(", ")),
        }
    }
}
