//! GPU records as raw bytes, kept for writing to a file.

use std::collections::BTreeMap;

/// GPU records as CUPTI wrote them, each preceded by its length, and the names they point to.
#[derive(Clone, Debug, Default)]
pub(crate) struct RawRecords {
    pub(crate) bytes: Vec<u8>,
    /// The names by their addresses in the records.
    pub(crate) names: BTreeMap<u64, String>,
}

impl RawRecords {
    /// The size of the records in memory, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Adds a record.
    pub(crate) fn add(&mut self, record: &[u8]) {
        let length = u32::try_from(record.len()).unwrap_or(u32::MAX);
        self.bytes.extend_from_slice(&length.to_le_bytes());
        self.bytes.extend_from_slice(record);
    }

    /// Adds the name that records refer to by `address`, unless it is already there.
    pub(crate) fn name(&mut self, address: usize, name: &str) {
        self.names.entry(address as u64).or_insert_with(|| name.to_owned());
    }
}
