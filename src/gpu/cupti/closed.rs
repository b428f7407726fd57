//! A closed window that waits for the records of its launches.

use crate::{
    gpu::{calls::Calls, gather::Missing},
    recording::Recording,
};
use std::time::{Duration, Instant};

/// A window that has closed and waits for the records of its launches.
pub(super) struct Closed {
    pub(super) recording: Box<Recording>,
    pub(super) calls: Calls,
    /// The number of calls that had no record at the last check.
    missing: Option<Missing>,
    /// The moment at which the window was collected.
    pub(super) since: Instant,
    /// When its last record arrived, or else when it was collected.
    last_record: Instant,
    /// The number of checks so far.
    polls: u32,
}

impl Closed {
    /// How long to wait for the next record before giving up on launches, while the program runs.
    const TIMEOUT: Duration = Duration::from_secs(60);
    /// How long to wait for the next record at the end of the run.
    const TIMEOUT_AT_END: Duration = Duration::from_secs(5);
    /// How long to wait if only copies are missing, since a copy of no bytes has no record.
    const TIMEOUT_FOR_COPIES: Duration = Duration::from_millis(500);

    pub(super) fn new(recording: Box<Recording>, calls: Calls) -> Self {
        let now = Instant::now();
        Self { recording, calls, missing: None, since: now, last_record: now, polls: 0 }
    }

    /// Whether nothing is missing, or the missing records are given up on. `arrived` is when the last record of any
    /// window arrived, and `finishing` says that the run is ending.
    pub(super) fn is_done(&mut self, missing: Missing, now: Instant, arrived: Instant, finishing: bool) -> bool {
        let timeout = match missing {
            Missing { launches: 0, copies: 0 } => Duration::ZERO,
            Missing { launches: 0, .. } => Self::TIMEOUT_FOR_COPIES,
            _ if finishing => Self::TIMEOUT_AT_END,
            _ => Self::TIMEOUT,
        };
        match self.missing.replace(missing) {
            // A record may have arrived while another window was being waited for.
            None => self.last_record = self.last_record.max(arrived),
            // Only records of this window count, not those of others.
            Some(before) if before != missing => self.last_record = now,
            Some(_) => {}
        }
        let done = now.duration_since(self.last_record) >= timeout;
        self.polls += u32::from(!done);
        done
    }

    /// Returns how long to wait until the next check. Most windows are complete at once, but a queue of long kernels
    /// takes a while.
    pub(super) fn poll_interval(&self) -> Duration {
        Duration::from_millis(1 << self.polls.min(5))
    }
}
