//! Runs the operations of several ranks again, with collectives as joins: each begins when the last rank has arrived.

use super::quantile::lower_median;
use crate::trace::Timestamp;
use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

/// Operations of several ranks, what each of them follows, and which of them are one collective.
#[derive(Clone, Debug, Default)]
pub(super) struct RankTasks {
    /// The tasks that each one follows.
    after: Vec<Vec<usize>>,
    /// The join that each one takes part in.
    join: Vec<Option<usize>>,
    joins: Vec<Vec<usize>>,
}

impl RankTasks {
    /// Adds a task and returns its number.
    pub(super) fn push(&mut self, after: Vec<usize>) -> usize {
        self.after.push(after);
        self.join.push(None);
        self.after.len() - 1
    }

    /// Lets a task follow another.
    pub(super) fn follow(&mut self, task: usize, after: usize) {
        self.after[task].push(after);
    }

    /// Joins tasks: none of them goes on before all have begun.
    pub(super) fn join(&mut self, tasks: Vec<usize>) {
        for &task in &tasks {
            self.join[task] = Some(self.joins.len());
        }
        self.joins.push(tasks);
    }

    /// Returns the other tasks of a join.
    pub(super) fn joined(&self, task: usize) -> &[usize] {
        self.join[task].map_or(&[], |join| &self.joins[join])
    }

    /// Returns the start and the end of each task, if each takes this long once all that it is joined with have begun.
    /// `None` if tasks wait for each other in a circle.
    pub(super) fn run(&self, time: impl Fn(usize) -> Duration) -> Option<Vec<(Duration, Duration)>> {
        let mut left: Vec<_> = self.after.iter().map(Vec::len).collect();
        let mut waiting: Vec<_> = self.joins.iter().map(Vec::len).collect();
        let mut next: Vec<Vec<usize>> = vec![Vec::new(); self.after.len()];
        for (task, after) in self.after.iter().enumerate() {
            after.iter().for_each(|&before| next[before].push(task));
        }
        let mut times = vec![(Duration::ZERO, Duration::ZERO); self.after.len()];
        let mut ready: VecDeque<usize> = (0..left.len()).filter(|&task| left[task] == 0).collect();
        let mut ended = 0;
        while let Some(task) = ready.pop_front() {
            let single = [task];
            let ending = match self.join[task] {
                None => &single[..],
                Some(join) => {
                    waiting[join] -= 1;
                    if waiting[join] > 0 { &[] } else { &self.joins[join][..] }
                }
            };
            let begin = ending.iter().map(|&it| times[it].0).max().unwrap_or_default();
            for &it in ending {
                let end = begin + time(it);
                times[it].1 = end;
                ended += 1;
                for &following in &next[it] {
                    times[following].0 = times[following].0.max(end);
                    left[following] -= 1;
                    if left[following] == 0 {
                        ready.push_back(following);
                    }
                }
            }
        }
        (ended == times.len()).then_some(times)
    }
}

/// The time of one rank in consecutive steps: its own, and that of collectives, each known by a key that all its ranks
/// have in common.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RankTimeline<'a, K> {
    rank: u32,
    /// The time before each collective since the one before it or the start, and that of the collective.
    segments: Vec<(Duration, &'a K, Duration)>,
    /// The time from the last collective to the end.
    rest: Duration,
}

impl<'a, K: Ord> RankTimeline<'a, K> {
    /// Returns the time of a rank from the start of a step to the end of the same or a later one, with the collectives
    /// in it: when they start and end.
    pub(super) fn new(
        rank: u32,
        (start, end): (Timestamp, Timestamp),
        mut calls: Vec<(&'a K, Timestamp, Timestamp)>,
    ) -> Self {
        calls.sort_by_key(|(_, start, _)| *start);
        let mut last = start;
        let mut segments = Vec::with_capacity(calls.len());
        for (key, start, end) in calls {
            segments.push((start.since(last), key, end.since(start.max(last))));
            last = last.max(end);
        }
        Self { rank, segments, rest: end.since(last) }
    }
}

/// Returns how long the slowest rank takes, as simulated, and how long it would take if one rank were not late: if each
/// part of its own time took at most the median of the other ranks. `None` without collectives in common.
///
/// A collective takes the shortest time over its ranks, as that one has not waited. Ranks are taken to have a GPU each:
/// if they share one, those that wait leave it to the late rank, and fixing it saves less.
pub(super) fn time_without_lateness<K: Ord>(ranks: &[RankTimeline<'_, K>], late: u32) -> Option<(Duration, Duration)> {
    let mut tasks = RankTasks::default();
    let mut times: Vec<Duration> = Vec::new();
    let mut joins: BTreeMap<&K, Vec<usize>> = BTreeMap::new();
    // The own times of all ranks before the same collective: the rank, and the task.
    let mut own: BTreeMap<Option<&K>, Vec<(u32, usize)>> = BTreeMap::new();
    for rank in ranks {
        let mut last: Option<usize> = None;
        for &(time, key, duration) in &rank.segments {
            let task = tasks.push(last.into_iter().collect());
            own.entry(Some(key)).or_default().push((rank.rank, task));
            let collective = tasks.push(vec![task]);
            joins.entry(key).or_default().push(collective);
            times.extend([time, duration]);
            last = Some(collective);
        }
        let task = tasks.push(last.into_iter().collect());
        own.entry(None).or_default().push((rank.rank, task));
        times.push(rank.rest);
    }
    if !joins.values().any(|tasks| tasks.len() > 1) {
        return None;
    }
    for collective in joins.into_values() {
        let shortest = collective.iter().map(|&task| times[task]).min().unwrap_or_default();
        collective.iter().for_each(|&task| times[task] = shortest);
        tasks.join(collective);
    }
    let step = |times: &[Duration]| tasks.run(|task| times[task])?.into_iter().map(|(_, end)| end).max();
    let now = step(&times)?;
    for ranks in own.values() {
        let others = ranks.iter().filter(|(rank, _)| *rank != late).map(|(_, task)| times[*task]);
        let Some(median) = lower_median(others.collect::<Vec<_>>()) else { continue };
        for (_, task) in ranks.iter().filter(|(rank, _)| *rank == late) {
            times[*task] = times[*task].min(median);
        }
    }
    Some((now, step(&times)?))
}

#[cfg(test)]
mod tests {
    use super::{RankTasks, RankTimeline, time_without_lateness};
    use crate::{
        analysis::collective_calls,
        trace::{Trace, sample::late_ranks},
    };
    use std::time::Duration;

    /// Returns the time that is saved if a rank is not late, and the time without its lateness.
    fn without(ranks: &[(u64, u64)], late: u32) -> Option<(Duration, Duration)> {
        let traces = late_ranks(ranks);
        let calls: Vec<_> = traces.iter().map(collective_calls).collect();
        let keys: Vec<Vec<_>> =
            calls.iter().map(|calls| calls.iter().map(|it| (it.step, it.number)).collect()).collect();
        let timeline = |(rank, trace): (usize, &Trace)| {
            let (first, last) = (trace.steps().first().unwrap(), trace.steps().last().unwrap());
            let of_rank = calls[rank].iter().zip(&keys[rank]).map(|(call, key)| (key, call.start, call.end));
            RankTimeline::new(rank as u32, (first.start(), last.end()), of_rank.collect())
        };
        let timelines: Vec<_> = traces.iter().enumerate().map(timeline).collect();
        time_without_lateness(&timelines, late).map(|(now, without)| (now - without, without))
    }

    #[test]
    fn without_the_late_rank_all_take_as_long_as_the_others() {
        let (saved, time) = without(&[(100, 1000), (100, 1400), (100, 1000)], 1).unwrap();
        assert_eq!(saved.as_micros(), 4 * 400, "in each of four steps");
        assert_eq!(without(&[(100, 1000); 3], 1), Some((Duration::ZERO, time)));
        // The next slowest rank then counts.
        let (saved, _) = without(&[(100, 1000), (100, 1400), (100, 1300), (100, 1000)], 1).unwrap();
        assert_eq!(saved.as_micros(), 4 * 100);
        assert_eq!(without(&[(100, 1000)], 0), None, "a single rank");
        assert_eq!(without(&[], 0), None);
    }

    #[test]
    fn a_join_begins_with_its_last_task_and_circles_are_found() {
        let mut tasks = RankTasks::default();
        let [a, b] = [tasks.push(vec![]), tasks.push(vec![])];
        let [a2, b2] = [tasks.push(vec![a]), tasks.push(vec![b])];
        tasks.join(vec![a2, b2]);
        let millis = [3, 5, 1, 2].map(Duration::from_millis);
        let times = tasks.run(|task| millis[task]).unwrap();
        assert_eq!(times[a2], (Duration::from_millis(3), Duration::from_millis(6)));
        assert_eq!(times[b2], (Duration::from_millis(5), Duration::from_millis(7)));
        tasks.follow(a, b2);
        assert_eq!(tasks.run(|task| millis[task]), None);
    }
}
