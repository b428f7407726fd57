//! The use of a GPU by processes, from the samples that NVML has of each.

use std::{collections::BTreeMap, time::Duration};

/// The samples of a GPU's processes that have been read.
#[derive(Debug, Default)]
pub(super) struct GpuProcesses {
    /// The newest one, in NVML's microseconds, and when it was read.
    newest: Option<(u64, Duration)>,
    /// The newest one of the first reading: those up to it may be from before the run. 0 if that had none.
    first: Option<u64>,
}

/// The use of the SMs by a process.
#[derive(Clone, Copy, Debug)]
pub(super) struct ProcessSample {
    pub(super) process: u32,
    /// When it was taken, in microseconds of NVML's own clock.
    pub(super) micros: u64,
    pub(super) percent: u32,
}

impl GpuProcesses {
    /// How far back a sample counts. NVML makes some five of them a second, but the first ones of a process may come
    /// 1.5 s late, and none in which it did nothing (seen on an H200 with driver 580). For each process, NVML returns
    /// the mean of its samples since the given time.
    const BACK: Duration = Duration::from_secs(1);

    /// Returns the moment from which on samples are wanted, by NVML's clock.
    ///
    /// It is not that of the newest sample: one of another process may come later, though it is older.
    pub(super) fn since(&self, at: Duration) -> u64 {
        self.newest.map_or(0, |(newest, read)| {
            newest.saturating_add(micros(at.saturating_sub(read))).saturating_sub(micros(Self::BACK))
        })
    }

    /// Adds a reading. Returns the use by processes other than this one, in percent: by the latest sample of each. That
    /// is not known from the first reading.
    pub(super) fn use_of_others(&mut self, own: u32, samples: Vec<ProcessSample>, at: Duration) -> Option<f64> {
        let newest = samples.iter().map(|sample| sample.micros).max();
        let known = self.newest.map_or(0, |(newest, _)| newest);
        if let Some(newest) = newest.filter(|newest| *newest > known) {
            self.newest = Some((newest, at));
        }
        let Some(first) = self.first else {
            self.first = Some(newest.unwrap_or(0));
            return None;
        };
        let mut latest: BTreeMap<u32, (u64, u32)> = BTreeMap::new();
        for ProcessSample { process, micros, percent } in samples {
            if process != own && micros > first {
                let known = latest.entry(process).or_insert((micros, percent));
                *known = (*known).max((micros, percent));
            }
        }
        let all = latest.values().map(|(_, percent)| *percent).fold(0, u32::saturating_add);
        Some(f64::from(all.min(100)))
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::{GpuProcesses, ProcessSample};
    use std::time::Duration;

    const OWN: u32 = 7;
    /// A moment by NVML's clock, and one by ours.
    const NVML: u64 = 1_795_000_000_000_000;
    const START: Duration = Duration::from_secs(2);

    fn samples(of: &[(u32, u64, u32)]) -> Vec<ProcessSample> {
        of.iter().map(|&(process, micros, percent)| ProcessSample { process, micros, percent }).collect()
    }

    /// Returns what has read a sample of this process.
    fn begun() -> GpuProcesses {
        let mut processes = GpuProcesses::default();
        assert_eq!(processes.since(START), 0);
        assert_eq!(processes.use_of_others(OWN, samples(&[(OWN, NVML, 90)]), START), None);
        processes
    }

    #[test]
    fn the_latest_sample_of_each_other_process_counts() {
        let mut processes = begun();
        let mut of = |of: &[(u32, u64, u32)]| {
            let later: Vec<_> =
                of.iter().map(|&(process, micros, percent)| (process, NVML + micros, percent)).collect();
            processes.use_of_others(OWN, samples(&later), START).unwrap()
        };
        // Not minus zero.
        assert_eq!(of(&[]).to_string(), "0");
        assert_eq!(of(&[(OWN, 5, 90)]), 0.0);
        assert_eq!(of(&[(8, 9, 20), (OWN, 5, 90), (8, 3, 60), (9, 1, 5)]), 25.0);
        assert_eq!(of(&[(8, 9, u32::MAX), (9, 9, 60)]), 100.0);
    }

    #[test]
    fn samples_of_a_second_are_wanted_by_the_clock_of_nvml() {
        let mut processes = begun();
        let after = |millis| START + Duration::from_millis(millis);
        assert_eq!(processes.since(after(100)), NVML - 900_000);
        assert_eq!(processes.since(after(3000)), NVML + 2_000_000);
        // An older sample of another process changes nothing, and counts.
        assert_eq!(
            processes.use_of_others(OWN, samples(&[(8, NVML + 1, 30), (OWN, NVML + 9, 5)]), after(200)),
            Some(30.0)
        );
        assert_eq!(processes.use_of_others(OWN, samples(&[(8, NVML + 5, 40)]), after(300)), Some(40.0));
        assert_eq!(processes.since(after(300)), NVML + 9 + 100_000 - 1_000_000);
    }

    #[test]
    fn samples_from_before_the_run_do_not_count() {
        let mut processes = GpuProcesses::default();
        let mut of = |of: &[(u32, u64, u32)]| processes.use_of_others(OWN, samples(of), START);
        assert_eq!(
            [of(&[(8, NVML, 99)]), of(&[(8, NVML, 99)]), of(&[(8, NVML + 1, 50)])],
            [None, Some(0.0), Some(50.0)]
        );
        // If there were none, all that come are new.
        let mut processes = GpuProcesses::default();
        let mut of = |of: &[(u32, u64, u32)]| processes.use_of_others(OWN, samples(of), START);
        assert_eq!([of(&[]), of(&[(8, NVML, 50)])], [None, Some(50.0)]);
    }
}
