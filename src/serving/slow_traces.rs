//! When the traces of slow requests are written: see [`RequestKind::write_slower_than`].

use super::{RequestKind, request_shards::EndedRequest};
use crate::clock::Clock;
use std::{
    path::PathBuf,
    time::{Duration, Instant},
};

/// Requests whose traces are to be written, as they are slower than a limit.
#[derive(Debug)]
pub(super) struct SlowTraces {
    limit: u64,
    folder: PathBuf,
    is_due: bool,
    /// When a trace was last written.
    last: Option<Instant>,
}

impl SlowTraces {
    pub(super) fn new((limit, folder): &(Duration, PathBuf)) -> Self {
        let limit = u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX);
        Self { limit, folder: folder.clone(), is_due: false, last: None }
    }

    pub(super) fn add(&mut self, ended: &EndedRequest, clock: &Clock) {
        self.is_due |= ended.experienced(clock) > self.limit;
    }

    /// Returns the folder if a trace is to be written now.
    pub(super) fn take(&mut self) -> Option<PathBuf> {
        let is_due = std::mem::take(&mut self.is_due);
        if !is_due || self.last.is_some_and(|last| last.elapsed() < RequestKind::SLOW_EVERY) {
            return None;
        }
        Some(self.folder.clone())
    }

    /// Notes that a trace is being written.
    pub(super) fn wrote(&mut self) {
        self.last = Some(Instant::now());
    }
}

#[cfg(test)]
mod tests {
    use super::SlowTraces;
    use std::time::Duration;

    #[test]
    fn only_a_trace_that_is_written_begins_a_pause() {
        let mut slow = SlowTraces::new(&(Duration::from_secs(1), "slow".into()));
        assert_eq!(slow.take(), None);
        // One that was refused: the next slow request asks again.
        for _ in 0..2 {
            slow.is_due = true;
            assert_eq!(slow.take(), Some("slow".into()));
            assert_eq!(slow.take(), None);
        }
        slow.wrote();
        slow.is_due = true;
        assert_eq!(slow.take(), None);
    }
}
