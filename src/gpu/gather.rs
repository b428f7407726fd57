//! Records come in any order and from all of the time that the library is attached; windows take from them what is theirs.

use super::record::{GpuRecord, GpuRecording, OverheadRecord, WaitRecord, WorkRecord};
use crate::{finger::Finger, trace::Timestamp};
use std::{cell::Cell, ops::Range};

/// What was read and no window has taken yet.
#[derive(Debug, Default)]
pub(crate) struct Gathered {
    work: Vec<WorkRecord>,
    waits: Vec<WaitRecord>,
    overheads: Vec<OverheadRecord>,
}

/// The calls that threads made in a window.
#[derive(Clone, Debug, Default)]
pub(crate) struct Calls {
    /// When the window was open.
    pub(crate) window: Range<Timestamp>,
    /// All calls, by their correlations, in order.
    all: Vec<u32>,
    /// Those that work must come of, in order.
    launches: Vec<u32>,
    /// Launches that share their correlation with another one, in order: nobody can tell whose the work is.
    ambiguous: Vec<u32>,
    /// Those that work most likely comes of, in order.
    copies: Vec<u32>,
    /// Those whose work is not of the window, in order.
    of_before: Vec<u32>,
    /// The highest correlation of a call that was entered before the window, if that was watched; or else 0.
    pub(crate) last_before: u32,
    /// Whether the next window opened when this one closed.
    pub(crate) followed: bool,
}

/// What has not come back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Missing {
    pub(crate) launches: usize,
    pub(crate) copies: usize,
}

/// One call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Call {
    pub(crate) correlation: u32,
    pub(crate) role: Role,
    pub(crate) failed: bool,
}

/// What a call is for, as far as it matters when waiting for what comes of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// Work of a GPU comes of it, unless a graph is being captured.
    Launches,
    /// Work most likely comes of it, unless a graph is being captured: of a copy of no bytes nothing comes.
    Copies,
    /// From here on, the thread's launches are captured in a graph: they run when that is launched.
    BeginsCapture,
    /// From here on, they are not any more.
    EndsCapture,
    /// It was entered before the window, or before anybody watched, and is not of the window.
    OfBefore,
    Other,
}

impl Role {
    /// By the function's name, which all versions of it have in common.
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
    /// The calls of a window, thread by thread, in order of time.
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

    /// Takes launches out whose correlation another one has, too. CUPTI counts up, so it never gives one twice, unless its state is
    /// broken: then it gives all that a thread launches the same one, and a single window would take what belongs to all others.
    fn set_ambiguous_aside(&mut self) {
        let given_twice = |pair: &[u32]| pair[0] == pair[1];
        if !self.launches.windows(2).any(given_twice) {
            return;
        }
        for same in std::mem::take(&mut self.launches).chunk_by(|one, other| one == other) {
            if same.len() == 1 { &mut self.launches } else { &mut self.ambiguous }.extend(same);
        }
    }

    /// How many calls gave the GPU work, as far as they are known by their functions.
    pub(crate) fn given(&self) -> u64 {
        (self.launches.len() + self.ambiguous.len() + self.copies.len()) as u64
    }

    /// Whether CUPTI gave one correlation twice.
    pub(crate) fn are_ambiguous(&self) -> bool {
        !self.ambiguous.is_empty()
    }

    /// Whose something is that has this correlation and began then. Whoever asks for many keeps the finger.
    fn whose(&self, finger: &Cell<Finger>, correlation: u32, start: Timestamp) -> Whose {
        let mut near = finger.get();
        let caused = near.find(&self.all, |one| one.cmp(&correlation)).is_some();
        finger.set(near);
        let inside = || self.window.contains(&start) && self.not_before(correlation);
        match start >= self.window.end {
            _ if caused && self.ambiguous.binary_search(&correlation).is_ok() => Whose::Nobodys,
            _ if caused => Whose::Ours,
            true => Whose::Later,
            // It may be of a call that was made while the next window was being opened.
            false if self.followed && inside() => Whose::Later,
            false if inside() && self.not_after(correlation) => Whose::Ours,
            false => Whose::Nobodys,
        }
    }

    /// Whether something was not caused before the window, by its number: the driver counts up.
    fn not_before(&self, correlation: u32) -> bool {
        let follows = |earlier: u32| correlation.wrapping_sub(earlier) <= u32::MAX / 2;
        // A thread may be suspended between getting its number and entering: the first one of the window is then a low one.
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

/// Which window something belongs to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Whose {
    Ours,
    /// Perhaps the next one's.
    Later,
    Nobodys,
}

/// Takes what is ours and drops what is nobody's.
fn take<T>(from: &mut Vec<T>, whose: impl Fn(&T) -> Whose) -> Vec<T> {
    // Mostly it is all, and a million records need not be moved.
    if from.iter().all(|one| whose(one) == Whose::Ours) {
        return std::mem::take(from);
    }
    from.retain(|one| whose(one) != Whose::Nobodys);
    from.extract_if(.., |one| whose(one) == Whose::Ours).collect()
}

impl Gathered {
    pub(crate) fn add(&mut self, record: GpuRecord) {
        match record {
            GpuRecord::Work(work) => self.work.push(work),
            GpuRecord::Wait(wait) => self.waits.push(wait),
            GpuRecord::Overhead(overhead) => self.overheads.push(overhead),
        }
    }

    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }

    /// About what it takes in memory.
    pub(crate) fn bytes(&self) -> usize {
        self.work.len() * size_of::<WorkRecord>()
            + self.waits.len() * size_of::<WaitRecord>()
            + self.overheads.len() * size_of::<OverheadRecord>()
    }

    /// How many of the calls nothing has come of yet.
    pub(crate) fn missing(&self, calls: &Calls) -> Missing {
        let missing = |expected: &[u32]| {
            let mut done = vec![false; expected.len()];
            let mut near = Finger::default();
            for work in self.work.iter().filter(|_| !expected.is_empty()) {
                if let Some(call) = near.find(expected, |call| call.cmp(&work.correlation)) {
                    done[call] = true;
                }
            }
            done.into_iter().filter(|done| !done).count()
        };
        Missing { launches: missing(&calls.launches), copies: missing(&calls.copies) }
    }

    /// Takes what belongs to a window: everything that came of its calls, whenever that was, and what happened in it without a
    /// call that was seen. What is later stays; what is earlier is dropped.
    pub(crate) fn take(&mut self, calls: &Calls) -> GpuRecording {
        let mut taken = GpuRecording::default();
        taken.losses.gpu_unfinished += (self.missing(calls).launches + calls.ambiguous.len()) as u64;
        let near = Cell::default();
        taken.work = take(&mut self.work, |work| calls.whose(&near, work.correlation, work.start));
        taken.waits = take(&mut self.waits, |wait| calls.whose(&near, wait.correlation, wait.start));
        taken.overheads = take(&mut self.overheads, |overhead| match overhead.start {
            start if start >= calls.window.end => Whose::Later,
            start if start >= calls.window.start => Whose::Ours,
            _ => Whose::Nobodys,
        });
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::{Call, Calls, Gathered, Missing, Role};
    use crate::{
        gpu::record::{GpuRecord, WorkRecord},
        trace::{Detail, MemoryFill, Timestamp},
    };

    fn at(nanos: u64) -> Timestamp {
        Timestamp::from_unix_nanos(nanos)
    }

    fn work(correlation: u32, start: u64) -> GpuRecord {
        GpuRecord::Work(WorkRecord {
            detail: Detail::Fill(MemoryFill::default()),
            device: 0,
            context: 1,
            stream: 7,
            start: at(start),
            end: at(start + 5),
            correlation,
            graph: None,
        })
    }

    fn call(correlation: u32, role: Role) -> Call {
        Call { correlation, role, failed: false }
    }

    fn taken(gathered: &mut Gathered, calls: &Calls) -> Vec<u32> {
        gathered.take(calls).work.iter().map(|work| work.correlation).collect()
    }

    #[test]
    fn a_window_takes_what_its_calls_caused_and_leaves_the_rest_to_the_next() {
        let mut gathered = Gathered::default();
        // Launched before the window, and running in it; launched in it, and running after it; launched after it.
        for (id, start) in [(7, 105), (11, 150), (12, 230), (15, 240)] {
            gathered.add(work(id, start));
        }
        let first = Calls::new(at(100)..at(200), [[call(12, Role::Launches), call(11, Role::Launches)]]);
        assert_eq!(gathered.missing(&first), Missing { launches: 0, copies: 0 });
        assert_eq!(taken(&mut gathered, &first), [11, 12]);
        let second = Calls::new(at(200)..at(300), [[call(15, Role::Launches)]]);
        assert_eq!(taken(&mut gathered, &second), [15]);
    }

    #[test]
    fn captures_may_lie_in_each_other_and_fail() {
        let failed = Call { failed: true, ..call(1, Role::BeginsCapture) };
        let calls = [failed, call(2, Role::Launches), call(3, Role::BeginsCapture), call(4, Role::BeginsCapture)];
        let rest =
            [call(5, Role::Launches), call(6, Role::EndsCapture), call(7, Role::Copies), call(8, Role::EndsCapture)];
        let last = [call(9, Role::Launches), call(10, Role::Copies)];
        let calls = Calls::new(at(100)..at(200), [calls.into_iter().chain(rest).chain(last)]);
        assert_eq!((calls.launches, calls.copies), (vec![2, 9], vec![10]));
    }

    #[test]
    fn work_whose_call_was_not_seen_is_not_lost() {
        let mut gathered = Gathered::default();
        // The last was launched just after the window, by its number, though by the GPU's clock it was in it.
        for (id, start) in [(20, 150), (21, 160), (22, 190), (23, 199)] {
            gathered.add(work(id, start));
        }
        let calls = Calls::new(at(100)..at(200), [[call(20, Role::Launches), call(22, Role::Launches)]]);
        assert_eq!(taken(&mut gathered, &calls), [20, 21, 22]);
    }

    #[test]
    fn numbers_may_begin_again_from_0_in_a_window() {
        let mut gathered = Gathered::default();
        let high = u32::MAX - 5;
        for (id, start) in [(high - 9, 110), (high, 120), (high + 3, 130), (1, 140), (4, 150)] {
            gathered.add(work(id, start));
        }
        let calls = [call(high, Role::Launches), call(1, Role::Launches)];
        let calls = Calls::new(at(100)..at(200), [calls]);
        // The last is of after the window.
        assert_eq!(taken(&mut gathered, &calls), [high, high + 3, 1]);
    }

    #[test]
    fn a_window_leaves_to_the_next_what_its_own_calls_did_not_cause() {
        let mut gathered = Gathered::default();
        for (id, start) in [(20, 150), (21, 199)] {
            gathered.add(work(id, start));
        }
        // The second was launched while the windows changed.
        let mut first = Calls::new(at(100)..at(200), [[call(20, Role::Launches)]]);
        first.followed = true;
        assert_eq!(taken(&mut gathered, &first), [20]);
        let second = Calls::new(at(200)..at(300), [[call(21, Role::Launches)]]);
        assert_eq!(taken(&mut gathered, &second), [21]);
    }

    #[test]
    fn what_was_asked_for_before_the_window_is_not_of_it() {
        let mut gathered = Gathered::default();
        for (id, start) in [(20, 150), (21, 160), (22, 170)] {
            gathered.add(work(id, start));
        }
        let calls = [call(20, Role::Launches), call(21, Role::OfBefore), call(22, Role::Launches)];
        let calls = Calls::new(at(100)..at(200), [calls]);
        assert_eq!(taken(&mut gathered, &calls), [20, 22]);
    }

    #[test]
    fn a_thread_that_was_suspended_does_not_bring_in_what_others_launched_before_the_window() {
        let mut gathered = Gathered::default();
        // The first got its number long before the window and entered in it. The last was not seen.
        for (id, start) in [(20, 150), (21, 160), (29, 165), (30, 170), (31, 180), (32, 190)] {
            gathered.add(work(id, start));
        }
        let mut calls = Calls::new(
            at(100)..at(200),
            [[call(20, Role::Launches), call(30, Role::Launches), call(32, Role::Launches)]],
        );
        calls.last_before = 29;
        assert_eq!(taken(&mut gathered, &calls), [20, 30, 31, 32]);
    }

    #[test]
    fn a_window_takes_nothing_by_a_correlation_that_several_launches_have() {
        let mut gathered = Gathered::default();
        // All work has the same one, as seen on an H200: that of the window, and that of all windows after it.
        for start in [150, 160, 250, 350] {
            gathered.add(work(20, start));
        }
        gathered.add(work(21, 170));
        let calls = [call(20, Role::Launches), call(20, Role::Launches), call(21, Role::Launches)];
        let calls = Calls::new(at(100)..at(200), [calls]);
        assert!(calls.are_ambiguous());
        assert_eq!(gathered.missing(&calls), Missing { launches: 0, copies: 0 });
        let taken = gathered.take(&calls);
        assert_eq!((taken.work.len(), taken.losses.gpu_unfinished), (1, 2));
        assert_eq!(taken.work[0].correlation, 21);
    }

    #[test]
    fn launches_that_failed_or_were_captured_are_not_waited_for() {
        let failed = Call { failed: true, ..call(1, Role::Launches) };
        let calls = [
            vec![failed, call(2, Role::Launches), call(3, Role::BeginsCapture), call(4, Role::Launches)],
            vec![call(5, Role::Launches), call(6, Role::EndsCapture), call(7, Role::Launches)],
        ];
        let calls = Calls::new(at(100)..at(200), calls);
        assert_eq!(calls.launches, [2, 7]);
        let mut gathered = Gathered::default();
        gathered.add(work(2, 150));
        assert_eq!(gathered.missing(&calls).launches, 1);
        assert_eq!(gathered.take(&calls).losses.gpu_unfinished, 1);
    }
}
