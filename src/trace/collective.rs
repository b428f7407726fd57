//! Exchanges of data between ranks.

use std::sync::Arc;

/// An exchange of data between ranks, as the framework that asked for it describes it: see
/// [`Work::collective`](super::Work::collective).
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Collective {
    /// The operation, such as `allreduce`.
    pub operation: String,
    /// The name of the group of ranks.
    pub group: Arc<str>,
    /// What the group is for, in words.
    pub description: String,
    /// The ranks of the group; empty if they are not known.
    pub ranks: Vec<u32>,
    /// The number of ranks in the group; 0 if it is not known.
    pub group_size: u32,
    /// The number of elements that each rank puts in.
    pub elements_in: u64,
    /// The number of elements that each rank gets.
    pub elements_out: u64,
    /// The type of the elements, as the framework calls it.
    pub dtype: String,
    /// The number of the collective in its group, counted by operation as NCCL does, if known.
    pub sequence: Option<u64>,
    /// The algorithm, such as `RING` or `TREE`; empty if it is not known.
    pub algorithm: Arc<str>,
    /// The protocol, such as `LL` or `SIMPLE`; empty if it is not known.
    pub protocol: Arc<str>,
    /// The number of channels, each a block of the kernel; 0 if it is not known.
    pub channels: u32,
    /// NCCL's number of the communicator, which is the same on all its ranks, if known.
    pub communicator: Option<u64>,
    /// The number of this rank in the group, if known.
    pub group_rank: Option<u32>,
    /// The number of further collectives that the same kernel carries out: NCCL runs small ones of a group call
    /// together. The elements are those of all of them, the rest describes the first.
    pub merged: u32,
}

impl Collective {
    /// Adds another collective that the same kernel carries out.
    pub(crate) fn merge(&mut self, other: &Self) {
        self.elements_in = self.elements_in.saturating_add(other.elements_in);
        self.elements_out = self.elements_out.saturating_add(other.elements_out);
        self.merged = self.merged.saturating_add(1).saturating_add(other.merged);
        if self.dtype != other.dtype {
            self.dtype.clear();
        }
    }
}
