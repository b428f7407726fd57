//! The time of a typical step: the one number that findings, reports and tables of steps share.

use super::{
    quantile::lower_median,
    simulation::{Simulation, mean},
};
use crate::trace::{Step, Trace};
use std::time::Duration;

/// The time of a typical step of a window, without steps that take much longer than the others.
///
/// The duration of a step on the host says little if the host runs ahead of the GPU: it launches work that the GPU does
/// much later. So if there is GPU activity, this is the mean time from the end of one step to the end of the next, on
/// the host or on the GPU, whichever takes longer. Work belongs to the step that launched it. Without GPU activity, it
/// is the median duration.
///
/// [`own`](Self::own) is the time that [`Finding::step`](super::Finding::step) has, too. `Display` writes one line for
/// reports: `a step takes 14.2 ms (14.3 ms as recorded); the host takes 6.10 ms of it and runs ahead of the GPU`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct TypicalStep {
    /// The time of a step as it was recorded.
    pub recorded: Duration,
    /// The time of a step without the cost of recording, by simulation.
    pub own: Duration,
    /// The time of a step on the host alone, as it was recorded.
    pub host: Duration,
    /// The number of steps that were looked at, without the slow ones.
    pub steps: u64,
    /// The number of steps that take much longer than the median, such as those that compile kernels or write a
    /// checkpoint. They are left out.
    pub slow: u64,
}

/// The host runs ahead if it takes less than this part of a step. Hosts that wait for the GPU in each step differ from
/// it by a few percent in the trainings of `tests/fixtures`, as both are means over few steps.
const AHEAD: f64 = 0.9;

impl TypicalStep {
    /// Whether steps take much longer on the GPU than on the host, which does not wait for it in each step.
    #[must_use]
    pub fn host_runs_ahead(&self) -> bool {
        self.host.as_secs_f64() < AHEAD * self.recorded.as_secs_f64()
    }

    /// Returns the typical step of a window that is simulated.
    pub(super) fn of(simulation: &Simulation<'_>) -> Self {
        let typical = |times: Vec<Duration>| {
            let regular = times.into_iter().zip(&simulation.slow).filter(|(_, slow)| !**slow).map(|(time, _)| time);
            match simulation.is_host_only() {
                true => lower_median(regular).unwrap_or_default(),
                false => mean(regular),
            }
        };
        let durations = simulation.steps.iter().map(|id| simulation.trace.steps()[id.index()].duration());
        let slow = simulation.slow.iter().filter(|slow| **slow).count() as u64;
        Self {
            recorded: typical(simulation.step_times(&simulation.recorded())),
            own: typical(simulation.step_times(&simulation.costs())),
            host: typical(durations.collect()),
            steps: simulation.steps.len() as u64 - slow,
            slow,
        }
    }

    /// Returns the typical step of a window that cannot be simulated, by the durations of its whole steps; `None` if it
    /// has none.
    pub(super) fn of_durations(trace: &Trace) -> Option<Self> {
        // There may be millions, and a few are enough to see a typical one.
        let whole = trace.steps().iter().filter(|step| !step.cut().any()).take(Simulation::LARGEST_ON_HOST);
        let mut times: Vec<_> = whole.map(Step::duration).collect();
        let all = times.len();
        let limit = lower_median(times.iter().copied()).unwrap_or_default().as_secs_f64() * Simulation::SLOW;
        times.retain(|time| time.as_secs_f64() <= limit);
        let time = lower_median(times.iter().copied()).unwrap_or_default();
        let [steps, slow] = [times.len(), all - times.len()].map(|count| count as u64);
        (steps > 0).then_some(Self { recorded: time, own: time, host: time, steps, slow })
    }
}

#[cfg(test)]
mod tests {
    use super::TypicalStep;
    use crate::{
        analysis::{Analysis, FindingKind},
        trace::{
            Trace,
            sample::{HostTrace, at, gpu_trace, late_ranks, set_steps},
        },
    };
    use std::time::Duration;

    fn micros(micros: u64) -> Duration {
        Duration::from_micros(micros)
    }

    /// Checks that all findings speak of the same step.
    fn check(trace: &Trace) -> TypicalStep {
        let window = Analysis::of(trace);
        let step = window.typical_step().unwrap();
        // Slow steps are part of the mean that such a finding is about, and those of ranks are about recorded steps.
        let others = [FindingKind::OutlierSteps, FindingKind::ExposedCollective];
        for finding in window.findings().iter().filter(|finding| !others.contains(&finding.kind)) {
            assert_eq!(finding.step, step.own, "{}", finding.title);
        }
        step
    }

    #[test]
    fn findings_speak_of_the_typical_step() {
        let step = check(&gpu_trace());
        assert_eq!((step.recorded, step.host, step.steps, step.slow), (micros(100), micros(100), 2, 0));
        assert!(step.own < step.recorded && step.own > micros(80), "{step:?}");
        assert!(!step.host_runs_ahead());
        late_ranks(&[(20, 1000), (600, 1000)]).iter().for_each(|trace| assert!(check(trace).own > micros(1000)));
        assert_eq!(Analysis::of(&Trace::default()).typical_step(), None);
    }

    #[test]
    fn slow_steps_are_left_out() {
        let mut host = HostTrace::default();
        for micros in [100, 100, 900, 110] {
            host.step(micros).span(0, "data", 0, 80);
        }
        let step = check(&host.trace());
        assert_eq!((step.own, step.recorded, step.host), (micros(100), micros(100), micros(100)));
        assert_eq!((step.steps, step.slow), (3, 1));
    }

    #[test]
    fn without_spans_it_is_the_median_duration() {
        let mut trace = gpu_trace();
        (trace.spans, trace.work, trace.api_calls) = Default::default();
        (trace.allocations, trace.waits) = Default::default();
        set_steps(&mut trace, &[100_000, 120_000, 400_000]);
        let step = Analysis::of(&trace).typical_step().unwrap();
        assert_eq!((step.own, step.recorded, step.steps, step.slow), (micros(100), micros(100), 2, 1));
    }

    #[test]
    fn a_host_that_runs_ahead_has_shorter_steps_than_the_gpu() {
        let mut trace = gpu_trace();
        // The GPU is late: each step's last kernel takes 300 µs, and the host waits for nothing.
        trace.work.retain(|work| work.call.is_some());
        let mut end = at(0);
        for index in 0..trace.work.len() {
            if trace.work[index].stream == trace.work[0].stream {
                trace.work[index].start = end.max(trace.work[index].start);
                end = trace.work[index].start + micros(100);
                trace.work[index].end = end;
            }
        }
        trace.waits.clear();
        let step = check(&trace);
        assert_eq!(step.host, micros(100));
        assert!(step.recorded >= micros(290) && step.host_runs_ahead(), "{step:?}");
    }

    #[test]
    #[cfg(feature = "read")]
    fn a_recorded_training_takes_as_long_as_it_was_measured_to() {
        let path = format!("{}/tests/fixtures/trainings/gelu-by-hand-mlp-fault.json.gz", env!("CARGO_MANIFEST_DIR"));
        let trace = crate::read::read(path).unwrap().into_iter().next().unwrap();
        let step = check(&trace);
        // 14.254 ms without a profiler: see `trainings.jsonl`. On the host, recorded steps take 5.4 to 7.4 ms.
        let millis = |time: Duration| time.as_secs_f64() * 1e3;
        assert!((13.8..14.6).contains(&millis(step.own)), "{step:?}");
        assert!((5.0..8.0).contains(&millis(step.host)) && step.host_runs_ahead(), "{step:?}");
    }
}
