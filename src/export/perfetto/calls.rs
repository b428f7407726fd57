//! The tracks of calls that were entered several times, such as those of futures: a slice for each call as a whole.

use super::{
    proto::{TrackDescriptor, Type},
    sequence::Sequence,
    tracks::TrackWriter,
};
use crate::{
    analysis::SpanCalls,
    export::category,
    trace::{Cut, Span, SpanId, Timestamp, Trace, Value},
};
use std::{
    collections::{BTreeMap, BinaryHeap},
    io,
};

/// A call that was entered several times.
#[derive(Debug)]
struct Call<'a> {
    first: Span<'a>,
    enters: u64,
    start: Timestamp,
    end: Timestamp,
    cut: Cut,
}

/// Writes a group of tracks for the calls that were entered several times, if there are any.
///
/// Calls of one name that overlap are on different tracks of this name, which Perfetto shows as one. All of them are
/// written in one sequence, since there may be thousands.
pub(super) fn write(out: &mut TrackWriter<'_>) -> io::Result<()> {
    let calls = calls(out.trace);
    if calls.is_empty() {
        return Ok(());
    }
    let parent_uuid = Some(out.uuid);
    let group =
        out.track(TrackDescriptor { name: Some("calls".to_owned()), parent_uuid, ..TrackDescriptor::default() })?;
    let mut sequence = out.sequence(group)?;
    // The free tracks of each name.
    let mut free: BTreeMap<&str, Vec<u64>> = BTreeMap::new();
    // The calls that have not ended, with the earliest end on top.
    let mut open: BinaryHeap<Ending<'_>> = BinaryHeap::new();
    for call in &calls {
        while let Some(ending) = open.peek().filter(|ending| ending.end <= call.start) {
            free.entry(ending.name).or_default().push(ending.track);
            end(out, &mut sequence, ending)?;
            open.pop();
        }
        let name = call.first.name();
        let track = match free.get_mut(name).and_then(Vec::pop) {
            Some(track) => track,
            None => out.track(TrackDescriptor {
                name: Some(name.to_owned()),
                parent_uuid: Some(group),
                ..TrackDescriptor::default()
            })?,
        };
        let callsite = call.first.callsite();
        let mut event = sequence.at_callsite(category::CALL, call.first.callsite_id().index(), callsite).track(track);
        sequence.annotate_fields(&mut event, call.first.fields(), None);
        sequence.annotate(&mut event, "enters", &Value::U64(call.enters));
        sequence.annotate_cut(&mut event, call.cut);
        sequence.instant(&mut out.packets, call.start, event)?;
        open.push(Ending { end: call.end, track, name });
    }
    while let Some(ending) = open.pop() {
        end(out, &mut sequence, &ending)?;
    }
    sequence.finish(&mut out.packets)
}

fn end(out: &mut TrackWriter<'_>, sequence: &mut Sequence, ending: &Ending<'_>) -> io::Result<()> {
    let event = sequence.new_event(Type::SliceEnd).track(ending.track);
    sequence.instant(&mut out.packets, ending.end, event)
}

/// The end of a call that is open.
#[derive(Debug, PartialEq, Eq)]
struct Ending<'a> {
    end: Timestamp,
    track: u64,
    name: &'a str,
}

impl Ord for Ending<'_> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        // The heap has the greatest on top.
        (other.end, other.track).cmp(&(self.end, self.track))
    }
}

impl PartialOrd for Ending<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

/// Returns the calls that were entered several times, in the order of their starts.
fn calls(trace: &Trace) -> Vec<Call<'_>> {
    if trace.spans().all(|span| span.previous().is_none()) {
        return Vec::new();
    }
    let of_spans = SpanCalls::of(trace);
    let mut calls: BTreeMap<SpanId, Call<'_>> = BTreeMap::new();
    for span in trace.spans().filter(|span| of_spans.is_reentered(span.id())) {
        let first = trace.span(of_spans.first(span.id()));
        let (start, end, cut) = (first.start(), first.end(), Cut::default());
        let call = calls.entry(first.id()).or_insert(Call { first, enters: 0, start, end, cut });
        call.enters += 1;
        (call.start, call.end) = (call.start.min(span.start()), call.end.max(span.end()));
        call.cut.start |= span.cut().start;
        call.cut.end |= span.cut().end;
    }
    let mut calls: Vec<_> = calls.into_values().collect();
    calls.sort_by_key(|call| call.start);
    calls
}
