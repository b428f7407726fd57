//! The sampled stacks of a document, as kernspan writes them.

use super::{header::Header, raw::Raw, rows::Rows, span_ids::SpanIds};
use crate::trace::{
    StackFrame, StackFrameId, StackNode, StackNodeId, StackSampleData, StackSampling, Timestamp, Trace, TrackId,
};
use rustc_hash::FxHashMap;
use std::borrow::Cow;

/// Adds the sampled stacks, if the document has any. Frames and samples that are not valid are counted as unread.
pub(super) fn add_samples(trace: &mut Trace, header: &Header, spans: &SpanIds) {
    let Some(members) = header.get(Header::SAMPLING).members() else { return };
    let member = |key: &str| members.iter().find(|(name, _)| name == key).map(|(_, raw)| *raw).unwrap_or_default();
    let mut reading = Reading { base: header.base(), ..Reading::default() };
    reading.sampling.hertz = member("hertz").u32().unwrap_or(0);
    reading.sampling.lost = member("lost").u64().unwrap_or(0);
    reading.sampling.problem = member("problem").text().map(Cow::into_owned);
    reading.sampling.frames = member("frames").list().unwrap_or_default().into_iter().map(frame).collect();
    for (id, node) in header.get("stackFrames").members().unwrap_or_default() {
        reading.add_node(&id, node);
    }
    for (index, track) in trace.tracks.iter().enumerate() {
        let tid = track.thread.as_u64().cast_signed();
        let tid = tid.wrapping_add(i64::from(track.overlap) * Rows::TID_STRIDE);
        reading.tracks.entry(tid).or_insert(TrackId::new(index));
    }
    for sample in header.get("samples").list().unwrap_or_default() {
        reading.add_sample(sample, spans);
    }
    reading.sampling.samples.sort_by_key(|sample| sample.at);
    trace.losses.unread += reading.unread;
    trace.stack_sampling = Some(Box::new(reading.sampling));
}

#[derive(Default)]
struct Reading {
    sampling: StackSampling,
    nodes: FxHashMap<u64, StackNodeId>,
    tracks: FxHashMap<i64, TrackId>,
    base: u64,
    unread: u64,
}

impl Reading {
    /// Adds a node. Its caller comes before it.
    fn add_node(&mut self, id: &str, raw: Raw<'_>) {
        let node = || {
            let members = raw.members()?;
            let member = |key: &str| members.iter().find(|(name, _)| name == key).map(|(_, raw)| *raw);
            let frame = usize::try_from(member("frame")?.u64()?).ok();
            let frame = frame.filter(|frame| *frame < self.sampling.frames.len()).map(StackFrameId::new)?;
            let caller = match member("parent") {
                Some(parent) => Some(*self.nodes.get(&parent.u64()?)?),
                None => None,
            };
            Some((id.parse().ok()?, StackNode { frame, caller }))
        };
        match node() {
            Some((id, node)) => {
                self.nodes.insert(id, StackNodeId::new(self.sampling.nodes.len()));
                self.sampling.nodes.push(node);
            }
            None => self.unread += 1,
        }
    }

    fn add_sample(&mut self, raw: Raw<'_>, spans: &SpanIds) {
        let sample = || {
            let members = raw.members()?;
            let member = |key: &str| members.iter().find(|(name, _)| name == key).map(|(_, raw)| *raw);
            let is = |key: &str| member(key).and_then(Raw::bool) == Some(true);
            let stack = match member("sf") {
                Some(node) => Some(*self.nodes.get(&node.u64()?)?),
                None => None,
            };
            let span = match member("External id") {
                Some(id) => Some(spans.get(id.u64()?)?),
                None => None,
            };
            Some(StackSampleData {
                at: Timestamp::from_unix_nanos(member("ts")?.nanos()?.saturating_add(self.base)),
                nanos: member("weight")?.u64()?,
                track: *self.tracks.get(&member("tid")?.i64()?)?,
                span,
                stack,
                waiting: member("name")?.text()? == "waiting",
                pool: is("pool"),
                at_edge: is("at_edge"),
                truncated: is("truncated"),
            })
        };
        match sample() {
            Some(sample) => self.sampling.samples.push(sample),
            None => self.unread += 1,
        }
    }
}

fn frame(raw: Raw<'_>) -> StackFrame {
    let members = raw.members().unwrap_or_default();
    let member = |key: &str| members.iter().find(|(name, _)| name == key).map(|(_, raw)| *raw).unwrap_or_default();
    let text = |key: &str| member(key).text().map(Cow::into_owned);
    StackFrame {
        function: text("function").unwrap_or_default(),
        file: text("file"),
        line: member("line").u32(),
        library: text("library").unwrap_or_default(),
        inlined: member("inlined").bool() == Some(true),
    }
}
