//! The efficiency of a run: the change of its counters for time, energy and money.

use kernspan::{
    Trace,
    analysis::{Analysis, StepInterval, VitalSign},
    report::units,
    trace::{Metadata, Timestamp, convention},
};
use serde::Serialize;
use std::{collections::BTreeMap, str::FromStr, time::Duration};

/// A counter that says how good results are.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Goal {
    pub(crate) counter: String,
    pub(crate) is_higher_better: bool,
}

impl Goal {
    /// The goals that are looked for if none is given.
    pub(crate) fn usual() -> [Self; 2] {
        let goal = |counter: &str, is_higher_better| Self { counter: counter.to_owned(), is_higher_better };
        [goal("loss", false), goal("accuracy", true)]
    }

    /// Describes which values are better.
    pub(crate) fn direction(&self) -> &'static str {
        if self.is_higher_better { "higher is better" } else { "lower is better" }
    }
}

impl FromStr for Goal {
    type Err = String;

    /// Reads `perplexity=lower`, or a name that says by itself which values are better, such as `valid/loss`.
    fn from_str(text: &str) -> Result<Self, String> {
        let (counter, direction) = text.split_once('=').map_or((text, None), |(name, word)| (name, Some(word)));
        let is_higher_better = match direction {
            _ if counter.is_empty() => return Err("expected the name of a counter".to_owned()),
            Some("higher") => true,
            Some("lower") => false,
            Some(other) => return Err(format!("expected {counter}=higher or {counter}=lower, not {other:?}")),
            None if counter.contains("loss") => false,
            None if counter.contains("accuracy") => true,
            None => return Err(format!("say which values are better: {counter}=higher or {counter}=lower")),
        };
        Ok(Self { counter: counter.to_owned(), is_higher_better })
    }
}

/// The price of an hour, or of a kilowatt-hour.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Price {
    Hour(f64),
    KilowattHour(f64),
}

impl Price {
    /// Returns the price of a second at this power; `None` if it depends on the power, which is not known.
    pub(crate) fn per_second(self, watts: Option<f64>) -> Option<f64> {
        match self {
            Self::Hour(price) => Some(price / 3600.0),
            Self::KilowattHour(price) => watts.map(|watts| price * watts / 3.6e6),
        }
    }
}

impl FromStr for Price {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let expected = || format!("{text:?} is not a price such as 2.5/h or 0.31/kWh");
        let (number, unit) = text.split_once('/').ok_or_else(expected)?;
        let number = number.trim().parse().ok().filter(|&number: &f64| number.is_finite() && number > 0.0);
        match (number, unit) {
            (Some(number), "h") => Ok(Self::Hour(number)),
            (Some(number), "kWh") => Ok(Self::KilowattHour(number)),
            _ => Err(expected()),
        }
    }
}

/// The values of the counters of a run, and its power.
#[derive(Clone, Debug, Default)]
pub(crate) struct RunCounters {
    values: BTreeMap<String, CounterValues>,
    /// The mean power of the GPUs and CPU packages that are known.
    pub(crate) watts: Option<f64>,
    /// The mean duration of a whole step, in seconds.
    step: Option<f64>,
    /// The mean of the counter `samples` in a step.
    samples: Option<f64>,
}

/// The identity of a process: its rank, host and id.
fn process(trace: &Trace) -> (u32, String, u32) {
    let Metadata { rank, host, pid, .. } = trace.metadata();
    (*rank, host.clone(), *pid)
}

/// The values of a counter.
#[derive(Clone, Copy, Debug)]
struct CounterValues {
    first: (Timestamp, f64),
    last: (Timestamp, f64),
    lowest: f64,
    highest: f64,
}

/// The progress of a run towards a [`Goal`].
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Achieved {
    pub(crate) counter: String,
    /// The first value that was recorded.
    pub(crate) first: f64,
    pub(crate) last: f64,
    pub(crate) best: f64,
    /// The time from the first value to the last.
    pub(crate) seconds: f64,
    /// How much better the last value is than the first, by the second between them.
    pub(crate) per_second: Option<f64>,
    pub(crate) per_joule: Option<f64>,
    /// By the unit of the currency in which the price is.
    pub(crate) per_price: Option<f64>,
}

impl RunCounters {
    /// Returns the counters of traces. Of several processes, it is the one of the lowest rank, and the power is not
    /// known: each may have recorded that of all GPUs.
    pub(crate) fn of<'a>(traces: impl IntoIterator<Item = &'a Trace>) -> Self {
        let mut traces: Vec<_> = traces.into_iter().collect();
        traces.sort_by_key(|trace| (trace.metadata().rank, trace.start()));
        let Some(first) = traces.first().map(|trace| process(trace)) else { return Self::default() };
        let all = traces.len();
        traces.retain(|trace| process(trace) == first);
        let mut values: BTreeMap<String, CounterValues> = BTreeMap::new();
        for counter in traces.iter().flat_map(|trace| trace.counters()) {
            for &(at, value) in counter.samples() {
                let new = || CounterValues { first: (at, value), last: (at, value), lowest: value, highest: value };
                let known = values.entry(counter.name().to_owned()).or_insert_with(new);
                known.last = (at, value);
                known.lowest = known.lowest.min(value);
                known.highest = known.highest.max(value);
            }
        }
        let watts = (traces.len() == all).then(|| watts(&traces)).flatten();
        let whole = || traces.iter().flat_map(|trace| trace.steps().iter().map(move |step| (trace, step)));
        let whole = || whole().filter(|(_, step)| !step.cut().any());
        let steps = whole().count() as f64;
        // With outliers: they use energy, too.
        let time =
            |trace: &&Trace| -> Duration { Analysis::of(trace).step_intervals().iter().map(StepInterval::time).sum() };
        let seconds: f64 = traces.iter().map(|trace| time(trace).as_secs_f64()).sum();
        let counters = whole().flat_map(|(trace, step)| trace.counters_in(step));
        let samples: f64 = counters.filter(|(name, _)| *name == convention::SAMPLES).map(|(_, value)| value).sum();
        let mean = |sum: f64| Some(sum / steps).filter(|mean| mean.is_finite() && *mean > 0.0);
        Self { values, watts, step: mean(seconds), samples: mean(samples) }
    }

    /// Returns the counters of each run in the traces: of each process, unless these are ranks of one run.
    pub(crate) fn of_runs<'a>(traces: impl IntoIterator<Item = &'a Trace>) -> Vec<Self> {
        let mut runs: BTreeMap<_, Vec<&Trace>> = BTreeMap::new();
        for trace in traces {
            let run = if trace.metadata().world_size > 1 { None } else { Some(process(trace)) };
            runs.entry(run).or_default().push(trace);
        }
        runs.into_values().map(Self::of).collect()
    }

    /// Returns the joules of a recorded step.
    pub(crate) fn joules_per_step(&self) -> Option<f64> {
        Some(self.watts? * self.step?)
    }

    /// Returns the joules of a sample: see [`convention::SAMPLES`].
    pub(crate) fn joules_per_sample(&self) -> Option<f64> {
        Some(self.joules_per_step()? / self.samples?)
    }

    /// Returns what was achieved of a goal; `None` if the counter was not recorded.
    pub(crate) fn achieved(&self, goal: &Goal, price: Option<Price>) -> Option<Achieved> {
        let values = self.values.get(&goal.counter)?;
        let [first, last] = [values.first.1, values.last.1];
        let seconds = values.last.0.since(values.first.0).as_secs_f64();
        let gain = if goal.is_higher_better { last - first } else { first - last };
        let per_second = Some(gain / seconds).filter(|rate| rate.is_finite());
        let by = |each: Option<f64>| Some(per_second? / each.filter(|&each| each > 0.0)?);
        Some(Achieved {
            counter: goal.counter.clone(),
            first,
            last,
            best: if goal.is_higher_better { values.highest } else { values.lowest },
            seconds,
            per_second,
            per_joule: by(self.watts),
            per_price: by(price.and_then(|price| price.per_second(self.watts))),
        })
    }
}

/// Formats a number that may be negative with three digits and a decimal prefix.
pub(crate) fn signed(number: f64) -> String {
    format!("{}{}", if number < 0.0 { "-" } else { "" }, units::rate(number.abs()))
}

/// The shortest time between two readings of an energy counter for a mean power: such counters may lag by 100 ms, so
/// that the power is off by a tenth at most.
const SHORTEST: f64 = 1.0;

/// Readings of the power of a GPU, or of the CPU packages.
#[derive(Default)]
struct PowerReadings {
    /// Joules since the run began.
    energy: Vec<(Timestamp, f64)>,
    watts: Vec<f64>,
}

impl PowerReadings {
    /// Returns the mean power: that of the energy counter if it covers [`SHORTEST`], and else of the power that was
    /// read.
    fn watts(&self) -> Option<f64> {
        let counted = self.energy.first().zip(self.energy.last()).and_then(|(first, last)| {
            let seconds = last.0.since(first.0).as_secs_f64();
            (seconds >= SHORTEST && last.1 > first.1).then(|| (last.1 - first.1) / seconds)
        });
        let mean = || (!self.watts.is_empty()).then(|| self.watts.iter().sum::<f64>() / self.watts.len() as f64);
        counted.or_else(mean)
    }
}

/// Returns the mean power of all GPUs and CPU packages in the traces of a process, sorted by time.
fn watts(traces: &[&Trace]) -> Option<f64> {
    let mut subjects: BTreeMap<&str, PowerReadings> = BTreeMap::new();
    for trace in traces {
        for counter in trace.counters() {
            let Some(sign) = counter.name().strip_prefix(VitalSign::COUNTER) else { continue };
            let Some((subject, sign)) = sign.split_once('.') else { continue };
            match sign {
                // The first one of a window is the last reading before it, at an unknown time.
                "energy" | "cpu_energy" => {
                    let readings = counter.samples().iter().filter(|(at, _)| *at > trace.start());
                    subjects.entry(subject).or_default().energy.extend(readings);
                }
                "power" | "cpu_power" => {
                    let readings = counter.samples().iter().map(|&(_, watts)| watts);
                    subjects.entry(subject).or_default().watts.extend(readings.filter(|watts| watts.is_finite()));
                }
                _ => {}
            }
        }
    }
    subjects.values().filter_map(PowerReadings::watts).reduce(|sum, watts| sum + watts)
}

#[cfg(test)]
mod tests {
    use super::{Goal, Price, RunCounters};
    use kernspan::trace::{
        Trace,
        sample::{add_counter, at, gpu_trace},
    };

    /// A trace with counters, whose samples are at so many milliseconds.
    fn trace(counters: &[(&str, &[(u64, f64)])]) -> Trace {
        let mut trace = gpu_trace();
        for (name, samples) in counters {
            let samples: Vec<_> = samples.iter().map(|&(millis, value)| (at(1000 * millis), value)).collect();
            add_counter(&mut trace, name, &samples);
        }
        trace
    }

    #[test]
    fn goals_have_a_direction() {
        let goal = |text: &str| text.parse::<Goal>().map(|goal| (goal.counter, goal.is_higher_better));
        assert_eq!(goal("valid/loss"), Ok(("valid/loss".to_owned(), false)));
        assert_eq!(goal("accuracy"), Ok(("accuracy".to_owned(), true)));
        assert_eq!(goal("loss=higher"), Ok(("loss".to_owned(), true)));
        for wrong in ["perplexity", "f1=up", "=lower", ""] {
            assert!(goal(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn prices_are_of_time_or_of_energy() {
        assert_eq!("7.2/h".parse::<Price>().unwrap().per_second(None), Some(0.002));
        let energy: Price = "0.36/kWh".parse().unwrap();
        assert_eq!((energy.per_second(None), energy.per_second(Some(100.0))), (None, Some(1e-5)));
        for wrong in ["", "3", "x/h", "-1/h", "1/day"] {
            assert!(wrong.parse::<Price>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_run_gets_better_by_the_second_the_joule_and_the_price() {
        let loss: &[(u64, f64)] = &[(1000, 3.0), (2000, 0.5), (3000, 1.0)];
        let energy: &[(u64, f64)] = &[(0, 100.0), (1000, 150.0), (3000, 450.0)];
        let traces = [trace(&[("loss", loss), ("vitals.gpu0.energy", energy), ("vitals.gpu0.power", &[(0, 9.0)])])];
        let counters = RunCounters::of(&traces);
        assert_eq!(counters.watts, Some(150.0), "the reading at the start of the window is from before it");
        let [goal, missing] = Goal::usual();
        let achieved = counters.achieved(&goal, Some(Price::Hour(3600.0))).unwrap();
        assert_eq!((achieved.first, achieved.last, achieved.best, achieved.seconds), (3.0, 1.0, 0.5, 2.0));
        assert_eq!((achieved.per_second, achieved.per_price), (Some(1.0), Some(1.0)));
        assert_eq!(achieved.per_joule, Some(1.0 / 150.0));
        assert_eq!(counters.achieved(&missing, None), None);
    }

    #[test]
    fn power_is_read_where_energy_is_not_counted_for_long() {
        let short: &[(u64, f64)] = &[(100, 1.0), (200, 99.0)];
        let counters: [(&str, &[(u64, f64)]); 4] = [
            ("vitals.gpu0.energy", short),
            ("vitals.gpu0.power", &[(0, 200.0), (100, 300.0)]),
            ("vitals.machine.cpu_power", &[(0, 40.0)]),
            ("vitals.gpu0.power_limit", &[(0, 700.0)]),
        ];
        assert_eq!(RunCounters::of(&[trace(&counters)]).watts, Some(290.0));
        assert_eq!(RunCounters::of(&[trace(&[])]).watts, None);
        // One value does not say how fast it changes, and none of a diverged run either.
        let [goal, _] = Goal::usual();
        for samples in [&[(5, 2.0)][..], &[(5, 2.0), (9, f64::NAN)]] {
            let achieved = RunCounters::of(&[trace(&[("loss", samples)])]).achieved(&goal, None).unwrap();
            assert_eq!((achieved.per_second, achieved.best), (None, 2.0));
        }
    }
}
