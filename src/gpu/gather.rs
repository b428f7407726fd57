//! GPU records that the GPU's library has returned, in any order, and that no window has taken yet.

use super::calls::{Calls, Owner};
use crate::{
    gallop_search::GallopSearch,
    recording::{GpuRecord, GpuRecording, OverheadRecord, WaitRecord, WorkRecord},
    trace::{WaitData, WorkData},
};
use std::cell::Cell;

/// Records that no window has taken yet.
#[derive(Debug, Default)]
pub(crate) struct Gathered {
    work: Vec<WorkRecord>,
    waits: Vec<WaitRecord>,
    overheads: Vec<OverheadRecord>,
}

/// The number of calls that have no record yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Missing {
    pub(crate) launches: usize,
    pub(crate) copies: usize,
}

/// Takes the records of this window, and drops those of no window.
fn take<T>(from: &mut Vec<T>, owner: impl Fn(&T) -> Owner) -> Vec<T> {
    // Usually all records belong to this window, and a million records need not be moved.
    if from.iter().all(|record| owner(record) == Owner::ThisWindow) {
        return std::mem::take(from);
    }
    from.retain(|record| owner(record) != Owner::NoWindow);
    from.extract_if(.., |record| owner(record) == Owner::ThisWindow).collect()
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

    /// Estimates how many bytes of memory the records and the trace made from them take.
    pub(crate) fn bytes(&self) -> usize {
        self.work.len() * (size_of::<WorkRecord>() + 3 * size_of::<WorkData>() / 2)
            + self.waits.len() * (size_of::<WaitRecord>() + size_of::<WaitData>())
            + self.overheads.len() * size_of::<OverheadRecord>()
    }

    /// Counts the calls that have no record yet.
    pub(crate) fn missing(&self, calls: &Calls) -> Missing {
        let missing = |expected: &[u32]| {
            let mut done = vec![false; expected.len()];
            let mut search = GallopSearch::default();
            for work in self.work.iter().filter(|_| !expected.is_empty()) {
                if let Some(call) = search.find(expected, |call| call.cmp(&work.correlation)) {
                    done[call] = true;
                }
            }
            done.into_iter().filter(|done| !done).count()
        };
        Missing { launches: missing(&calls.launches), copies: missing(&calls.copies) }
    }

    /// Takes the records of a window: those of its calls, whenever they ran, and those that ran in it and whose call
    /// was not seen. Later ones stay; earlier ones are dropped.
    pub(crate) fn take(&mut self, calls: &Calls) -> GpuRecording {
        let mut taken = GpuRecording::default();
        taken.losses.gpu_unfinished += (self.missing(calls).launches + calls.ambiguous.len()) as u64;
        let search = Cell::default();
        taken.work = take(&mut self.work, |work| calls.owner(&search, work.correlation, work.start));
        taken.waits = take(&mut self.waits, |wait| calls.owner(&search, wait.correlation, wait.start));
        taken.overheads = take(&mut self.overheads, |overhead| match overhead.start {
            start if start >= calls.window.end => Owner::Later,
            start if start >= calls.window.start => Owner::ThisWindow,
            _ => Owner::NoWindow,
        });
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::{Calls, Gathered, Missing};
    use crate::{
        gpu::calls::{Call, Role},
        recording::{GpuRecord, WorkRecord},
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
        // By its id, the last was launched just after the window, though by the GPU's clock it ran in the window.
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
        // The last is from after the window.
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
    fn work_of_calls_before_the_window_does_not_belong_to_it() {
        let mut gathered = Gathered::default();
        for (id, start) in [(20, 150), (21, 160), (22, 170)] {
            gathered.add(work(id, start));
        }
        let calls = [call(20, Role::Launches), call(21, Role::BeforeWindow), call(22, Role::Launches)];
        let calls = Calls::new(at(100)..at(200), [calls]);
        assert_eq!(taken(&mut gathered, &calls), [20, 22]);
    }

    #[test]
    fn a_thread_that_was_suspended_does_not_bring_in_what_others_launched_before_the_window() {
        let mut gathered = Gathered::default();
        // The first got its id long before the window, and entered its call in the window. The call of 31 was not seen.
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
        // The work of this window and of all windows after it has the same id, as seen on an H200.
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
