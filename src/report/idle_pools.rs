//! Pools of frameworks that hold much more memory than tensors use.

use super::{
    Report,
    leaks::{LeakOwner, MemoryOfRun},
};
use crate::{
    analysis::{MemoryPool, MemorySeries, MemorySource},
    units,
};
use std::fmt;

/// A framework's pool that holds memory of the device which no tensor uses: it grew once, and does not shrink.
///
/// Frameworks that have a pool for each thread get there when threads come and go. `Display` writes a few words such as
/// `burn holds 1.00 GiB on device 0, and has used at most 722 KiB of it lately; taken: 8.00 MiB a step by load
/// (src/data.rs:12)`.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct IdlePool {
    /// The pool.
    pub pool: MemoryPool,
    /// The bytes that it has taken from the device by the end of the run.
    pub reserved: u64,
    /// The most bytes that tensors were seen to use in the second half of the run.
    pub used: u64,
    /// The spans in which it took them, most bytes first; empty if no window saw it.
    pub owners: Vec<LeakOwner>,
}

impl IdlePool {
    /// The fewest idle bytes that are worth reporting. `leaks clean` of `benches/burn` holds 40 MiB idle for its five
    /// threads.
    const WORTH: u64 = 128 << 20;
    /// The part of its memory that a pool has to use at times. Pages are often half empty.
    const USED: u64 = 4;
}

impl Report {
    /// Returns the pools of frameworks that hold much more memory than tensors use. The report prints them.
    ///
    /// ```
    /// # fn show(report: &kernspan::Report) {
    /// report.idle_pools().iter().for_each(|pool| println!("{pool}"));
    /// # }
    /// ```
    pub fn idle_pools(&self) -> Vec<IdlePool> {
        self.memory.idle_pools()
    }
}

impl MemoryOfRun {
    fn idle_pools(&self) -> Vec<IdlePool> {
        let idle = |series: &MemorySeries| {
            let MemorySource::PoolReserved(pool) = series.source() else { return None };
            let used = self.followed.series.iter().find(|used| used.source() == MemorySource::Pool(pool))?;
            let late = &used.points()[used.points().len() / 2..];
            let used = late.iter().map(|point| point.bytes).max()?;
            let (first, last) = (series.points().first()?, series.points().last()?);
            let idle = last.bytes.saturating_sub(used);
            if idle < IdlePool::WORTH || used.saturating_mul(IdlePool::USED) > last.bytes {
                return None;
            }
            let rate = idle as f64 / (last.step - first.step).max(1) as f64;
            Some(IdlePool { pool, reserved: last.bytes, used, owners: self.owners(series.source(), rate) })
        };
        self.followed.series.iter().filter_map(idle).collect()
    }
}

impl fmt::Display for IdlePool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let MemoryPool { framework, device } = self.pool;
        let (reserved, used) = (units::bytes(self.reserved), units::bytes(self.used));
        write!(f, "{framework} holds {reserved} on device {device}, and has used at most {used} of it lately")?;
        LeakOwner::write(&self.owners, "taken", f)
    }
}

#[cfg(test)]
mod tests {
    use super::{IdlePool, MemoryOfRun};
    use crate::{
        analysis::{FollowedMemory, MemoryPool, MemorySeries, MemorySource},
        trace::Timestamp,
    };

    const MIB: u64 = 1 << 20;

    /// Returns the idle pools of 200 steps with these bytes in use and reserved.
    fn idle(used: impl Fn(u64) -> u64, reserved: impl Fn(u64) -> u64) -> Vec<IdlePool> {
        let pool = MemoryPool::new("burn", 0);
        let series = |source, bytes: &dyn Fn(u64) -> u64| {
            let mut series = MemorySeries::new(source, None);
            (0..200).for_each(|step| assert!(series.push(step, Timestamp::default(), bytes(step) * MIB)));
            series
        };
        let series = vec![
            series(MemorySource::Pool(pool), &used),
            series(MemorySource::PoolReserved(pool), &reserved),
            series(MemorySource::Process, &|_| 10_000),
        ];
        let mut run = MemoryOfRun::default();
        run.followed = FollowedMemory { series, ..FollowedMemory::default() };
        run.idle_pools()
    }

    #[test]
    fn a_pool_that_holds_what_nobody_uses_is_idle() {
        // A pool for each of 128 threads.
        let pools = idle(|_| 1, |step| 8 * (step + 1).min(128));
        let [pool] = pools.as_slice() else { panic!("{pools:?}") };
        assert_eq!((pool.reserved, pool.used), (1024 * MIB, MIB));
        assert_eq!(pool.to_string(), "burn holds 1.00 GiB on device 0, and has used at most 1.00 MiB of it lately");
        // Only the beginning of the run needed it.
        assert_eq!(idle(|step| if step < 50 { 900 } else { 1 }, |_| 1024).len(), 1);
    }

    #[test]
    fn a_pool_in_use_is_not_idle() {
        assert_eq!(idle(|_| 900, |_| 1024), []);
        assert_eq!(idle(|step| if step % 50 == 0 { 300 } else { 1 }, |_| 1024), []);
        assert_eq!(idle(|_| 1, |_| 100), [], "a few pages are not worth a word");
    }
}
