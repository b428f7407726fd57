//! A sample of the durations of unrecorded steps.

use crate::clock::Ticks;

/// A sample of the durations of unrecorded steps, spread evenly over the run.
///
/// It takes every step at first. Whenever it is full, it drops every other one and from then on takes half as many. So
/// its size is bounded, and in a long run it seldom reads the clock.
#[derive(Debug)]
pub(crate) struct StepSample {
    /// The durations in ticks.
    durations: Vec<u64>,
    /// One step in this many is taken.
    stride: u32,
    /// The number of steps to end before the clock is read again.
    until_reading: u32,
    /// The start of the step to be taken, if it was read.
    start: Option<Ticks>,
}

impl StepSample {
    /// The number of steps at which every other one is dropped.
    const CAPACITY: usize = 512;
    /// The number of recent steps among which a typical one is found, and the fewest that suffice.
    const LAST: usize = 15;
    const ENOUGH: usize = 3;
    /// A step that takes longer than so many times the median writes a checkpoint or compiles. Steps of a loader that
    /// is too slow come in turns of short and long ones, up to 1.5 times the median in the trainings of
    /// `tests/fixtures`, and all of them count.
    const RARE: u64 = 4;

    /// Creates an empty sample. The first step is not taken, since a run prepares its data and its model in it.
    pub(crate) fn new() -> Self {
        Self { durations: Vec::with_capacity(Self::CAPACITY), stride: 1, until_reading: 1, start: None }
    }

    /// Ends an unrecorded step and begins another. Returns the moment if the clock was read.
    #[inline]
    pub(crate) fn end_step(&mut self, now: impl FnOnce() -> Ticks) -> Option<Ticks> {
        if self.until_reading > 1 {
            self.until_reading -= 1;
            return None;
        }
        let now = now();
        self.read(now);
        Some(now)
    }

    /// Begins an unrecorded step after a recorded one.
    pub(crate) fn begin_step(&mut self, now: Ticks) {
        self.start = (self.until_reading == 1).then_some(now);
    }

    /// Skips the current step.
    #[inline]
    pub(crate) fn leave_out(&mut self) {
        self.start = None;
    }

    /// Returns the durations in ticks.
    pub(crate) fn durations(&self) -> &[u64] {
        &self.durations
    }

    /// Returns the mean of the recent durations in ticks, if there are enough, without those that are far longer.
    pub(crate) fn typical(&self) -> Option<u64> {
        let mut last = [0; Self::LAST];
        let from = self.durations.len().saturating_sub(Self::LAST);
        let last = &mut last[..self.durations.len() - from];
        last.copy_from_slice(&self.durations[from..]);
        last.sort_unstable();
        let longest = last.get(last.len() / 2)?.saturating_mul(Self::RARE);
        let usual = &last[..last.partition_point(|duration| *duration <= longest)];
        (last.len() >= Self::ENOUGH).then(|| usual.iter().sum::<u64>() / usual.len() as u64)
    }

    fn read(&mut self, now: Ticks) {
        let Some(start) = self.start.take() else {
            self.start = Some(now);
            return;
        };
        self.durations.push(now.0.saturating_sub(start.0));
        // If every other step is dropped, so is the last one, and the next one takes its place.
        let until_next = self.stride;
        if self.durations.len() == Self::CAPACITY {
            let mut keep = false;
            self.durations.retain(|_| {
                keep = !keep;
                keep
            });
            self.stride = self.stride.saturating_mul(2);
        }
        // The next step taken starts where the previous one ended.
        self.start = (until_next == 1).then_some(now);
        self.until_reading = (until_next - 1).max(1);
    }
}

#[cfg(test)]
mod tests {
    use super::StepSample;
    use crate::clock::Ticks;

    #[test]
    fn steps_are_taken_from_one_end_to_the_next() {
        let mut sample = StepSample::new();
        for now in [100, 101, 103] {
            sample.end_step(|| Ticks(now));
        }
        sample.leave_out();
        for now in [200, 204] {
            sample.end_step(|| Ticks(now));
        }
        sample.leave_out();
        sample.begin_step(Ticks(300));
        sample.end_step(|| Ticks(305));
        assert_eq!(sample.durations(), [1, 2, 4, 5]);
        assert_eq!(sample.typical(), Some(3));
    }

    #[test]
    fn a_typical_step_is_one_of_the_last() {
        let mut sample = StepSample::new();
        assert_eq!(sample.typical(), None);
        let mut now = 0;
        for duration in [0, 900, 900].into_iter().chain((0..20).map(|step| 10 + step % 3)) {
            now += duration;
            sample.end_step(|| Ticks(now));
        }
        assert_eq!(sample.typical(), Some(11));
    }

    #[test]
    fn short_and_long_steps_count_and_rare_ones_do_not() {
        let (mut sample, mut now) = (StepSample::new(), 0);
        for duration in [0, 20, 100, 20, 100, 100, 20, 100, 9_000] {
            now += duration;
            sample.end_step(|| Ticks(now));
        }
        assert_eq!(sample.typical(), Some((3 * 20 + 4 * 100) / 7));
    }

    #[test]
    fn a_long_run_is_sampled_evenly_and_the_clock_seldom_read() {
        let (mut sample, mut readings, mut now) = (StepSample::new(), 0, 0);
        for step in 0..1_000_000 {
            now += step;
            sample.end_step(|| {
                readings += 1;
                Ticks(now)
            });
        }
        let durations = sample.durations();
        assert!((StepSample::CAPACITY / 2..StepSample::CAPACITY).contains(&durations.len()), "{}", durations.len());
        let gaps: Vec<_> = durations.windows(2).map(|pair| pair[1] - pair[0]).collect();
        assert!(gaps.iter().all(|&gap| gap == gaps[0]), "{gaps:?}");
        assert!(readings < 10_000, "{readings}");
    }
}
