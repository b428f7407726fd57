//! The CPU time of every thread of the process in a window, with those that have no spans.

use std::{
    collections::{BTreeMap, HashMap},
    time::{Duration, Instant},
};

/// The prefix of the counters with the CPU time of threads, in percent of the time of their window.
pub(crate) const THREAD_COUNTER: &str = "cpu.thread.";

/// Reads the CPU time of all threads when a window opens and closes.
#[derive(Debug, Default)]
pub(crate) struct ThreadMeter {
    /// The last reading: when it was taken, and the nanoseconds of each thread by its id.
    last: Option<(Instant, HashMap<u32, u64>)>,
}

/// The CPU time of the threads of one name in a window.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ThreadUsage {
    pub(crate) name: String,
    /// In percent of the time between both readings.
    pub(crate) percent: f64,
}

/// A thread of the process.
#[derive(Clone, Debug)]
#[cfg_attr(
    not(all(feature = "cpu-time", target_os = "linux")),
    allow(dead_code, reason = "threads are read on Linux only")
)]
struct ThreadReading {
    id: u32,
    name: String,
    nanos: u64,
}

impl ThreadMeter {
    /// The most names of a window. The threads of all others count as one.
    const NAMES: usize = 64;

    /// Reads when a window opens.
    pub(crate) fn open(&mut self) {
        let threads = system::read();
        self.last = Some((Instant::now(), threads.into_iter().map(|thread| (thread.id, thread.nanos)).collect()));
    }

    /// Reads when a window closes. Returns what the threads used that are alive, by name; those that used nothing are
    /// left out.
    pub(crate) fn close(&mut self) -> Vec<ThreadUsage> {
        match self.last.take() {
            Some((opened, before)) => usage(&before, system::read(), opened.elapsed()),
            None => Vec::new(),
        }
    }
}

/// Returns what threads used since an earlier reading.
fn usage(before: &HashMap<u32, u64>, now: Vec<ThreadReading>, elapsed: Duration) -> Vec<ThreadUsage> {
    let mut names: BTreeMap<String, u64> = BTreeMap::new();
    for ThreadReading { id, name, nanos } in now {
        // A thread that has started in the window, or that has the id of one that has ended, began with nothing.
        let used = before.get(&id).and_then(|before| nanos.checked_sub(*before)).unwrap_or(nanos);
        *names.entry(name).or_default() += used;
    }
    let mut used: Vec<_> = names.into_iter().filter(|(_, nanos)| *nanos > 0).collect();
    used.sort_by_key(|(_, nanos)| std::cmp::Reverse(*nanos));
    let others: u64 = used.iter().skip(ThreadMeter::NAMES).map(|(_, nanos)| nanos).sum();
    used.truncate(ThreadMeter::NAMES);
    if others > 0 {
        used.push(("[others]".to_owned(), others));
    }
    let percent = |nanos: u64| 100.0 * nanos as f64 / elapsed.as_nanos().max(1) as f64;
    used.into_iter().map(|(name, nanos)| ThreadUsage { name, percent: percent(nanos) }).collect()
}

/// Linux has the CPU time of each thread in nanoseconds, as of the scheduler's last look at it: up to four milliseconds
/// ago for a thread that runs. A kernel without `CONFIG_SCHED_INFO` does not have it.
#[cfg(all(feature = "cpu-time", target_os = "linux"))]
mod system {
    use super::ThreadReading;
    use std::fs;

    pub(super) fn read() -> Vec<ThreadReading> {
        let threads = fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
        let thread = |entry: fs::DirEntry| {
            let times = fs::read_to_string(entry.path().join("schedstat")).ok()?;
            Some(ThreadReading {
                id: entry.file_name().to_str()?.parse().ok()?,
                name: fs::read_to_string(entry.path().join("comm")).ok()?.trim_end().to_owned(),
                nanos: times.split(' ').next()?.parse().ok()?,
            })
        };
        // A thread may end meanwhile.
        threads.filter_map(thread).collect()
    }
}

#[cfg(not(all(feature = "cpu-time", target_os = "linux")))]
mod system {
    use super::ThreadReading;

    pub(super) fn read() -> Vec<ThreadReading> {
        Vec::new()
    }
}

#[cfg(test)]
mod tests {
    use super::{ThreadMeter, ThreadReading, usage};
    use std::{collections::HashMap, time::Duration};

    fn thread(id: u32, name: &str, nanos: u64) -> ThreadReading {
        ThreadReading { id, name: name.to_owned(), nanos }
    }

    #[test]
    fn threads_of_one_name_are_one_entry() {
        let before = HashMap::from([(1, 500), (2, 100), (4, 900)]);
        // Thread 3 is new, thread 4 has the id of one that has ended, and thread 5 did nothing.
        let now = [(1, "main", 700), (2, "worker", 200), (3, "worker", 300), (4, "new", 50), (5, "idle", 0)];
        let now = now.map(|(id, name, nanos)| thread(id, name, nanos)).to_vec();
        let used = usage(&before, now, Duration::from_nanos(1000));
        let used: Vec<_> = used.iter().map(|used| (used.name.as_str(), used.percent)).collect();
        assert_eq!(used, [("worker", 40.0), ("main", 20.0), ("new", 5.0)]);
    }

    #[test]
    fn the_number_of_names_is_bounded() {
        let now = (1..=100).map(|id| thread(id, &id.to_string(), 10)).collect();
        let used = usage(&HashMap::new(), now, Duration::from_nanos(1000));
        assert_eq!(used.len(), ThreadMeter::NAMES + 1);
        assert_eq!(used.iter().map(|used| used.percent).sum::<f64>().round(), 100.0);
    }
}
