//! The rows of torch's table while it is made.

use super::key_average::KeyAverage;
use crate::trace::{NameKey, Timestamp};
use rustc_hash::FxHashMap;
use std::{borrow::Cow, cmp::Reverse};

/// The rows of [`key_averages`](super::key_averages()), by name, place and kind.
#[derive(Debug, Default)]
pub(super) struct KeyRows<'a> {
    names: FxHashMap<Cow<'a, str>, u32>,
    keys: FxHashMap<NameKey, u32>,
    /// The rows of each name: those on the host and on GPUs, each without and with annotations.
    rows: Vec<[Row; 4]>,
    /// The number of events so far.
    count: usize,
}

#[derive(Debug, Default)]
struct Row {
    /// The start, the end and the number of the event that comes first.
    first: Option<(Timestamp, Reverse<Timestamp>, usize)>,
    sum: KeyAverage,
}

impl<'a> KeyRows<'a> {
    /// Returns the number of a name. Its text must stay where it is.
    pub(super) fn name(&mut self, name: &'a str) -> u32 {
        let key = NameKey::of(name);
        if let Some(&number) = self.keys.get(&key) {
            return number;
        }
        let number = self.name_of(Cow::Borrowed(name));
        self.keys.insert(key, number);
        number
    }

    /// Returns the number of a name that may be stored nowhere else.
    pub(super) fn name_of(&mut self, name: Cow<'a, str>) -> u32 {
        *self.names.entry(name).or_insert_with(|| {
            self.rows.push(Default::default());
            u32::try_from(self.rows.len() - 1).unwrap_or(u32::MAX)
        })
    }

    /// Adds an event to the row of this name. `row` says which of its rows.
    pub(super) fn add(&mut self, name: u32, start: Timestamp, end: Timestamp, row: &KeyAverage) {
        let kind = usize::from(row.on_device) * 2 + usize::from(row.is_annotation);
        let Row { first, sum } = &mut self.rows[name as usize][kind];
        let place = (start, Reverse(end), self.count);
        *first = Some(first.map_or(place, |first| first.min(place)));
        (sum.on_device, sum.is_annotation) = (row.on_device, row.is_annotation);
        sum.add(row);
        self.count += 1;
    }

    /// Returns the rows in the order of their first events.
    pub(super) fn into_rows(self) -> Vec<KeyAverage> {
        let Self { names, mut rows, .. } = self;
        let mut sorted = Vec::new();
        for (name, number) in names {
            let of_name = std::mem::take(&mut rows[number as usize]);
            let named = |row: Row| Some((row.first?, KeyAverage { key: name.to_string(), ..row.sum }));
            sorted.extend(of_name.into_iter().filter_map(named));
        }
        sorted.sort_unstable_by_key(|&(first, _)| first);
        sorted.into_iter().map(|(_, row)| row).collect()
    }
}
