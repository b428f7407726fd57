//! What a backward pass takes, from the forward passes before it.
//!
//! Candle does not tell what a gradient is made of. But its gradient of a product is two products of the same size, one for each
//! factor, whether or not anybody asked for both, and so for convolutions: twice the FLOPs of the forward pass. So each thread
//! remembers what its ops took, by the tensors they made, and a backward pass counts those that its loss was made of.

use candle_core::{Tensor, TensorId};
use std::{
    cell::RefCell,
    collections::{HashMap, VecDeque},
};

/// Runs that are remembered. The oldest are forgotten: a graph may be gone back through more than once.
const KEPT: usize = 1 << 16;

thread_local! {
    static FORWARD: RefCell<Forward> = RefCell::default();
}

#[derive(Default)]
struct Forward {
    runs: HashMap<TensorId, Spent>,
    /// The outputs, the oldest first; those of nested runs that others stand for are among them.
    order: VecDeque<TensorId>,
    /// How many outputs there have been.
    count: usize,
}

/// What a forward or backward pass took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Spent {
    pub(crate) flops: u64,
    /// The type that it was computed with; of most of it, where there are several.
    pub(crate) compute: &'static str,
}

/// Where an op begins: what runs after it is nested in it.
pub(crate) fn mark() -> usize {
    with(|forward| forward.count).unwrap_or(0)
}

/// Remembers a run, if gradients may be asked for. One that says what it took stands for those nested in it.
pub(crate) fn remember(mark: usize, output: &Tensor, spent: Option<Spent>) {
    let Some(spent) = spent else { return };
    if output.track_op() {
        with(|forward| forward.remember(mark, output, spent));
    }
}

/// What the gradients of this loss take, as far as it is known.
pub(crate) fn backward_of(loss: &Tensor) -> Option<Spent> {
    with(|forward| forward.backward_of(loss)).flatten()
}

impl Forward {
    fn remember(&mut self, mark: usize, output: &Tensor, spent: Spent) {
        let nested = self.count.wrapping_sub(mark).min(self.order.len());
        for id in self.order.iter().rev().take(nested) {
            self.runs.remove(id);
        }
        if self.order.len() >= KEPT
            && let Some(oldest) = self.order.pop_front()
        {
            self.runs.remove(&oldest);
        }
        self.order.push_back(output.id());
        self.count = self.count.wrapping_add(1);
        // What an op hands through unchanged keeps what it took to make it.
        let known = self.runs.entry(output.id()).or_insert(Spent { flops: 0, ..spent });
        known.flops = known.flops.saturating_add(spent.flops);
    }

    fn backward_of(&self, loss: &Tensor) -> Option<Spent> {
        if self.runs.is_empty() {
            return None;
        }
        // Backward walks the graph in the same way, which takes much less than what it does at each node.
        let graph = loss.sorted_nodes();
        let runs = || graph.iter().filter_map(|node| self.runs.get(&node.id()));
        let compute = runs().max_by_key(|run| run.flops)?.compute;
        let forward = runs().fold(0_u64, |sum, run| sum.saturating_add(run.flops));
        Some(Spent { flops: forward.saturating_mul(2), compute })
    }
}

/// None while the thread is being torn down.
fn with<R>(action: impl FnOnce(&mut Forward) -> R) -> Option<R> {
    FORWARD.try_with(|forward| Some(action(&mut *forward.try_borrow_mut().ok()?))).ok().flatten()
}
