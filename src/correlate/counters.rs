//! Counters, whose samples are fields of events.

use crate::trace::{Counter, EventData, Trace, convention};
use std::{collections::BTreeMap, sync::Arc};

/// Moves the samples of counters out of the events. An event that has no other fields is removed.
pub(super) fn extract(events: Vec<EventData>, trace: &Trace) -> (Vec<EventData>, Vec<Counter>) {
    let mut samples: BTreeMap<&str, Vec<_>> = BTreeMap::new();
    let events = events
        .into_iter()
        .filter(|event| {
            let mut other = false;
            for (name, value) in trace.fields(event.callsite, event.fields).iter() {
                match (name.strip_prefix(convention::COUNTER), value.as_f64()) {
                    (Some(counter), Some(value)) => samples.entry(counter).or_default().push((event.at, value)),
                    _ => other = true,
                }
            }
            other || event.fields.len == 0
        })
        .collect();
    let counters = samples.into_iter().map(|(name, mut samples)| {
        samples.sort_by_key(|&(at, _)| at);
        Counter { name: Arc::from(name), samples }
    });
    (events, counters.collect())
}
