//! Fields that are moved once all threads are read: those recorded on a span after it was entered, and the samples of
//! counters, which are fields of events.

use crate::{
    clock::Ticks,
    recording::RegistryId,
    trace::{Counter, EventData, FieldData, SpanId, Timestamp, Trace, convention},
};
use rustc_hash::FxHashMap;
use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

/// The updates of all threads, and the instances of the spans that they are about.
#[derive(Default)]
pub(super) struct Updates {
    /// The instances of each span that has an update, with the moments they were entered.
    instances: HashMap<RegistryId, Vec<(Ticks, SpanId)>>,
    updates: Vec<Update>,
}

/// Fields that were recorded on a span after it was entered.
struct Update {
    at: Ticks,
    id: RegistryId,
    /// The instance that was open on the recording thread, if there was one.
    instance: Option<SpanId>,
    fields: Vec<FieldData>,
}

impl Updates {
    /// Has the instances of a span kept, of which there will be updates.
    pub(super) fn expect(&mut self, id: RegistryId) {
        self.instances.entry(id).or_default();
    }

    /// Adds an instance of a span, if updates of it are expected. `at` is `None` if it was entered before the window.
    pub(super) fn add_instance(&mut self, id: RegistryId, at: Option<Ticks>, span: SpanId) {
        if let Some(instances) = self.instances.get_mut(&id) {
            instances.push((at.unwrap_or_default(), span));
        }
    }

    /// Begins an update, whose fields come next.
    pub(super) fn begin(&mut self, at: Ticks, id: RegistryId, instance: Option<SpanId>) {
        self.updates.push(Update { at, id, instance, fields: Vec::new() });
    }

    /// Adds a field to the update that was begun last.
    pub(super) fn add_field(&mut self, field: FieldData) {
        if let Some(update) = self.updates.last_mut() {
            update.fields.push(field);
        }
    }

    /// Adds the fields of updates to their instances: to the one that was open on the recording thread, or else to the
    /// one that was entered last at that moment, on any thread. `shared` are the starts of ranges of fields that
    /// several instances have.
    pub(super) fn apply(mut self, trace: &mut Trace, close: Ticks, shared: &HashSet<u32>) {
        self.updates.sort_by_key(|update| update.at);
        self.instances.values_mut().for_each(|instances| instances.sort_by_key(|(entered, _)| *entered));
        for Update { at, id, instance, fields } in self.updates.into_iter().filter(|update| update.at <= close) {
            let Some(span) = instance.or_else(|| {
                let instances = self.instances.get(&id)?;
                let later = instances.partition_point(|(entered, _)| *entered <= at);
                instances.get(later.saturating_sub(1)).map(|&(_, span)| span)
            }) else {
                continue;
            };
            for field in fields {
                set_field(trace, span, field, shared);
            }
        }
    }
}

/// Adds a field to a span, or changes the one that it has.
fn set_field(trace: &mut Trace, span: SpanId, field: FieldData, shared: &HashSet<u32>) {
    let range = &mut trace.spans[span.index()].fields;
    // The fields of a span lie next to each other. So they are copied to the end if one is added and they are not there
    // already, or if one is changed and other instances share them.
    let is_recorded = trace.fields[range.as_range()].iter().any(|old| old.index == field.index);
    let in_place =
        if is_recorded { !shared.contains(&range.start) } else { range.as_range().end == trace.fields.len() };
    if !in_place {
        let start = trace.fields.len();
        trace.fields.extend_from_within(range.as_range());
        range.start = u32::try_from(start).unwrap_or(u32::MAX);
    }
    let recorded = trace.fields[range.as_range()].iter_mut().find(|old| old.index == field.index);
    if let Some(old) = recorded {
        old.value = field.value;
    } else {
        trace.fields.push(field);
        range.len += 1;
    }
}

/// Moves the samples of counters out of the events. An event that has no other fields is removed. Also returns how many
/// values of counters are no samples: values of events that are no numbers, and all values of spans.
pub(super) fn extract_counters(events: Vec<EventData>, trace: &Trace) -> (Vec<EventData>, Vec<Counter>, u64) {
    let mut lost = values_on_spans(trace);
    let mut samples: FxHashMap<&str, Vec<_>> = FxHashMap::default();
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
    let counters = samples.into_iter().map(|(name, samples)| Counter { name: Arc::from(name), samples });
    let mut counters: Vec<_> = counters.collect();
    Counter::sort(&mut counters);
    (events, counters, lost)
}

/// Adds the counters of what the process used, with the moments from which on they are drawn. The program may have
/// counters of the same names.
pub(super) fn add_counters(counters: &mut Vec<Counter>, used: Vec<(Timestamp, Vec<(String, f64)>)>) {
    let mut index: FxHashMap<Arc<str>, usize> =
        counters.iter().enumerate().map(|(index, counter)| (Arc::clone(&counter.name), index)).collect();
    for (at, values) in used {
        for (name, value) in values {
            let known = index.get(name.as_str()).copied().unwrap_or_else(|| {
                let name: Arc<str> = name.into();
                counters.push(Counter { name: Arc::clone(&name), samples: Vec::new() });
                index.insert(name, counters.len() - 1);
                counters.len() - 1
            });
            counters[known].samples.push((at, value));
        }
    }
    Counter::sort(counters);
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
