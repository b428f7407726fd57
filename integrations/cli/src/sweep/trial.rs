//! One value of a sweep, the number of items in its steps, and the figures measured with it.

use crate::{
    achieved::{Achieved, Goal, Price, RunCounters},
    input::Read,
};
use kernspan::{
    Report,
    analysis::{Analysis, Verdict},
};
use serde::Serialize;
use std::{collections::BTreeMap, str::FromStr, time::Duration};

/// One value of the setting: what was measured with it, or why nothing was.
pub(super) struct Trial {
    pub(super) value: String,
    /// The items per step, if known.
    pub(super) items: Option<f64>,
    /// What was achieved of the goal, if both are known.
    pub(super) achieved: Option<Achieved>,
    /// The price of a second, if one was given.
    price: Option<f64>,
    pub(super) result: Result<Measured, String>,
}

impl Trial {
    pub(super) fn new(value: String, result: Result<Measured, String>) -> Self {
        Self { value, items: None, achieved: None, price: None, result }
    }

    pub(super) fn set_items(&mut self, items: Option<&Items>) {
        self.items = items.and_then(|items| items.with(&self.value));
    }

    /// Sets what the run achieved of a goal, and what it cost.
    pub(super) fn set_goal(&mut self, goal: Option<&Goal>, price: Option<Price>) {
        let Ok(Measured { counters, watts, .. }) = &self.result else { return };
        self.achieved = goal.and_then(|goal| counters.achieved(goal, price));
        self.price = price.and_then(|price| price.per_second(*watts));
    }

    pub(super) fn is_measured(&self) -> bool {
        self.result.is_ok()
    }

    /// The value as a number.
    pub(super) fn number(&self) -> Option<f64> {
        self.value.trim().parse().ok().filter(|number: &f64| number.is_finite())
    }

    /// Items per second, or steps per second if the items per step are unknown.
    pub(super) fn throughput(&self) -> Option<f64> {
        let measured = self.result.as_ref().ok()?;
        let seconds = measured.median.as_secs_f64();
        (seconds > 0.0).then(|| self.items.unwrap_or(1.0) / seconds)
    }

    /// Joules for each item, or for each step if the items per step are unknown.
    pub(super) fn joules(&self) -> Option<f64> {
        Some(self.result.as_ref().ok()?.watts? / self.throughput()?)
    }

    /// Items, or steps, for each unit of the currency.
    pub(super) fn per_price(&self) -> Option<f64> {
        Some(self.throughput()? / self.price?)
    }
}

/// Sorts trials by value if all values are numbers.
pub(super) fn sort(trials: &mut [Trial]) {
    if trials.iter().all(|trial| trial.number().is_some()) {
        trials.sort_by(|a, b| a.number().partial_cmp(&b.number()).unwrap_or(std::cmp::Ordering::Equal));
    }
}

/// The number of items in a step, as a product of numbers and the value of the setting.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Items {
    factor: f64,
    /// How many times the value is a factor.
    values: i32,
}

impl Items {
    /// As many items as the value itself.
    pub(super) fn value() -> Self {
        Self { factor: 1.0, values: 1 }
    }

    /// Returns the number of items for a value; `None` if the value is not a number.
    pub(super) fn with(&self, value: &str) -> Option<f64> {
        let value = if self.values == 0 { 1.0 } else { value.trim().parse::<f64>().ok()? };
        let items = self.factor * value.powi(self.values);
        (items.is_finite() && items > 0.0).then_some(items)
    }
}

impl FromStr for Items {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut items = Self { factor: 1.0, values: 0 };
        for part in text.split('*').map(str::trim) {
            match part.parse::<f64>() {
                _ if part == "{}" => items.values += 1,
                Ok(number) if number.is_finite() && number > 0.0 => items.factor *= number,
                _ => return Err(format!("{part:?} is neither {{}} nor a number above 0")),
            }
        }
        Ok(items)
    }
}

/// The figures of the steps of one run.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Measured {
    /// The number of whole steps recorded.
    pub(super) steps: u64,
    /// The duration of a step: median, quartiles, mean.
    pub(super) median: Duration,
    pub(super) lower_quartile: Duration,
    pub(super) upper_quartile: Duration,
    pub(super) mean: Duration,
    /// The time GPUs were busy, in percent of the steps.
    pub(super) gpu_busy: Option<f64>,
    /// The model FLOPs utilisation in percent, if known.
    pub(super) mfu: Option<f64>,
    /// The peak number of bytes in use on a GPU.
    pub(super) peak_memory: Option<u64>,
    /// Kernels, copies and fills that a step launches, on average.
    pub(super) launches: Option<f64>,
    pub(super) bottleneck: Option<&'static str>,
    /// The mean power of the GPUs and CPU packages that are known.
    pub(super) watts: Option<f64>,
    #[serde(skip)]
    pub(super) counters: RunCounters,
    /// Where the time of a step went on average: see [`kernspan::analysis::StepParts`].
    pub(super) parts: BTreeMap<&'static str, Duration>,
    /// The part `host` by the name of the innermost span.
    pub(super) host_by_span: BTreeMap<String, Duration>,
}

impl Measured {
    /// Returns the figures of a run, or the reason why there are none.
    pub(super) fn of(read: &Read) -> Result<Self, String> {
        let report = read.report();
        let step = report.step_time().filter(|step| !step.mean.is_zero());
        let Some(step) = step else { return Err("no whole step was recorded".to_owned()) };
        let counters = RunCounters::of(read.traces());
        let mut measured = Self {
            steps: report.steps().count(),
            median: step.median,
            lower_quartile: step.lower,
            upper_quartile: step.upper,
            mean: step.mean,
            parts: report.step_parts().unwrap_or_default().iter().map(|(part, time)| (part.as_str(), time)).collect(),
            watts: counters.watts,
            counters,
            peak_memory: report.memory().peaks().map(|peak| peak.in_use).max(),
            ..Self::default()
        };
        measured.add_gpus(&report);
        measured.add_spans(read);
        Ok(measured)
    }

    fn add_gpus(&mut self, report: &Report) {
        let steps = report.gpu_steps();
        let devices = steps.devices();
        let Some(busiest) = devices.iter().max_by_key(|device| device.usage.busy) else { return };
        let sum = |time: fn(&kernspan::analysis::GpuUsage) -> Duration| -> f64 {
            devices.iter().map(|device| time(&device.usage).as_secs_f64()).sum()
        };
        self.gpu_busy = Some(100.0 * sum(|usage| usage.busy) / sum(|usage| usage.duration).max(f64::MIN_POSITIVE));
        // Operations are known per GPU only if a single GPU worked.
        self.mfu = if let [only] = devices { only.usage.mfu() } else { None };
        let launches = devices.iter().map(|device| device.usage.launches as f64 / device.steps.max(1) as f64);
        self.launches = Some(launches.sum());
        self.bottleneck = Some(Verdict::as_str(busiest.usage.verdict));
    }

    fn add_spans(&mut self, read: &Read) {
        let mut rows = 0_u32;
        for step in read.traces().flat_map(|trace| Analysis::of(trace).step_breakdown().to_vec()) {
            rows = rows.saturating_add(1);
            for (name, time) in &step.host_by_span {
                match self.host_by_span.get_mut(*name) {
                    Some(sum) => add(sum, *time),
                    None => drop(self.host_by_span.insert((*name).to_owned(), *time)),
                }
            }
        }
        let mean = |sum: &mut Duration| *sum /= rows.max(1);
        self.host_by_span.values_mut().for_each(mean);
    }
}

fn add(sum: &mut Duration, time: Duration) {
    *sum = sum.saturating_add(time);
}

#[cfg(test)]
mod tests {
    use super::Items;

    #[test]
    fn items_are_a_product() {
        let items = |text: &str, value| text.parse::<Items>().unwrap().with(value);
        assert_eq!([items("{}", "16"), items("{}*8", "16"), items("64", "x")], [Some(16.0), Some(128.0), Some(64.0)]);
        assert_eq!([items("{}", "x"), items("{}", "0"), items("{}", "inf")], [None; 3]);
        for wrong in ["", "{}+1", "-1", "nan", "2**3"] {
            assert!(wrong.parse::<Items>().is_err(), "{wrong}");
        }
    }
}
