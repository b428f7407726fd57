//! The calls that threads made in a window, which assign GPU records to the window.

use crate::{gallop_search::GallopSearch, trace::Timestamp};
use std::{cell::Cell, ops::Range};

/// The calls that threads made in a window.
#[derive(Clone, Debug, Default)]
pub(crate) struct Calls {
    /// The time during which the window was open.
    pub(crate) window: Range<Timestamp>,
    /// Correlation ids of all calls, sorted.
    all: Vec<u32>,
    /// Correlation ids of launches, sorted. Their work must have records.
    pub(super) launches: Vec<u32>,
    /// Launches that share their correlation id with another, sorted. Their work cannot be distinguished.
    pub(super) ambiguous: Vec<u32>,
    /// Correlation ids of copies, sorted. Their work usually has records.
    pub(super) copies: Vec<u32>,
    /// Correlation ids of calls whose work does not belong to the window, sorted.
    before_window: Vec<u32>,
    /// The highest correlation id of a call that was entered before the window; 0 if CUPTI was detached then.
    pub(crate) last_before: u32,
    /// Whether the next window opened when this one closed.
    pub(crate) followed: bool,
}

/// A call that a thread made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Call {
    pub(crate) correlation: u32,
    pub(crate) role: Role,
    pub(crate) failed: bool,
}

/// The kind of a call, by whether it causes GPU work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// It causes work, unless a graph is being captured.
    Launches,
    /// It usually causes work, unless a graph is being captured. A copy of no bytes causes none.
    Copies,
    /// The thread's following launches are captured in a graph, and run when the graph is launched.
    BeginsCapture,
    /// The thread's following launches are no longer captured.
    EndsCapture,
    /// It was entered before the window, or before callbacks began, and does not belong to the window.
    BeforeWindow,
    Other,
}

impl Role {
    /// Returns the role of a function by its name, without its version.
    pub(crate) fn of(function: &str) -> Self {
        let starts = |prefixes: &[&str]| prefixes.iter().any(|prefix| function.starts_with(prefix));
        if starts(&["cuLaunchKernel", "cuLaunchCooperative", "cuGraphLaunch"]) {
            Self::Launches
        } else if starts(&["cuMemcpy", "cuMemset"]) {
            Self::Copies
        } else if starts(&["cuStreamBeginCapture"]) {
            Self::BeginsCapture
        } else if starts(&["cuStreamEndCapture"]) {
            Self::EndsCapture
        } else {
            Self::Other
        }
    }
}

impl Calls {
    /// Builds the lists from the calls of a window, which come thread by thread, in chronological order.
    pub(crate) fn new(
        window: Range<Timestamp>,
        threads: impl IntoIterator<Item = impl IntoIterator<Item = Call>>,
    ) -> Self {
        let mut calls = Self { window, ..Self::default() };
        for thread in threads {
            let before = (calls.launches.len(), calls.copies.len());
            let mut captures = 0;
            for call in thread {
                match call.role {
                    Role::BeforeWindow => calls.before_window.push(call.correlation),
                    _ => calls.all.push(call.correlation),
                }
                match call.role {
                    _ if call.failed => {}
                    Role::Launches if captures == 0 => calls.launches.push(call.correlation),
                    Role::Copies if captures == 0 => calls.copies.push(call.correlation),
                    Role::BeginsCapture => captures += 1,
                    Role::EndsCapture if captures > 0 => captures -= 1,
                    // The capture was in progress when the window opened.
                    Role::EndsCapture => {
                        calls.launches.truncate(before.0);
                        calls.copies.truncate(before.1);
                    }
                    _ => {}
                }
            }
        }
        // Already nearly sorted, thread by thread, which a stable sort exploits.
        calls.all.sort();
        calls.launches.sort();
        calls.copies.sort();
        calls.before_window.sort();
        calls.split_ambiguous();
        calls
    }

    /// Moves launches that share their correlation id with another to `ambiguous`. CUPTI counts ids up and never reuses
    /// one, unless its state is broken. Then it gives the same id to all launches of a thread, and one window would
    /// take the work of all others.
    fn split_ambiguous(&mut self) {
        let given_twice = |pair: &[u32]| pair[0] == pair[1];
        if !self.launches.windows(2).any(given_twice) {
            return;
        }
        for same in std::mem::take(&mut self.launches).chunk_by(|one, other| one == other) {
            if same.len() == 1 { &mut self.launches } else { &mut self.ambiguous }.extend(same);
        }
    }

    /// Returns the number of calls that caused GPU work, by function.
    pub(crate) fn work_count(&self) -> u64 {
        (self.launches.len() + self.ambiguous.len() + self.copies.len()) as u64
    }

    /// Whether CUPTI gave one correlation id to several launches.
    pub(crate) fn are_ambiguous(&self) -> bool {
        !self.ambiguous.is_empty()
    }

    /// Returns which window a record with this correlation id and start belongs to. Searches continue from where the
    /// last one ended.
    pub(super) fn owner(&self, search: &Cell<GallopSearch>, correlation: u32, start: Timestamp) -> Owner {
        let mut gallop = search.get();
        let caused = gallop.find(&self.all, |call| call.cmp(&correlation)).is_some();
        search.set(gallop);
        let in_window = || self.window.contains(&start) && self.not_before(correlation);
        match start >= self.window.end {
            _ if caused && self.ambiguous.binary_search(&correlation).is_ok() => Owner::NoWindow,
            _ if caused => Owner::ThisWindow,
            true => Owner::Later,
            // The call may have been made while the next window was being opened.
            false if self.followed && in_window() => Owner::Later,
            false if in_window() && self.not_after(correlation) => Owner::ThisWindow,
            false => Owner::NoWindow,
        }
    }

    /// Whether a correlation id is not from before the window. The driver counts the ids up.
    fn not_before(&self, correlation: u32) -> bool {
        let follows = |earlier: u32| correlation.wrapping_sub(earlier) <= u32::MAX / 2;
        // A thread may be suspended between getting its id and entering the call, so the first id of a window may be
        // lower than others from before it.
        let after_last_before = self.last_before == 0 || correlation != self.last_before && follows(self.last_before);
        after_last_before && self.first().is_none_or(follows) && self.before_window.binary_search(&correlation).is_err()
    }

    /// Whether a correlation id is not from after the window.
    fn not_after(&self, correlation: u32) -> bool {
        self.first().is_none_or(|first| {
            let wrapped_count = self.all.partition_point(|call| *call < first);
            let last = wrapped_count.checked_sub(1).map_or(self.all.last(), |index| self.all.get(index));
            last.is_some_and(|last| correlation.wrapping_sub(first) <= last.wrapping_sub(first))
        })
    }

    /// Returns the first correlation id of the window. It is not the smallest one if the ids wrapped around in the
    /// window.
    fn first(&self) -> Option<u32> {
        let (first, last) = (*self.all.first()?, *self.all.last()?);
        let wrapped = last - first > u32::MAX / 2;
        let index = if wrapped { self.all.partition_point(|&call| call <= u32::MAX / 2) } else { 0 };
        self.all.get(index).copied()
    }
}

/// The window that a record belongs to.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Owner {
    ThisWindow,
    /// It may belong to the next window.
    Later,
    NoWindow,
}
