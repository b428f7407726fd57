//! The frames of a differential flame graph.

use crate::html::Page;
use kernspan_check::comparison::{Presence, SpanChange, TimeChange};
use serde_json::{Value, json};
use std::collections::HashMap;

/// The time that a flame graph shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Which {
    Host,
    Gpu,
}

/// The frames of one side: as wide as their time on that side, coloured by how much longer they take after.
#[derive(Debug, Default)]
pub(super) struct Flame<'a> {
    frames: Vec<Frame<'a>>,
}

#[derive(Debug)]
struct Frame<'a> {
    parent: Option<usize>,
    name: &'a str,
    /// The frame's self time on this side, in nanoseconds.
    own: f64,
    /// How much longer the frame's self time is after, in nanoseconds.
    change: f64,
}

impl<'a> Flame<'a> {
    /// Returns the frames of the side before or after.
    pub(super) fn of(spans: &'a [SpanChange], which: Which, is_after: bool) -> Self {
        let mut flame = Self::default();
        let mut places: HashMap<&[String], usize> = HashMap::new();
        let mut sorted: Vec<_> = spans.iter().filter_map(|span| Some((path(span, is_after)?, span))).collect();
        // Only in the tree after do moved spans come after the spans around them.
        sorted.sort_by_key(|(path, _)| path.len());
        for (path, span) in sorted {
            let time: &TimeChange = if which == Which::Host { &span.host } else { &span.gpu };
            let own = if is_after { time.after.value } else { time.before.value };
            let around = path.split_last().map_or(&[][..], |(_, around)| around);
            let parent = places.get(around).copied();
            places.insert(path, flame.frames.len());
            let name = path.last().map_or("", String::as_str);
            flame.frames.push(Frame { parent, name, own: own.max(0.0), change: time.change.value });
        }
        flame
    }

    pub(super) fn is_empty(&self) -> bool {
        self.frames.iter().all(|frame| frame.own == 0.0)
    }

    /// Returns the members of the section.
    pub(super) fn members(self, page: &mut Page) -> Value {
        let parents: Vec<_> = self.frames.iter().map(|frame| frame.parent.map_or(-1, |parent| parent as i64)).collect();
        let names: Vec<_> = self.frames.iter().map(|frame| page.name(frame.name)).collect();
        let rounded = |of: fn(&Frame<'a>) -> f64| self.frames.iter().map(|frame| of(frame).round()).collect::<Vec<_>>();
        let (values, changes) = (rounded(|frame| frame.own), rounded(|frame| frame.change));
        json!({"unit": "time", "parents": parents, "names": names, "values": values, "changes": changes})
    }
}

/// Returns the path of a span on a side, if it exists there.
fn path(span: &SpanChange, is_after: bool) -> Option<&[String]> {
    match &span.presence {
        Presence::Added if !is_after => None,
        Presence::Gone if is_after => None,
        Presence::Moved { from } if !is_after => Some(from),
        _ => Some(&span.path),
    }
}
