//! The typical step of a run: over all its windows, and as text.

use super::units;
use crate::analysis::TypicalStep;
use std::{fmt, time::Duration};

/// The typical steps of windows, added up.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct TypicalSteps {
    /// The times of the windows' typical steps, each times the number of the window's steps.
    sum: TypicalStep,
    /// The number of steps of all these windows.
    steps: u64,
}

impl TypicalSteps {
    /// Adds a window with this many whole steps.
    pub(super) fn add(&mut self, step: TypicalStep, steps: u64) {
        let factor = u32::try_from(steps).unwrap_or(u32::MAX);
        let add = |sum: &mut Duration, time: Duration| *sum = sum.saturating_add(time.saturating_mul(factor));
        add(&mut self.sum.recorded, step.recorded);
        add(&mut self.sum.own, step.own);
        add(&mut self.sum.host, step.host);
        self.sum.steps += step.steps;
        self.sum.slow += step.slow;
        self.steps += steps;
    }

    /// Returns the mean over windows, by their steps; `None` if there is no step.
    pub(super) fn mean(&self) -> Option<TypicalStep> {
        let steps = u32::try_from(self.steps).unwrap_or(u32::MAX);
        let mut mean = self.sum;
        for time in [&mut mean.recorded, &mut mean.own, &mut mean.host] {
            *time = time.checked_div(steps)?;
        }
        Some(mean)
    }
}

impl fmt::Display for TypicalStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [own, recorded, host] = [self.own, self.recorded, self.host].map(units::time);
        write!(f, "a step takes {own}")?;
        if recorded != own {
            write!(f, " ({recorded} as recorded)")?;
        }
        if self.host_runs_ahead() {
            write!(f, "; the host takes {host} of it and runs ahead of the GPU")?;
        }
        match self.slow {
            0 => Ok(()),
            1 => f.write_str("; 1 slow step is left out"),
            slow => write!(f, "; {slow} slow steps are left out"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::TypicalSteps;
    use crate::{
        Report,
        analysis::TypicalStep,
        trace::sample::{gpu_trace, late_ranks},
    };
    use std::time::Duration;

    fn step([own, recorded, host]: [u64; 3], slow: u64) -> TypicalStep {
        let [own, recorded, host] = [own, recorded, host].map(Duration::from_millis);
        TypicalStep { own, recorded, host, slow, steps: 4, ..TypicalStep::default() }
    }

    #[test]
    fn the_text_says_what_is_to_be_said() {
        assert_eq!(step([10, 10, 10], 0).to_string(), "a step takes 10.0 ms");
        assert_eq!(
            step([13, 17, 17], 1).to_string(),
            "a step takes 13.0 ms (17.0 ms as recorded); 1 slow step is left out"
        );
        assert_eq!(
            step([14, 14, 6], 2).to_string(),
            "a step takes 14.0 ms; the host takes 6.00 ms of it and runs ahead of the GPU; 2 slow steps are left out"
        );
    }

    #[test]
    fn windows_count_by_their_steps() {
        let mut all = TypicalSteps::default();
        assert_eq!(all.mean(), None);
        all.add(step([10, 20, 20], 0), 4);
        all.add(step([40, 80, 50], 1), 12);
        let mean = all.mean().unwrap();
        assert_eq!([mean.own, mean.recorded].map(|time| time.as_micros()), [32_500, 65_000]);
        assert_eq!((mean.host.as_micros(), mean.steps, mean.slow), (42_500, 8, 1));
    }

    #[test]
    fn a_run_takes_as_long_as_its_slowest_rank() {
        let traces = late_ranks(&[(20, 1000), (600, 1000)]);
        let of = |traces: &[crate::Trace]| Report::of(traces).typical_step();
        let [first, second] = [0, 1].map(|rank| of(&traces[rank..=rank]).unwrap());
        assert_eq!(of(&traces).unwrap().own, first.own.max(second.own));
        assert_eq!(of(&[]), None);
    }

    #[test]
    fn all_texts_have_the_same_step() {
        let report = Report::of([&gpu_trace()]);
        let line = report.typical_step().unwrap().to_string();
        assert!(report.to_string().contains(&format!("\n{line}\n")), "{report}");
        let advice = report.advice().width(200).to_string();
        assert!(advice.starts_with(&format!("{line}\n\n1. ")), "{advice}");
        let step = super::units::time(report.typical_step().unwrap().own);
        assert!(report.findings().iter().all(|finding| super::units::time(finding.step) == step));
    }
}
