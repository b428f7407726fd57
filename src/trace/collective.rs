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
}
