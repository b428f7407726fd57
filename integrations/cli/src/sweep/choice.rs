//! The best value of a sweep, and the reasons.

use super::trial::{Measured, Trial};
use kernspan::report::units;
use std::time::Duration;

/// The best value, and why the next one does not pay off.
#[derive(Debug, Default)]
pub(super) struct Choice {
    /// The index of the best value.
    pub(super) best: Option<usize>,
    /// One sentence each.
    pub(super) why: Vec<String>,
}

impl Choice {
    /// The smallest gain in throughput, in percent, that makes a value worth it.
    pub(super) const WORTH: f64 = 5.0;

    /// Chooses the first value whose throughput is within `worth` percent of the highest. If values have no order, it
    /// chooses the one with the highest throughput.
    pub(super) fn of(trials: &[Trial], worth: f64) -> Self {
        let rates: Vec<_> = trials.iter().map(|trial| trial.throughput().unwrap_or(0.0)).collect();
        let highest = rates.iter().copied().fold(0.0, f64::max);
        if highest <= 0.0 {
            return Self::default();
        }
        let are_ordered = trials.iter().all(|trial| trial.number().is_some());
        let enough = if are_ordered { highest * (1.0 - worth.clamp(0.0, 100.0) / 100.0) } else { highest };
        let Some(best) = rates.iter().position(|&rate| rate > 0.0 && rate >= enough) else { return Self::default() };
        let mut why = Vec::new();
        if are_ordered {
            let before = (0..best).rev().find(|&index| trials[index].is_measured());
            why.extend(before.and_then(|before| Step::new(&trials[before], &trials[best])).map(|step| step.gain()));
            match trials.get(best + 1) {
                None => why.push(last(&trials[best])),
                Some(next) => why.push(match (&next.result, Step::new(&trials[best], next)) {
                    (Err(problem), _) => format!("{} has no result: {problem}", next.value),
                    (_, Some(step)) => step.explain(),
                    (_, None) => String::new(),
                }),
            }
        } else {
            let others = (0..trials.len()).filter(|&index| index != best && rates[index] > 0.0);
            let second = others.max_by(|&a, &b| rates[a].total_cmp(&rates[b]));
            why.extend(second.and_then(|second| Step::new(&trials[best], &trials[second])).map(|step| step.explain()));
        }
        why.retain(|sentence| !sentence.is_empty());
        Self { best: Some(best), why }
    }
}

/// Notes that no larger value was tried.
fn last(best: &Trial) -> String {
    let busy = match &best.result {
        Ok(Measured { gpu_busy: Some(busy), bottleneck: Some(bottleneck), .. }) => {
            format!("; the GPU is busy {busy:.0} % of the step there ({bottleneck})")
        }
        _ => String::new(),
    };
    format!("no value above {} was tried{busy}", best.value)
}

/// The change from one value to another.
struct Step<'a> {
    from: &'a Trial,
    to: &'a Trial,
    before: &'a Measured,
    after: &'a Measured,
    /// The throughput of `to` relative to `from`.
    gain: f64,
}

impl<'a> Step<'a> {
    fn new(from: &'a Trial, to: &'a Trial) -> Option<Self> {
        let (Ok(before), Ok(after)) = (&from.result, &to.result) else { return None };
        Some(Self { from, to, before, after, gain: to.throughput()? / from.throughput()? })
    }

    /// Describes how throughput changes: `32 → 64: 81 % more items/s`.
    fn gain(&self) -> String {
        let rate = if self.from.items.is_some() && self.to.items.is_some() { "items/s" } else { "steps/s" };
        let change = match self.gain {
            gain if (gain - 1.0).abs() < 0.005 => format!("the same {rate}"),
            gain if gain >= 2.0 => format!("{gain:.1} times the {rate}"),
            gain if gain >= 1.0 => format!("{:.0} % more {rate}", 100.0 * (gain - 1.0)),
            gain => format!("{:.0} % fewer {rate}", 100.0 * (1.0 - gain)),
        };
        format!("{} → {}: {change}", self.from.value, self.to.value)
    }

    /// Describes how throughput and memory change, and where the time of a longer step goes.
    fn explain(&self) -> String {
        let mut text = self.gain();
        if let (Some(before), Some(after @ 1..)) =
            (self.before.peak_memory.filter(|&it| it > 0), self.after.peak_memory)
        {
            text += &format!(" for {:.1} times the memory", after as f64 / before as f64);
        }
        if self.is_within_spread() {
            text += " (the quartiles of the steps overlap)";
        }
        let longer = self.after.median.as_secs_f64() / self.before.median.as_secs_f64();
        text += &format!("; the step takes {longer:.2} times as long");
        if let (Some(before), Some(after)) = (self.from.items, self.to.items) {
            text += &format!(" for {:.2} times the items", after / before);
        }
        if let Some(more) = self.most_of_growth() {
            text += &more;
        }
        if let (Some(busy), Some(bottleneck)) = (self.before.gpu_busy, self.before.bottleneck) {
            let already = if busy >= 90.0 { " already" } else { "" };
            text +=
                &format!("; the GPU is busy {busy:.0} % of the step at {}{already} ({bottleneck})", self.from.value);
        }
        text
    }

    /// Whether the throughput quartiles of both overlap.
    fn is_within_spread(&self) -> bool {
        let range = |trial: &Trial, measured: &Measured| {
            let items = trial.items.unwrap_or(1.0);
            [measured.upper_quartile, measured.lower_quartile].map(|time| items / time.as_secs_f64())
        };
        let ([low, high], [other_low, other_high]) = (range(self.from, self.before), range(self.to, self.after));
        low <= other_high && other_low <= high
    }

    /// Describes which part of the step grows the most, if the step grows.
    fn most_of_growth(&self) -> Option<String> {
        let all = self.after.mean.checked_sub(self.before.mean).filter(|growth| *growth * 20 > self.before.mean)?;
        let of = |parts: &Measured, name: &str| parts.parts.get(name).copied().unwrap_or_default();
        let growth = |name: &str| of(self.after, name).saturating_sub(of(self.before, name));
        let (name, time) = self.after.parts.keys().map(|&name| (name, growth(name))).max_by_key(|(_, time)| *time)?;
        let in_spans = if name == "host" { self.span_that_grows().unwrap_or_default() } else { String::new() };
        let (time, all, part) = (units::time(time), units::time(all), part_name(name));
        Some(format!("; of {all} more on average, {time} are {part}{in_spans}"))
    }

    /// Describes in which span the host takes longer.
    fn span_that_grows(&self) -> Option<String> {
        let before = |name: &str| self.before.host_by_span.get(name).copied().unwrap_or_default();
        let growth = |(name, time): (&'a String, &Duration)| (name, time.saturating_sub(before(name)));
        let (name, time) = self.after.host_by_span.iter().map(growth).max_by_key(|(_, time)| *time)?;
        (!time.is_zero()).then(|| format!(", {} of them in the span {name}", units::time(time)))
    }
}

/// Describes a part of the step, for the end of a sentence.
fn part_name(name: &'static str) -> &'static str {
    match name {
        "compute" => "computing on the GPU",
        "communication" => "communication between GPUs",
        "copies" => "copying",
        "input" => "waiting for input",
        "synchronizing" => "calls that wait for the GPU",
        "launching" => "launching work",
        "host" => "the host",
        "other" => "outside of all spans",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::{super::trial::Trial, Choice, Measured};
    use std::{collections::BTreeMap, time::Duration};

    /// A run with steps of so many milliseconds, all of them on the GPU.
    fn trial(value: &str, millis: u64) -> Trial {
        let median = Duration::from_millis(millis);
        let parts = BTreeMap::from([("compute", median), ("host", Duration::ZERO)]);
        let quartiles = (median - Duration::from_micros(100), median + Duration::from_micros(100));
        let measured = Measured {
            steps: 10,
            median,
            mean: median,
            lower_quartile: quartiles.0,
            upper_quartile: quartiles.1,
            parts,
            ..Measured::default()
        };
        let mut trial = Trial::new(value.to_owned(), Ok(measured));
        trial.items = value.parse().ok();
        trial
    }

    fn with_gpu(mut trial: Trial, busy: f64, memory: u64) -> Trial {
        if let Ok(measured) = &mut trial.result {
            measured.gpu_busy = Some(busy);
            measured.bottleneck = Some(if busy < 90.0 { "host-bound" } else { "GPU-bound" });
            measured.peak_memory = Some(memory);
        }
        trial
    }

    #[test]
    fn the_best_is_the_first_that_is_nearly_as_good_as_any() {
        let trials = [
            with_gpu(trial("16", 10), 50.0, 100),
            with_gpu(trial("32", 11), 97.0, 200),
            with_gpu(trial("64", 21), 99.0, 390),
        ];
        let choice = Choice::of(&trials, 5.0);
        assert_eq!(choice.best, Some(1));
        assert_eq!(
            choice.why,
            [
                "16 → 32: 82 % more items/s",
                "32 → 64: 5 % more items/s for 1.9 times the memory; the step takes 1.91 times as long for 2.00 times \
                 the items; of 10.0 ms more on average, 10.0 ms are computing on the GPU; the GPU is busy 97 % of the \
                 step at 32 already (GPU-bound)"
            ]
        );
        assert_eq!(Choice::of(&trials, 4.0).best, Some(2), "5 % are worth it");
        assert_eq!(
            Choice::of(&trials, 4.0).why[1],
            "no value above 64 was tried; the GPU is busy 99 % of the step there (GPU-bound)"
        );
    }

    #[test]
    fn a_value_that_failed_is_not_the_best() {
        let trials =
            [trial("16", 10), Trial::new("32".to_owned(), Err("the program failed: exit status: 1".to_owned()))];
        let choice = Choice::of(&trials, 5.0);
        assert_eq!((choice.best, choice.why.len()), (Some(0), 1));
        assert_eq!(choice.why[0], "32 has no result: the program failed: exit status: 1");
        assert_eq!(Choice::of(&trials[1..], 5.0).best, None);
        assert_eq!(Choice::of(&[], 5.0).best, None);
    }

    #[test]
    fn values_without_an_order_are_compared_with_the_second() {
        let choice = Choice::of(&[trial("bf16", 12), trial("f16", 10), trial("f32", 30)], 50.0);
        assert_eq!(choice.best, Some(1));
        assert_eq!(
            choice.why,
            ["f16 → bf16: 17 % fewer steps/s; the step takes 1.20 times as long; of 2.00 ms more on average, 2.00 ms \
                 are computing on the GPU"]
        );
    }

    #[test]
    fn a_gain_within_the_spread_is_called_so() {
        let mut trials = [trial("1", 10), trial("2", 20)];
        trials.iter_mut().for_each(|trial| trial.items = Some(1.0));
        trials[1].result = trials[0].result.clone();
        let why = Choice::of(&trials, 5.0).why.join("");
        assert!(
            why.starts_with("1 → 2: the same items/s (the quartiles of the steps overlap); the step takes 1.00 "),
            "{why}"
        );
    }
}
