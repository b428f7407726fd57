//! The stacks of one window, as addresses: each chain of callers is stored once.

use super::{modules::CodeModule, unwind::StackUnwinder};
use crate::{
    budget::Budget,
    clock::Ticks,
    thread::ThreadInfo,
    trace::{StackFrame, StackNode, StackSampleData, ThreadId},
};
use rustc_hash::FxHashMap;
use std::{mem::size_of, sync::Arc};

/// In place of an address: the only frame of a thread that was preempted. Where that happened says nothing.
pub(super) const PREEMPTED: u64 = u64::MAX;

/// The sampled stacks of a window that has closed.
#[derive(Debug, Default)]
pub(crate) struct SampledStacks {
    pub(super) hertz: u32,
    /// In chronological order.
    pub(super) samples: Vec<RawSample>,
    /// Callers come before the functions that they call.
    pub(super) nodes: Vec<RawNode>,
    pub(super) threads: Vec<ThreadInfo>,
    pub(super) lost: u64,
    pub(super) problem: Option<String>,
    /// The bytes reserved in the [`Budget`].
    pub(crate) charged: usize,
}

/// A stack, as an index of its innermost frame.
#[derive(Clone, Copy, Debug)]
pub(super) struct RawSample {
    pub(super) at: Ticks,
    pub(super) nanos: u64,
    pub(super) thread: ThreadId,
    pub(super) stack: Option<u32>,
    pub(super) waiting: bool,
    pub(super) truncated: bool,
}

/// An address in the code, and the index of its caller.
#[derive(Clone, Debug)]
pub(super) struct RawNode {
    pub(super) address: u64,
    pub(super) caller: Option<u32>,
    /// Where the address was at that time.
    pub(super) module: Option<Arc<CodeModule>>,
}

/// The stacks of a window that is open.
#[derive(Debug, Default)]
pub(super) struct StackTable {
    pub(super) samples: Vec<RawSample>,
    nodes: Vec<RawNode>,
    index: FxHashMap<(u64, Option<u32>), u32>,
    /// The number of samples that were dropped.
    pub(super) lost: u64,
    charged: usize,
}

impl StackTable {
    /// The bytes of a sample, here and in the trace.
    const SAMPLE_COST: usize = size_of::<RawSample>() + size_of::<StackSampleData>();
    /// The bytes of an address: here, where the table has up to twice the room that it uses, and in the trace, with
    /// strings of some hundred bytes for a frame.
    const NODE_COST: usize = 2 * size_of::<((u64, Option<u32>), u32)>()
        + size_of::<RawNode>()
        + size_of::<StackNode>()
        + size_of::<StackFrame>()
        + 100;

    /// Adds a sample, if there is memory for it. `frames` are its addresses, innermost first.
    pub(super) fn add(&mut self, sample: RawSample, frames: &[u64], unwinder: &StackUnwinder, budget: &Budget) {
        if budget.is_spent_at(usize::MAX) {
            self.lost += 1;
            return;
        }
        let before = self.nodes.len();
        let mut stack = None;
        for &address in frames.iter().rev() {
            let next = self.nodes.len() as u32;
            let node = *self.index.entry((address, stack)).or_insert(next);
            if node == next {
                let module = unwinder.module(address).cloned();
                self.nodes.push(RawNode { address, caller: stack, module });
            }
            stack = Some(node);
        }
        self.samples.push(RawSample { stack, ..sample });
        let cost = Self::SAMPLE_COST + (self.nodes.len() - before) * Self::NODE_COST;
        budget.take(cost);
        self.charged += cost;
    }

    /// Returns the samples of the window that closes now. Later ones, and the stacks for them, stay.
    pub(super) fn close(&mut self, close: Ticks) -> SampledStacks {
        let later: Vec<_> = self.samples.extract_if(.., |sample| sample.at >= close).collect();
        let mut samples = std::mem::take(&mut self.samples);
        samples.sort_by_key(|sample| sample.at);
        let closed = SampledStacks {
            samples,
            nodes: std::mem::take(&mut self.nodes),
            lost: std::mem::take(&mut self.lost),
            charged: std::mem::take(&mut self.charged),
            ..SampledStacks::default()
        };
        self.index.clear();
        if !later.is_empty() {
            // They are few: those of the moments between the close and this.
            self.nodes.clone_from(&closed.nodes);
            self.index.extend(self.nodes.iter().zip(0..).map(|(node, at)| ((node.address, node.caller), at)));
            self.samples = later;
        }
        closed
    }

    /// Drops what was sampled before the window opened.
    pub(super) fn open(&mut self, open: Ticks) {
        self.samples.retain(|sample| sample.at >= open);
    }
}
