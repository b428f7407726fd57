//! Counters, whose samples are fields of events.

use crate::trace::{Counter, EventData, Trace, convention};
use std::{collections::BTreeMap, sync::Arc};

/// Moves the samples of counters out of the events. An event that has no other fields is removed. Also returns how many
/// values of counters are no samples: values of events that are no numbers, and all values of spans.
pub(super) fn extract(events: Vec<EventData>, trace: &Trace) -> (Vec<EventData>, Vec<Counter>, u64) {
    let mut lost = values_on_spans(trace);
    let mut samples: BTreeMap<&str, Vec<_>> = BTreeMap::new();
    let events = events
        .into_iter()
        .filter(|event| {
            let mut other = false;
            for (name, value) in trace.fields(event.callsite, event.fields).iter() {
                match (name.strip_prefix(convention::COUNTER), value.as_f64()) {
                    (Some(counter), Some(value)) => samples.entry(counter).or_default().push((event.at, value)),
                    (counter, _) => {
                        other = true;
                        lost += u64::from(counter.is_some());
                    }
                }
            }
            other || event.fields.len == 0
        })
        .collect();
    let counters = samples.into_iter().map(|(name, mut samples)| {
        samples.sort_by_key(|&(at, _)| at);
        Counter { name: Arc::from(name), samples }
    });
    (events, counters.collect(), lost)
}

/// Counts the values of counters that are on spans.
fn values_on_spans(trace: &Trace) -> u64 {
    let is_counter = |name: &str| name.starts_with(convention::COUNTER);
    let has_counters: Vec<bool> =
        trace.callsites.iter().map(|callsite| callsite.field_names().any(is_counter)).collect();
    let spans = trace.spans.iter().filter(|span| has_counters[span.callsite.index()]);
    let values = spans.map(|span| {
        trace.fields(span.callsite, span.fields).iter().filter(|(name, _)| is_counter(name)).count() as u64
    });
    values.sum()
}
