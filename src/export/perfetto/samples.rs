//! Sampled stacks of threads, as packets of Perfetto's profiler for `perf` events.
//!
//! A frame has a mapping, which is its library, and a function; both are written once. A callstack is a list of frames.

use super::{
    proto::{CLOCK_BOOTTIME, InternedName, SEQ_INCREMENTAL_STATE_CLEARED, SEQ_NEEDS_INCREMENTAL_STATE},
    tracks::TrackWriter,
};
use crate::trace::{StackFrame, StackNodeId, StackSample, StackSampling};
use prost::Message;
use rustc_hash::FxHashMap;
use std::io;

/// A packet of a sample, or the first one of a sequence of samples.
#[derive(Clone, PartialEq, Message)]
pub(super) struct SamplePacket {
    #[prost(uint64, optional, tag = "8")]
    pub(super) timestamp: Option<u64>,
    #[prost(uint32, optional, tag = "10")]
    pub(super) trusted_packet_sequence_id: Option<u32>,
    #[prost(message, optional, tag = "12")]
    pub(super) interned_data: Option<InternedStacks>,
    #[prost(uint32, optional, tag = "13")]
    pub(super) sequence_flags: Option<u32>,
    #[prost(uint32, optional, tag = "58")]
    timestamp_clock_id: Option<u32>,
    #[prost(message, optional, tag = "59")]
    trace_packet_defaults: Option<SampleDefaults>,
    #[prost(message, optional, tag = "66")]
    pub(super) perf_sample: Option<PerfSample>,
}

#[derive(Clone, PartialEq, Message)]
struct SampleDefaults {
    #[prost(message, optional, tag = "12")]
    perf_sample_defaults: Option<PerfSampleDefaults>,
}

#[derive(Clone, PartialEq, Message)]
struct PerfSampleDefaults {
    #[prost(message, optional, tag = "1")]
    timebase: Option<Timebase>,
}

#[derive(Clone, PartialEq, Message)]
struct Timebase {
    #[prost(uint64, optional, tag = "2")]
    frequency: Option<u64>,
    #[prost(uint32, optional, tag = "4")]
    counter: Option<u32>,
    #[prost(string, optional, tag = "10")]
    name: Option<String>,
}

/// The counter of the time that a thread is on the CPU.
const SW_TASK_CLOCK: u32 = 3;

#[derive(Clone, PartialEq, Message)]
pub(super) struct PerfSample {
    #[prost(uint32, optional, tag = "2")]
    pub(super) pid: Option<u32>,
    #[prost(uint32, optional, tag = "3")]
    pub(super) tid: Option<u32>,
    #[prost(uint64, optional, tag = "4")]
    pub(super) callstack_iid: Option<u64>,
    #[prost(uint32, optional, tag = "5")]
    cpu_mode: Option<u32>,
    #[prost(uint32, optional, tag = "16")]
    pub(super) unwind_error: Option<u32>,
}

/// User space.
const MODE_USER: u32 = 2;
/// The stack could not be followed for an unknown reason.
const UNWIND_ERROR_UNKNOWN: u32 = 1;

#[derive(Clone, PartialEq, Message)]
pub(super) struct InternedStacks {
    #[prost(message, repeated, tag = "5")]
    pub(super) function_names: Vec<InternedName>,
    #[prost(message, repeated, tag = "6")]
    pub(super) frames: Vec<Frame>,
    #[prost(message, repeated, tag = "7")]
    pub(super) callstacks: Vec<Callstack>,
    #[prost(message, repeated, tag = "17")]
    mapping_paths: Vec<InternedName>,
    #[prost(message, repeated, tag = "18")]
    source_paths: Vec<InternedName>,
    #[prost(message, repeated, tag = "19")]
    mappings: Vec<Mapping>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Frame {
    #[prost(uint64, optional, tag = "1")]
    pub(super) iid: Option<u64>,
    #[prost(uint64, optional, tag = "2")]
    pub(super) function_name_id: Option<u64>,
    #[prost(uint64, optional, tag = "3")]
    mapping_id: Option<u64>,
    #[prost(uint64, optional, tag = "4")]
    rel_pc: Option<u64>,
    #[prost(uint64, optional, tag = "5")]
    source_path_iid: Option<u64>,
    #[prost(uint32, optional, tag = "6")]
    line_number: Option<u32>,
}

#[derive(Clone, PartialEq, Message)]
struct Mapping {
    #[prost(uint64, optional, tag = "1")]
    iid: Option<u64>,
    #[prost(uint64, repeated, packed = "false", tag = "7")]
    path_string_ids: Vec<u64>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Callstack {
    #[prost(uint64, optional, tag = "1")]
    pub(super) iid: Option<u64>,
    /// Outermost first.
    #[prost(uint64, repeated, packed = "false", tag = "2")]
    pub(super) frame_ids: Vec<u64>,
}

/// Writes the samples on the CPU. Waits are left out: Perfetto counts samples, and all of them as time on the CPU.
pub(super) fn write(out: &mut TrackWriter<'_>) -> io::Result<()> {
    let trace = out.trace;
    let Some(sampling) = trace.stack_sampling() else { return Ok(()) };
    if trace.stack_samples().all(StackSample::is_waiting) {
        return Ok(());
    }
    let sequence = out.new_sequence();
    let timebase = Timebase {
        frequency: Some(sampling.hertz().into()),
        counter: Some(SW_TASK_CLOCK),
        name: Some("CPU".to_owned()),
    };
    out.packets.message(&SamplePacket {
        timestamp: Some(trace.start().as_unix_nanos()),
        trusted_packet_sequence_id: Some(sequence),
        sequence_flags: Some(SEQ_INCREMENTAL_STATE_CLEARED),
        timestamp_clock_id: Some(CLOCK_BOOTTIME),
        trace_packet_defaults: Some(SampleDefaults {
            perf_sample_defaults: Some(PerfSampleDefaults { timebase: Some(timebase) }),
        }),
        ..SamplePacket::default()
    })?;
    let mut stacks = Stacks::of(sampling);
    let pid = Some(trace.metadata().pid);
    for sample in trace.stack_samples().filter(|sample| !sample.is_waiting()) {
        let callstack_iid = sample.node().map(|node| stacks.callstack(node));
        out.packets.message(&SamplePacket {
            timestamp: Some(sample.at().as_unix_nanos()),
            trusted_packet_sequence_id: Some(sequence),
            interned_data: stacks.new.take(),
            sequence_flags: Some(SEQ_NEEDS_INCREMENTAL_STATE),
            timestamp_clock_id: Some(CLOCK_BOOTTIME),
            perf_sample: Some(PerfSample {
                pid,
                tid: u32::try_from(sample.track().thread().as_u64()).ok(),
                callstack_iid,
                cpu_mode: Some(MODE_USER),
                unwind_error: sample.is_truncated().then_some(UNWIND_ERROR_UNKNOWN),
            }),
            ..SamplePacket::default()
        })?;
    }
    Ok(())
}

/// The numbers of the callstacks, frames and texts of a sequence. Each is written with the first sample that uses it.
struct Stacks<'a> {
    sampling: &'a StackSampling,
    /// Whether each node has been written as a callstack. Its number is its index, counted from 1.
    callstacks: Vec<bool>,
    /// Whether each frame has been written.
    frames: Vec<bool>,
    functions: FxHashMap<&'a str, u64>,
    files: FxHashMap<&'a str, u64>,
    libraries: FxHashMap<&'a str, u64>,
    new: Option<InternedStacks>,
}

impl<'a> Stacks<'a> {
    fn of(sampling: &'a StackSampling) -> Self {
        Self {
            sampling,
            callstacks: vec![false; sampling.nodes.len()],
            frames: vec![false; sampling.frames.len()],
            functions: FxHashMap::default(),
            files: FxHashMap::default(),
            libraries: FxHashMap::default(),
            new: None,
        }
    }

    fn callstack(&mut self, node: StackNodeId) -> u64 {
        let iid = node.index() as u64 + 1;
        if !std::mem::replace(&mut self.callstacks[node.index()], true) {
            let nodes = &self.sampling.nodes;
            let stack = std::iter::successors(Some(node), |node| nodes[node.index()].caller);
            let mut frame_ids: Vec<_> = stack.map(|node| self.frame(nodes[node.index()].frame.index())).collect();
            frame_ids.reverse();
            self.new.get_or_insert_default().callstacks.push(Callstack { iid: Some(iid), frame_ids });
        }
        iid
    }

    fn frame(&mut self, index: usize) -> u64 {
        let iid = index as u64 + 1;
        if !std::mem::replace(&mut self.frames[index], true) {
            let frame: &'a StackFrame = &self.sampling.frames[index];
            let new = self.new.get_or_insert_default();
            let function = intern(&mut self.functions, frame.function(), &mut new.function_names);
            let file = frame.file().map(|file| intern(&mut self.files, file, &mut new.source_paths));
            let known = self.libraries.len();
            let library = intern(&mut self.libraries, frame.library(), &mut new.mapping_paths);
            if self.libraries.len() > known {
                new.mappings.push(Mapping { iid: Some(library), path_string_ids: vec![library] });
            }
            new.frames.push(Frame {
                iid: Some(iid),
                function_name_id: Some(function),
                mapping_id: Some(library),
                // Frames of a function differ by their lines only.
                rel_pc: Some(0),
                source_path_iid: file,
                line_number: frame.line(),
            });
        }
        iid
    }
}

fn intern<'a>(known: &mut FxHashMap<&'a str, u64>, text: &'a str, new: &mut Vec<InternedName>) -> u64 {
    let next = known.len() as u64 + 1;
    *known.entry(text).or_insert_with(|| {
        new.push(InternedName { iid: Some(next), name: Some(text.to_owned()) });
        next
    })
}
