//! The groups that requests are broken down into, in tables of fixed size that threads share without a lock.

use super::RequestKind;
use crate::trace::Value;
use rustc_hash::FxHasher;
use std::{
    hash::Hasher,
    sync::{
        OnceLock,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
};

/// The index of a field's value: 0 if the request has none, `u16::MAX` if there was no room for another value.
pub(super) type LabelIndex = u16;

/// The index of a group.
pub(super) type GroupIndex = u16;

/// The label of a value for which there is no room.
pub(super) const OTHER: &str = "other";

const NO_ROOM: LabelIndex = LabelIndex::MAX;

/// The values of the fields that requests of a kind are broken down by, and the combinations that occur.
#[derive(Debug)]
pub(super) struct RequestLabels {
    fields: Vec<ValuesOfField>,
    /// Indices of values, 16 bits each, that form a group; 0 is free.
    groups: Box<[AtomicU64]>,
    used: AtomicUsize,
    most: usize,
}

/// The values that a field has had.
#[derive(Debug)]
struct ValuesOfField {
    name: String,
    values: Box<[OnceLock<Box<str>>]>,
    used: AtomicUsize,
    most: usize,
}

impl RequestLabels {
    /// Marks a combination, so that none is 0. Indices of values have 15 bits, and the top one is free.
    const USED: u64 = 1 << 63;

    pub(super) fn new(kind: &RequestKind) -> Self {
        let most = kind.most_groups;
        let slots = Self::slots(most);
        let field = |name: &String| ValuesOfField {
            name: name.clone(),
            values: std::iter::repeat_with(OnceLock::new).take(slots).collect(),
            used: AtomicUsize::new(0),
            most,
        };
        Self {
            fields: kind.fields.iter().map(field).collect(),
            groups: std::iter::repeat_with(AtomicU64::default).take(slots).collect(),
            used: AtomicUsize::new(0),
            most,
        }
    }

    /// Twice as many slots as values, so that a search ends soon.
    fn slots(most: usize) -> usize {
        (2 * most).next_power_of_two()
    }

    /// Sets the index of a value in `labels`, if requests are broken down by its field.
    pub(super) fn set(&self, labels: &mut [LabelIndex; RequestKind::MOST_FIELDS], field: &str, value: &Value) {
        if let Some(index) = self.fields.iter().position(|known| known.name == field) {
            labels[index] = self.fields[index].index_of(value);
        }
    }

    /// Returns the group of these values. The one after the last is that of all for which there is no room.
    pub(super) fn group(&self, labels: [LabelIndex; RequestKind::MOST_FIELDS]) -> GroupIndex {
        if labels.iter().take(self.fields.len()).any(|&label| label == NO_ROOM) {
            return self.other_group();
        }
        let packed = labels.iter().fold(0, |packed, &label| packed << 15 | u64::from(label));
        let key = packed | Self::USED;
        let mask = self.groups.len() - 1;
        let first = (key.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32) as usize;
        for slot in (0..self.groups.len()).map(|step| (first + step) & mask) {
            match self.groups[slot].load(Ordering::Acquire) {
                found if found == key => return slot as GroupIndex,
                0 => {}
                _ => continue,
            }
            if !reserve(&self.used, self.most) {
                return self.other_group();
            }
            match self.groups[slot].compare_exchange(0, key, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return slot as GroupIndex,
                Err(found) => {
                    self.used.fetch_sub(1, Ordering::Relaxed);
                    if found == key {
                        return slot as GroupIndex;
                    }
                }
            }
        }
        self.other_group()
    }

    /// The number of groups that there can be.
    pub(super) fn group_count(&self) -> usize {
        self.groups.len() + 1
    }

    fn other_group(&self) -> GroupIndex {
        self.groups.len() as GroupIndex
    }

    /// Whether this is the group of all for which there is no room.
    pub(super) fn is_other(&self, group: GroupIndex) -> bool {
        group == self.other_group()
    }

    /// Returns the fields of a group and their values, without those that its requests do not have.
    pub(super) fn describe(&self, group: GroupIndex) -> Vec<(String, String)> {
        let Some(key) = self.groups.get(usize::from(group)) else {
            return self.fields.iter().map(|field| (field.name.clone(), OTHER.to_owned())).collect();
        };
        let key = key.load(Ordering::Acquire);
        let label = |(index, field): (usize, &ValuesOfField)| {
            let shift = 15 * (RequestKind::MOST_FIELDS - 1 - index);
            let value = usize::try_from(key >> shift & 0x7FFF).ok()?.checked_sub(1)?;
            Some((field.name.clone(), field.values.get(value)?.get()?.to_string()))
        };
        self.fields.iter().enumerate().filter_map(label).collect()
    }
}

impl ValuesOfField {
    fn index_of(&self, value: &Value) -> LabelIndex {
        let mut digits = itoa::Buffer::new();
        match value {
            Value::Str(text) => self.index_of_text(text),
            Value::Bool(value) => self.index_of_text(if *value { "true" } else { "false" }),
            Value::U64(value) => self.index_of_text(digits.format(*value)),
            Value::I64(value) => self.index_of_text(digits.format(*value)),
            Value::F64(_) => self.index_of_text(&value.to_string()),
        }
    }

    fn index_of_text(&self, text: &str) -> LabelIndex {
        let mut hasher = FxHasher::default();
        hasher.write(text.as_bytes());
        let (hash, mask) = (hasher.finish() as usize, self.values.len() - 1);
        for slot in (0..self.values.len()).map(|step| (hash + step) & mask) {
            // The same text always ends up in the same slot, the first free one, as slots are never freed.
            let found = match self.values[slot].get() {
                Some(found) => found,
                None if !reserve(&self.used, self.most) => return NO_ROOM,
                None => {
                    let mut is_new = false;
                    let found = self.values[slot].get_or_init(|| {
                        is_new = true;
                        text.into()
                    });
                    if !is_new {
                        self.used.fetch_sub(1, Ordering::Relaxed);
                    }
                    found
                }
            };
            if **found == *text {
                return slot as LabelIndex + 1;
            }
        }
        NO_ROOM
    }
}

/// Counts one more, unless that is more than `most`.
fn reserve(used: &AtomicUsize, most: usize) -> bool {
    used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |used| (used < most).then_some(used + 1)).is_ok()
}

#[cfg(test)]
mod tests {
    use super::{OTHER, RequestKind, RequestLabels};
    use crate::trace::Value;

    /// Returns the group of a route and a model.
    fn group(labels: &RequestLabels, route: &str, model: &str) -> u16 {
        let mut values = [0; RequestKind::MOST_FIELDS];
        labels.set(&mut values, "route", &Value::from(route));
        labels.set(&mut values, "model", &Value::from(model));
        labels.set(&mut values, "unknown", &Value::from(7_u64));
        labels.group(values)
    }

    #[test]
    fn groups_are_the_combinations_that_occur() {
        let labels = RequestLabels::new(&RequestKind::new("request").by("route").by("model"));
        let described = |group| labels.describe(group);
        let pairs = |pairs: [(&str, &str); 2]| pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
        for (route, model) in [("/chat", "small"), ("/chat", "large"), ("/embed", "small")] {
            let first = group(&labels, route, model);
            assert_eq!(group(&labels, route, model), first);
            assert_eq!(described(first), pairs([("route", route), ("model", model)]));
        }
        assert_eq!(described(labels.group([0; RequestKind::MOST_FIELDS])), []);
    }

    #[test]
    fn values_beyond_the_limit_share_a_group() {
        let labels = RequestLabels::new(&RequestKind::new("request").by("route").by("model").most_groups(3));
        let groups: Vec<_> = (0..3).map(|route| group(&labels, &format!("/{route}"), "small")).collect();
        let other = group(&labels, "/3", "small");
        assert!(labels.is_other(other) && groups.iter().all(|&group| !labels.is_other(group)));
        assert_eq!(labels.describe(other), [("route", OTHER), ("model", OTHER)].map(|(a, b)| (a.into(), b.into())));
        // Known groups stay, and a new combination of known values has no room either.
        assert_eq!(group(&labels, "/1", "small"), groups[1]);
        assert_eq!(group(&labels, "/1", "large"), other);
    }

    #[test]
    fn threads_agree_about_groups() {
        let labels = RequestLabels::new(&RequestKind::new("request").by("route").by("model").most_groups(32));
        let groups = || (0..100_u64).map(|route| group(&labels, &route.to_string(), "m")).collect::<Vec<_>>();
        let all = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(groups)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
        });
        let last = groups();
        for (route, &group) in last.iter().enumerate().filter(|(_, group)| !labels.is_other(**group)) {
            assert_eq!(labels.describe(group)[0].1, route.to_string());
            assert!(all.iter().all(|one| one[route] == group || labels.is_other(one[route])));
        }
        assert_eq!(last.iter().filter(|&&group| !labels.is_other(group)).count(), 32);
    }
}
