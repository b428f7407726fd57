//! Sampled stacks: the members `stackFrames` and `samples` of Chrome's format, and what it has no place for.

use super::{
    flavor::Times,
    rows::{Row, host_pid},
};
use crate::{
    export::json::Object,
    trace::{Attribution, Trace},
};

/// Adds the sampled stacks to the header, if stacks were sampled.
///
/// Chrome's frames are nodes: each has a `parent`, its caller. Here they also have the number of the `frame`, of which
/// `kernspan_sampling` knows the line. The `weight` of a sample is in nanoseconds.
pub(super) fn write(header: &mut Object<'_>, trace: &Trace, times: Times) {
    let Some(sampling) = trace.stack_sampling() else { return };
    header.object("kernspan_sampling", |object| {
        object.number("hertz", sampling.hertz());
        object.number("lost", sampling.lost());
        sampling.problem().iter().for_each(|problem| object.string("problem", problem));
        object.array_of_lines("frames", |frames| {
            for frame in sampling.frames() {
                frames.object(|object| {
                    object.string("function", frame.function());
                    frame.file().iter().for_each(|file| object.string("file", file));
                    frame.line().iter().for_each(|line| object.number("line", *line));
                    object.string("library", frame.library());
                    if frame.is_inlined() {
                        object.bool("inlined", true);
                    }
                });
            }
        });
    });
    header.object("stackFrames", |nodes| {
        for (index, node) in sampling.nodes.iter().enumerate() {
            let frame = &sampling.frames[node.frame.index()];
            nodes.object_entry(&index.to_string(), |object| {
                object.string("name", frame.function());
                object.string("category", frame.library());
                // Chrome's ids are texts, or numbers where a sample refers to them.
                node.caller.iter().for_each(|caller| object.string("parent", &caller.index().to_string()));
                object.number("frame", node.frame.index());
            });
        }
    });
    let pid = host_pid(trace);
    header.array_of_lines("samples", |samples| {
        for sample in trace.stack_samples() {
            samples.object(|object| {
                object.word("name", if sample.is_waiting() { "waiting" } else { "cpu" });
                object.number("tid", Row::of_track(pid, sample.track()).tid);
                object.micros("ts", &times.at(sample.at()));
                sample.node().iter().for_each(|node| object.number("sf", node.index()));
                object.number("weight", u64::try_from(sample.duration().as_nanos()).unwrap_or(u64::MAX));
                sample.span().iter().for_each(|span| object.number("External id", span.id().index() + 1));
                if sample.attribution() == Attribution::HandedOff {
                    object.bool("pool", true);
                }
                if sample.is_at_edge() {
                    object.bool("at_edge", true);
                }
                if sample.is_truncated() {
                    object.bool("truncated", true);
                }
            });
        }
    });
}
