use std::collections::BTreeMap;

/// Records as they were, each after its length, and the names they point to.
#[derive(Clone, Debug, Default)]
pub(crate) struct RawRecords {
    pub(crate) bytes: Vec<u8>,
    pub(crate) names: BTreeMap<u64, String>,
}

impl RawRecords {
    /// What it takes in memory.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.len()
    }

    pub(crate) fn add(&mut self, record: &[u8]) {
        let length = u32::try_from(record.len()).unwrap_or(u32::MAX);
        self.bytes.extend_from_slice(&length.to_le_bytes());
        self.bytes.extend_from_slice(record);
    }

    pub(crate) fn name(&mut self, address: usize, name: &str) {
        self.names.entry(address as u64).or_insert_with(|| name.to_owned());
    }
}
