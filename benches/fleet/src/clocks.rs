//! The clocks of nodes, which differ and drift.

use crate::mesh::Random;

/// The clocks of nodes: how far each is ahead at the start, in nanoseconds, and its drift, in parts per billion.
pub(crate) struct Clocks(pub(crate) Vec<(i64, i64)>);

impl Clocks {
    pub(crate) const RANKS_PER_NODE: usize = 8;
    const START: i64 = 1_700_000_000_000_000_000;

    /// Returns clocks of so many ranks: ±50 ms apart, with a drift of ±20 ppm.
    pub(crate) fn new(ranks: usize, random: &mut Random) -> Self {
        let clock = |_| (random.below(100_000_001) as i64 - 50_000_000, random.below(40_001) as i64 - 20_000);
        Self((0..ranks.div_ceil(Self::RANKS_PER_NODE)).map(clock).collect())
    }

    pub(crate) fn node(rank: u32) -> usize {
        rank as usize / Self::RANKS_PER_NODE
    }

    /// How far a node's clock is ahead at a time.
    pub(crate) fn ahead(&self, node: usize, at: u64) -> i64 {
        let (offset, drift) = self.0[node];
        offset + i64::try_from(at).unwrap_or(i64::MAX) / 1000 * drift / 1_000_000
    }

    pub(crate) fn read(&self, rank: u32, at: u64) -> i64 {
        Self::START + i64::try_from(at).unwrap_or(i64::MAX) + self.ahead(Self::node(rank), at)
    }
}
