//! Metrics of requests and of service levels: those of the whole run, recorded or not.

use super::{
    encode::{Points, Writer},
    histogram::{Histogram, STEP_BOUNDS},
    instruments::{self, Instrument, LOOKBACK, OBJECTIVE, OUTCOME, OVERFLOW, REQUEST_KIND, TOKEN_TYPE, WINDOW},
    request_exemplars::{RequestExemplars, SlowTime},
};
use kernspan::serving::{LatencyHistogram, RequestGroup, Requests, ServiceLevel};
use std::{collections::BTreeMap, time::Duration};

/// The histograms of a group of requests, and the times of slow requests that are in them.
const DURATIONS: [(Instrument, Durations, SlowTime); 5] = [
    (instruments::REQUEST_DURATION, |group| &group.latency, |slow| Some(slow.latency)),
    // Without an intended start, there is no such time.
    (instruments::REQUEST_RESPONSE, |group| &group.response, |slow| (slow.time > slow.latency).then_some(slow.time)),
    (instruments::REQUEST_QUEUE, |group| &group.queue, |_| None),
    (instruments::REQUEST_FIRST_TOKEN, |group| &group.tokens.first, |_| None),
    (instruments::REQUEST_BETWEEN_TOKENS, |group| &group.tokens.between, |_| None),
];

type Durations = fn(&RequestGroup) -> &LatencyHistogram;

/// Writes the metrics of requests and of service levels.
pub(super) fn write(requests: &Requests, exemplars: &mut RequestExemplars, writer: &mut Writer<'_>) {
    let groups = || requests.kinds.iter().flat_map(|kind| kind.groups.iter().map(|group| (&*kind.name, group)));
    let exemplars = exemplars.take(requests);
    for (instrument, durations, slow) in DURATIONS {
        writer.metric(&instrument, |points| {
            for (kind, group) in groups() {
                let labels = labels(group, &[(REQUEST_KIND, kind)]);
                let mut histogram = histogram(durations(group));
                let of_group = exemplars.iter().filter_map(|exemplar| exemplar.of(kind, group, slow));
                of_group.for_each(|exemplar| histogram.add_exemplar(exemplar));
                points.histogram_of_run(&labels, histogram);
            }
        });
    }
    writer.metric(&instruments::REQUEST_FAILURES, |points| {
        for (kind, group) in groups() {
            // None are sent, too, so that queries see the first rise.
            points.number(&labels(group, &[(REQUEST_KIND, kind)]), group.errors);
        }
    });
    writer.metric(&instruments::REQUEST_TOKENS, |points| {
        for (kind, group) in groups() {
            let tokens = [("input", group.tokens.input), ("output", group.tokens.output)];
            for (token_type, count) in tokens.into_iter().filter(|&(_, count)| count > 0) {
                points.number(&labels(group, &[(REQUEST_KIND, kind), (TOKEN_TYPE, token_type)]), count);
            }
        }
    });
    writer.metric(&instruments::REQUESTS_IN_FLIGHT, |points| {
        for kind in &requests.kinds {
            points.number(&[(REQUEST_KIND, &kind.name)], kind.in_flight);
        }
    });
    write_levels(&requests.service_levels, writer);
}

fn write_levels(levels: &[ServiceLevel], writer: &mut Writer<'_>) {
    // An objective that was given twice, such as with two hooks, has the same values twice.
    let levels: BTreeMap<_, _> = levels.iter().map(|level| ((&level.objective, level.window), level)).collect();
    let mut metric = |instrument: &Instrument, write: fn(&ServiceLevel, Level<'_>, &mut Points<'_>)| {
        writer.metric(instrument, |points| {
            for level in levels.values() {
                let window = text(level.window);
                let labels = [(REQUEST_KIND, &*level.kind), (OBJECTIVE, &*level.objective), (WINDOW, &*window)];
                write(level, labels, points);
            }
        });
    };
    metric(&instruments::SLO_REQUESTS, |level, [kind, objective, window], points| {
        let good = level.requests_ever.saturating_sub(level.bad_ever);
        for (outcome, count) in [("good", good), ("bad", level.bad_ever)] {
            points.number(&[kind, objective, window, (OUTCOME, outcome)], count);
        }
    });
    metric(&instruments::SLO_BUDGET, |level, labels, points| points.number(&labels, level.budget_left()));
    metric(&instruments::SLO_BURN_RATE, |level, [kind, objective, window], points| {
        // Of two rules, the long time of one may be the short time of the other.
        let times = level.burn_rates.iter().flat_map(|rate| [rate.long, rate.short]);
        for (time, rate) in times.collect::<BTreeMap<_, _>>() {
            points.number(&[kind, objective, window, (LOOKBACK, &text(time))], rate);
        }
    });
    metric(&instruments::SLO_ALERTS, |level, labels, points| points.number(&labels, level.alerts));
    metric(&instruments::SLO_ALERTING, |level, labels, points| {
        points.number(&labels, level.burn_rates.iter().filter(|rate| rate.alert).count() as u64);
    });
}

/// The attributes of a service level.
type Level<'a> = [(&'a str, &'a str); 3];

/// Returns the attributes of a group of requests, after others.
fn labels<'a>(group: &'a RequestGroup, others: &[(&'a str, &'a str)]) -> Vec<(&'a str, &'a str)> {
    let fields = group.labels.iter().map(|(name, value)| (&**name, &**value));
    // The values of a request may be `other`, too.
    let overflow = group.is_other.then_some((OVERFLOW, "true"));
    others.iter().copied().chain(fields).chain(overflow).collect()
}

/// Returns the durations by buckets, each within the error of a [`LatencyHistogram`].
fn histogram(durations: &LatencyHistogram) -> Histogram {
    let mut histogram = Histogram::new(STEP_BOUNDS);
    if durations.count() == 0 {
        return histogram;
    }
    let below = STEP_BOUNDS.iter().map(|&bound| durations.count_at_most(Duration::from_secs_f64(bound)));
    // Those for which there was no memory are in no bucket.
    let all = durations.count().saturating_sub(durations.lost());
    let mut before = 0;
    for (count, below) in histogram.counts.iter_mut().zip(below.chain([all])) {
        *count = below.saturating_sub(before);
        before = below;
    }
    histogram.sum = durations.sum().as_secs_f64();
    histogram.max = durations.max().map_or(histogram.max, |max| max.as_secs_f64());
    histogram
}

/// Returns a time as text, such as `30d` or `5m`.
fn text(time: Duration) -> String {
    const UNITS: [(u64, &str); 4] = [(86_400, "d"), (3600, "h"), (60, "m"), (1, "s")];
    let whole = |&(seconds, _): &(u64, &str)| time.as_secs() > 0 && time.as_secs().is_multiple_of(seconds);
    match UNITS.into_iter().find(whole).filter(|_| time.subsec_nanos() == 0) {
        Some((seconds, unit)) => format!("{}{unit}", time.as_secs() / seconds),
        None => format!("{time:?}"),
    }
}
