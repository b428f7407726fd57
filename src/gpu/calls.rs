//! The calls that threads made in a window, and which GPU records belong to the window by them.

use crate::{gallop_search::GallopSearch, trace::Timestamp};
use std::{cell::Cell, ops::Range};

/// The calls that threads made in a window.
#[derive(Clone, Debug, Default)]
pub(crate) struct Calls {
    /// When the window was open.
    pub(crate) window: Range<Timestamp>,
    /// Correlation ids of all calls, in order.
    all: Vec<u32>,
    /// Correlation ids of launches, of which work must come, in order.
    pub(super) launches: Vec<u32>,
    /// Launches that share their correlation id with another, in order: their work cannot be told apart.
    pub(super) ambiguous: Vec<u32>,
    /// Correlation ids of copies, of which work mostly comes, in order.
    pub(super) copies: Vec<u32>,
    /// Correlation ids of calls whose work does not belong to the window, in order.
    of_before: Vec<u32>,
    /// The highest correlation id of a call that was entered before the window; 0 if nobody watched then.
    pub(crate) last_before: u32,
    /// Whether the next window opened when this one closed.
    pub(crate) followed: bool,
}

/// One call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Call {
    pub(crate) correlation: u32,
    pub(crate) role: Role,
    pub(crate) failed: bool,
}

/// The kind of a call, as far as it matters for whether work of the GPU comes of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// Work comes of it, unless a graph is being captured.
    Launches,
    /// Work mostly comes of it, unless a graph is being captured: a copy of no bytes does nothing.
    Copies,
    /// From here on, the thread's launches are captured in a graph: they run when that is launched.
    BeginsCapture,
    /// From here on, they are not any more.
    EndsCapture,
    /// It was entered before the window, or before callbacks began, and does not belong to the window.
    OfBefore,
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
    /// Takes the calls of a window, thread by thread, in order of time.
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
                    Role::OfBefore => calls.of_before.push(call.correlation),
                    _ => calls.all.push(call.correlation),
                }
                match call.role {
                    _ if call.failed => {}
                    Role::Launches if captures == 0 => calls.launches.push(call.correlation),
                    Role::Copies if captures == 0 => calls.copies.push(call.correlation),
                    Role::BeginsCapture => captures += 1,
                    Role::EndsCapture if captures > 0 => captures -= 1,
                    // The capture was under way when the window opened.
                    Role::EndsCapture => {
                        calls.launches.truncate(before.0);
                        calls.copies.truncate(before.1);
                    }
                    _ => {}
                }
            }
        }
        // Nearly sorted already, thread by thread, which a stable sort makes use of.
        calls.all.sort();
        calls.launches.sort();
        calls.copies.sort();
        calls.of_before.sort();
        calls.set_ambiguous_aside();
        calls
    }

    /// Takes out launches that share their correlation id with another. CUPTI counts ids up, so it never gives one
    /// twice, unless its state is broken: then it gives the same id to all launches of a thread, and a single window
    /// would take the work of all others.
    fn set_ambiguous_aside(&mut self) {
        let given_twice = |pair: &[u32]| pair[0] == pair[1];
        if !self.launches.windows(2).any(given_twice) {
            return;
        }
        for same in std::mem::take(&mut self.launches).chunk_by(|one, other| one == other) {
            if same.len() == 1 { &mut self.launches } else { &mut self.ambiguous }.extend(same);
        }
    }

    /// Counts the calls that gave the GPU work, by their functions.
    pub(crate) fn given(&self) -> u64 {
        (self.launches.len() + self.ambiguous.len() + self.copies.len()) as u64
    }

    /// Whether CUPTI gave one correlation id to several launches.
    pub(crate) fn are_ambiguous(&self) -> bool {
        !self.ambiguous.is_empty()
    }

    /// Returns which window a record with this correlation and start belongs to. Searches go on from where the last one
    /// ended.
    pub(super) fn owner(&self, search: &Cell<GallopSearch>, correlation: u32, start: Timestamp) -> Owner {
        let mut near = search.get();
        let caused = near.find(&self.all, |one| one.cmp(&correlation)).is_some();
        search.set(near);
        let inside = || self.window.contains(&start) && self.not_before(correlation);
        match start >= self.window.end {
            _ if caused && self.ambiguous.binary_search(&correlation).is_ok() => Owner::Nobody,
            _ if caused => Owner::ThisWindow,
            true => Owner::Later,
            // It may be of a call that was made while the next window was being opened.
            false if self.followed && inside() => Owner::Later,
            false if inside() && self.not_after(correlation) => Owner::ThisWindow,
            false => Owner::Nobody,
        }
    }

    /// Whether something was not caused before the window, by its number: the driver counts up.
    fn not_before(&self, correlation: u32) -> bool {
        let follows = |earlier: u32| correlation.wrapping_sub(earlier) <= u32::MAX / 2;
        // A thread may be suspended between getting its number and entering: the first one of the window is then a low
        // one.
        let after_last_before = self.last_before == 0 || correlation != self.last_before && follows(self.last_before);
        after_last_before && self.first().is_none_or(follows) && self.of_before.binary_search(&correlation).is_err()
    }

    /// Whether something was not caused after the window.
    fn not_after(&self, correlation: u32) -> bool {
        self.first().is_none_or(|first| {
            let began_again = self.all.partition_point(|call| *call < first);
            let last = began_again.checked_sub(1).map_or(self.all.last(), |place| self.all.get(place));
            last.is_some_and(|last| correlation.wrapping_sub(first) <= last.wrapping_sub(first))
        })
    }

    /// The call with the smallest number; that is a large one where the driver began again from 0 in the window.
    fn first(&self) -> Option<u32> {
        let (first, last) = (*self.all.first()?, *self.all.last()?);
        let began_again = last - first > u32::MAX / 2;
        let place = if began_again { self.all.partition_point(|&call| call <= u32::MAX / 2) } else { 0 };
        self.all.get(place).copied()
    }
}

/// The window that a record belongs to.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Owner {
    ThisWindow,
    /// Perhaps the next one.
    Later,
    Nobody,
}
