//! What became of what was sent: everything that is produced is sent or lost, and what is lost is lost for a reason.

use crate::delivery::Delivery;
use std::sync::{
    Mutex, PoisonError,
    atomic::{AtomicU64, Ordering},
};

/// Why something did not arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cause {
    /// The buffer was full, as nothing could be sent for too long.
    NoRoom,
    /// The collector took the request, but not all that was in it.
    Rejected,
    /// The collector refused the request, in a way that makes trying again useless.
    Refused,
    /// It could not be sent, however often it was tried.
    Unreachable,
    /// The run was over before it could be sent.
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

/// The counts of one signal, traces or metrics.
#[derive(Debug, Default)]
pub(super) struct Tally {
    sent: AtomicU64,
    lost: [AtomicU64; Cause::ALL.len()],
    /// What was said the last time that something went wrong.
    problem: Mutex<Option<String>>,
}

impl Tally {
    pub(super) fn send(&self, items: u64) {
        self.sent.fetch_add(items, Ordering::Relaxed);
    }

    pub(super) fn lose(&self, cause: Cause, items: u64) {
        self.lost[cause as usize].fetch_add(items, Ordering::Relaxed);
    }

    pub(super) fn explain(&self, problem: String) {
        *self.problem.lock().unwrap_or_else(PoisonError::into_inner) = Some(problem);
    }

    /// If nothing else is known.
    pub(super) fn explain_at_least(&self, problem: &str) {
        self.problem.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_with(|| problem.to_owned());
    }

    pub(super) fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }

    pub(super) fn lost(&self) -> u64 {
        self.causes().map(|(_, count)| count).sum()
    }

    /// What was lost, by cause.
    pub(super) fn causes(&self) -> impl Iterator<Item = (&'static str, u64)> {
        Cause::ALL.iter().map(|&(cause, name)| (name, self.lost[cause as usize].load(Ordering::Relaxed)))
    }

    pub(super) fn delivery(&self, what: &'static str) -> Delivery {
        let problem = self.problem.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let lost = self.causes().filter(|&(_, count)| count > 0).collect();
        Delivery { what, sent: self.sent(), lost, problem }
    }
}
