//! Counts of spans and points that were sent or lost. Each one produced is counted once.

use kernspan::export::Delivery;
use std::sync::{
    Mutex, PoisonError,
    atomic::{AtomicU64, Ordering},
};

/// The cause of a loss.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    /// The buffer was full.
    NoRoom,
    /// The collector accepted the request, but rejected part of it.
    Rejected,
    /// The collector refused the request, and would refuse it again.
    Refused,
    /// It could not be sent for a minute, or nothing was listening when the run ended.
    Unreachable,
    /// The time to finish ran out before it was sent.
    TooLate,
}

impl Cause {
    const ALL: [(Self, &'static str); 5] = [
        (Self::NoRoom, "no_room"),
        (Self::Rejected, "rejected"),
        (Self::Refused, "refused"),
        (Self::Unreachable, "unreachable"),
        (Self::TooLate, "too_late"),
    ];
}

/// The counts of one signal.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    sent: AtomicU64,
    lost: [AtomicU64; Cause::ALL.len()],
    /// The last problem.
    problem: Mutex<Option<String>>,
}

impl Tally {
    pub(crate) fn send(&self, items: u64) {
        self.sent.fetch_add(items, Ordering::Relaxed);
    }

    pub(crate) fn lose(&self, cause: Cause, items: u64) {
        self.lost[cause as usize].fetch_add(items, Ordering::Relaxed);
    }

    /// Remembers a problem, replacing the previous one.
    pub(crate) fn explain(&self, problem: String) {
        *self.problem.lock().unwrap_or_else(PoisonError::into_inner) = Some(problem);
    }

    /// Remembers a problem if there is none yet.
    pub(crate) fn explain_if_unknown(&self, problem: &str) {
        self.problem.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_with(|| problem.to_owned());
    }

    pub(crate) fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }

    pub(crate) fn lost(&self) -> u64 {
        self.causes().map(|(_, count)| count).sum()
    }

    /// The losses by cause, including causes that did not occur.
    pub(crate) fn causes(&self) -> impl Iterator<Item = (&'static str, u64)> {
        Cause::ALL.iter().map(|&(cause, name)| (name, self.lost[cause as usize].load(Ordering::Relaxed)))
    }

    /// The counts, for the report. `what` is the plural of what is counted.
    pub(crate) fn delivery(&self, what: &'static str) -> Delivery {
        let problem = self.problem.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let lost = self.causes().filter(|&(_, count)| count > 0).collect();
        Delivery { what, sent: self.sent(), lost, problem }
    }
}
