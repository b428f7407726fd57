//! The error budget of a service level objective, from its counts of good and bad requests.

use super::{Slo, open_request::KindIndex, request_shards::EndedRequest, slo::BurnRule};
use crate::{clock::Clock, units};
use serde::Serialize;
use std::{collections::VecDeque, fmt, time::Duration};

/// A service level at one moment: how many requests were good, and how fast the error budget is spent.
///
/// `Display` writes one line.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct ServiceLevel {
    /// The objective, such as ``99 % of `request` within 200 ms``.
    pub objective: String,
    /// The kind of requests.
    pub kind: String,
    /// The share of requests that are to be good, in percent.
    pub percent: f64,
    /// The longest time of a good request.
    pub limit: Option<Duration>,
    /// The time over which the objective is to be met.
    pub window: Duration,
    /// The requests within the window.
    pub requests: u64,
    /// The bad ones within the window.
    pub bad: u64,
    /// The requests of the whole run.
    pub requests_ever: u64,
    /// The bad ones of the whole run.
    pub bad_ever: u64,
    /// The alerts of the whole run.
    pub alerts: u64,
    /// The burn rates of each rule.
    pub burn_rates: Vec<BurnRate>,
}

/// How fast an error budget is spent, by one rule.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct BurnRate {
    /// The long time, and the burn rate over it. Time before the run counts as good.
    pub long: (Duration, f64),
    /// The short time, and the burn rate over it.
    pub short: (Duration, f64),
    /// The burn rate above which there is an alert.
    pub most: f64,
    /// Whether there is an alert.
    pub alert: bool,
}

impl ServiceLevel {
    /// Returns the part of the error budget that is left: 1 if all of it is, less than 0 if it is overspent.
    pub fn budget_left(&self) -> f64 {
        1.0 - burn(RequestCounts { total: self.requests, bad: self.bad }, self.percent)
    }

    /// Returns the error budget as text: `12.3 % left`, or `spent 33.7 times over`.
    pub(crate) fn budget_text(&self) -> String {
        let left = self.budget_left();
        match left < 0.0 {
            true => format!("spent {:.1} times over", 1.0 - left),
            false => format!("{:.1} % left", 100.0 * left),
        }
    }

    /// Whether there is an alert.
    pub fn has_alert(&self) -> bool {
        self.burn_rates.iter().any(|rate| rate.alert)
    }
}

impl fmt::Display for ServiceLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let good = 100.0 * (1.0 - self.bad as f64 / self.requests.max(1) as f64);
        let Self { objective, requests, bad, alerts, .. } = self;
        write!(f, "{objective}: {good:.3} %, {bad} of {requests} bad, ")?;
        write!(f, "error budget {}, {alerts} alerts", self.budget_text())?;
        let rates = self.burn_rates.iter().filter(|rate| rate.alert);
        rates.into_iter().try_for_each(|rate| {
            write!(
                f,
                "; burns at {:.1} times over {}, and {:.1} over {}",
                rate.long.1,
                units::time(rate.long.0),
                rate.short.1,
                units::time(rate.short.0)
            )
        })
    }
}

/// Requests up to a moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct RequestCounts {
    pub(super) total: u64,
    pub(super) bad: u64,
}

/// The counts at the ends of past slices of the window, so that those of any time are a difference.
#[derive(Debug)]
pub(super) struct ErrorBudget {
    slo: Slo,
    rules: Vec<BurnRule>,
    /// One for each slice that has passed, the last one at the back.
    past: VecDeque<RequestCounts>,
    /// The number of slices that have passed.
    slices: u64,
    /// The time since the run began.
    elapsed: Duration,
    now: RequestCounts,
    alerting: Vec<bool>,
    alerts: u64,
}

impl ErrorBudget {
    /// The number of slices of a window: the short time of the first rule is one slice. They take 140 KB.
    const SLICES: u32 = Slo::RULES[0].0 * Slo::SHORT;

    pub(super) fn new(slo: Slo) -> Self {
        let rules: Vec<_> = slo.rules().collect();
        let alerting = vec![false; rules.len()];
        let (past, now) = (VecDeque::new(), RequestCounts::default());
        Self { slo, rules, past, slices: 0, elapsed: Duration::ZERO, now, alerting, alerts: 0 }
    }

    pub(super) fn slo(&self) -> &Slo {
        &self.slo
    }

    /// Takes the counts of the run at this time. Returns whether an alert begins.
    pub(super) fn advance(&mut self, at: Duration, now: RequestCounts) -> bool {
        let slice = self.slo.window / Self::SLICES;
        let due = u64::try_from(at.as_nanos() / slice.as_nanos().max(1)).unwrap_or(u64::MAX);
        // After a pause, such as that of a suspended machine, what has happened counts in the slice that ends now.
        let passed = due.saturating_sub(self.slices).min(u64::from(Self::SLICES) + 1);
        for _ in 0..passed {
            if self.past.len() == Self::SLICES as usize + 1 {
                self.past.pop_front();
            }
            self.past.push_back(self.now);
        }
        (self.slices, self.elapsed, self.now) = (due.max(self.slices), at.max(self.elapsed), now);
        let has_alert = |alerting: &[bool]| alerting.contains(&true);
        let had_alert = has_alert(&self.alerting);
        for index in 0..self.rules.len() {
            let rule = self.rules[index];
            let (long, short) = (Self::SLICES / rule.part, Self::short(rule));
            let burns = |slices| self.burn_rate(slices) > rule.most;
            self.alerting[index] = burns(long) && burns(short) && self.within(short).total >= Slo::LEAST_REQUESTS;
        }
        // One that passes from a rule to another goes on.
        let begins = !had_alert && has_alert(&self.alerting);
        self.alerts += u64::from(begins);
        begins
    }

    /// Takes the counts of the run now, between two calls of [`advance`](Self::advance).
    pub(super) fn update(&mut self, now: RequestCounts) {
        self.now = now;
    }

    /// The slices of the short time of a rule.
    fn short(rule: BurnRule) -> u32 {
        Self::SLICES / rule.part / Slo::SHORT
    }

    /// Returns the requests within so many slices until now, and the one that is not over.
    fn within(&self, slices: u32) -> RequestCounts {
        let before = self.past.len().checked_sub(slices as usize + 1);
        // The run is younger than that: all of it counts.
        let before = before.and_then(|index| self.past.get(index)).copied().unwrap_or_default();
        RequestCounts { total: self.now.total - before.total, bad: self.now.bad - before.bad }
    }

    /// Returns the burn rate over so many slices. If the run is younger than that, it is as if there had been good
    /// requests before it, at the same rate: a slow start has spent little of the budget.
    fn burn_rate(&self, slices: u32) -> f64 {
        let time = self.slo.window / Self::SLICES * slices;
        burn(self.within(slices), self.slo.percent) * self.elapsed.div_duration_f64(time).min(1.0)
    }

    /// Returns the service level now.
    pub(super) fn level(&self) -> ServiceLevel {
        let slo = &self.slo;
        let within = self.within(Self::SLICES);
        let rate = |(&rule, &alert): (&BurnRule, &bool)| {
            let times = (Self::SLICES / rule.part, Self::short(rule));
            let over = |slices: u32| (slo.window / Self::SLICES * slices, self.burn_rate(slices));
            BurnRate { long: over(times.0), short: over(times.1), most: rule.most, alert }
        };
        ServiceLevel {
            objective: slo.to_string(),
            kind: slo.kind.clone(),
            percent: slo.percent,
            limit: slo.limit,
            window: slo.window,
            requests: within.total,
            bad: within.bad,
            requests_ever: self.now.total,
            bad_ever: self.now.bad,
            alerts: self.alerts,
            burn_rates: self.rules.iter().zip(&self.alerting).map(rate).collect(),
        }
    }
}

/// Returns the share of bad requests as a multiple of the share that may be bad.
fn burn(counts: RequestCounts, percent: f64) -> f64 {
    if counts.total == 0 { 0.0 } else { counts.bad as f64 / counts.total as f64 / (1.0 - percent / 100.0) }
}

/// The good and bad requests of an objective, exactly.
#[derive(Debug)]
pub(super) struct SloCount {
    kind: KindIndex,
    /// The longest time of a good request, in nanoseconds.
    limit: u64,
    pub(super) counts: RequestCounts,
}

impl SloCount {
    pub(super) fn new(slo: &Slo, kind: KindIndex) -> Self {
        let limit = slo.limit.map_or(u64::MAX, |limit| u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX));
        Self { kind, limit, counts: RequestCounts::default() }
    }

    pub(super) fn add(&mut self, ended: &EndedRequest, clock: &Clock) {
        if ended.kind == self.kind {
            self.counts.total += 1;
            self.counts.bad += u64::from(ended.facts.is_error || ended.experienced(clock) > self.limit);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{ErrorBudget, RequestCounts, Slo};
    use std::time::Duration;

    /// A budget over 24 hours: its slices have ten seconds, and the rules 2 min and 10 s, 12 min and 1 min, 144 min and
    /// 12 min.
    fn budget() -> ErrorBudget {
        ErrorBudget::new(Slo::success("request", 99.0).window(Duration::from_secs(86_400)))
    }

    struct Service {
        budget: ErrorBudget,
        now: u64,
        counts: RequestCounts,
    }

    impl Service {
        /// Serves ten requests a second for so long, of which so many in a thousand are bad. Returns the seconds after
        /// which an alert began.
        fn serve(&mut self, seconds: u64, bad_per_thousand: u64) -> Option<u64> {
            let mut alert = None;
            for second in 1..=seconds {
                self.now += 1;
                self.counts.total += 10;
                // Evenly, also for less than one a second.
                let bad_until = |second: u64| second * bad_per_thousand / 100;
                self.counts.bad += bad_until(second) - bad_until(second - 1);
                if self.budget.advance(Duration::from_secs(self.now), self.counts) {
                    alert = alert.or(Some(second));
                }
            }
            alert
        }
    }

    fn service() -> Service {
        Service { budget: budget(), now: 0, counts: RequestCounts::default() }
    }

    #[test]
    fn a_service_that_meets_its_objective_raises_no_alert() {
        let mut service = service();
        assert_eq!(service.serve(2 * 86_400, 9), None);
        let level = service.budget.level();
        assert_eq!((level.alerts, level.has_alert()), (0, false));
        assert!((level.budget_left() - 0.1).abs() < 0.01, "{level}");
        // The window slides: it has a day of requests, and the slice that is not over.
        assert!((864_000..864_200).contains(&level.requests), "{level}");
        assert_eq!((level.requests_ever, level.bad_ever), (2 * 864_000, 2 * 86_400 * 9 / 100));
    }

    #[test]
    fn an_error_budget_is_left_or_spent_so_many_times_over() {
        let text = |bad: u64| {
            let mut budget = budget();
            budget.update(RequestCounts { total: 1000, bad });
            budget.level().to_string()
        };
        assert!(text(9).ends_with("9 of 1000 bad, error budget 10.0 % left, 0 alerts"), "{}", text(9));
        assert!(text(10).contains("error budget 0.0 % left"), "{}", text(10));
        assert!(text(337).contains("error budget spent 33.7 times over"), "{}", text(337));
    }

    #[test]
    fn a_fast_burn_raises_an_alert_once_and_ends_soon() {
        let mut service = service();
        assert_eq!(service.serve(7200, 0), None);
        // All bad: a hundred times the budget. 14.4 times over two minutes is reached after 14.4 % of these.
        let after = service.serve(60, 1000).unwrap();
        assert!((17..=30).contains(&after), "{after} s");
        assert!(service.budget.level().has_alert());
        assert_eq!(service.budget.level().alerts, 1);
        // Once nothing is bad any more, the short times end it: ten seconds, a minute, twelve minutes.
        assert_eq!(service.serve(740, 0), None);
        assert!(!service.budget.level().has_alert(), "{}", service.budget.level());
        assert!(service.serve(60, 1000).is_some());
        assert_eq!(service.budget.level().alerts, 2);
    }

    #[test]
    fn a_slow_burn_raises_an_alert_later() {
        let mut service = service();
        assert_eq!(service.serve(2 * 86_400, 1), None);
        // Twice the budget: only the rule of 144 minutes notices, after 90 % of a half of them.
        let after = service.serve(86_400, 20).unwrap();
        assert!((3600..5400).contains(&after), "{after} s");
    }

    #[test]
    fn a_slow_start_raises_no_alert_and_an_outage_does() {
        let mut service = service();
        // Ten seconds without a good request, at a hundred times the budget, are 8.3 times over two minutes.
        assert_eq!((service.serve(10, 1000), service.serve(7200, 0)), (None, None));
        let mut service = self::service();
        // As after a time without errors.
        let after = service.serve(60, 1000).unwrap();
        assert!((17..=30).contains(&after), "{after} s");
    }

    #[test]
    fn an_alert_that_passes_from_one_rule_to_another_is_not_raised_again() {
        let mut budget = budget();
        assert!(budget.advance(Duration::from_secs(43), RequestCounts { total: 430, bad: 430 }));
        // The last ten seconds are below 14.4 times, which ends the first rule's; the second reaches 6 times.
        assert!(!budget.advance(Duration::from_secs(60), RequestCounts { total: 600, bad: 450 }));
        let level = budget.level();
        let alerts: Vec<_> = level.burn_rates.iter().map(|rate| rate.alert).collect();
        assert_eq!((alerts, level.alerts), (vec![false, true, false], 1));
    }

    #[test]
    fn few_requests_raise_no_alert() {
        let mut budget = budget();
        for second in 1..600 {
            // One request in ten seconds, all bad.
            let counts = RequestCounts { total: second / 10, bad: second / 10 };
            if budget.advance(Duration::from_secs(second), counts) {
                // By the rule of 12 minutes, whose short time is a minute, there never are ten.
                assert!(second >= 100, "{second}");
            }
        }
    }

    #[test]
    fn a_suspended_machine_neither_breaks_the_window_nor_raises_alerts() {
        let mut service = service();
        service.serve(3600, 5);
        service.now += 30 * 86_400;
        assert_eq!(service.serve(3600, 5), None);
        let level = service.budget.level();
        assert!(level.requests <= 36_200, "{level}");
        // Time that goes back is passed over.
        assert!(!service.budget.advance(Duration::ZERO, service.counts));
        assert_eq!(service.budget.level().requests, level.requests);
    }
}
