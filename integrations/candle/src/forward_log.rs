//! A log of the cost of forward passes, from which the cost of a backward pass is estimated.
//!
//! Candle does not report the operations of a backward pass. But its gradient of a matrix product is two
//! products of the same size, one for each factor, even if only one of them is needed, and the same holds for
//! convolutions: twice the FLOPs of the forward pass. So each thread logs the cost of its ops by the tensors that they
//! made, and a backward pass sums up the ops that its loss was computed from.

use candle_core::{Tensor, TensorId};
use std::{
    cell::RefCell,
    collections::{HashMap, VecDeque},
};

/// The number of runs that are kept. The oldest are dropped, and not those of a finished backward pass, because a graph
/// may be walked more than once.
const MAX_RUNS: usize = 1 << 16;

thread_local! {
    static FORWARD_LOG: RefCell<ForwardLog> = RefCell::default();
}

#[derive(Default)]
struct ForwardLog {
    costs: HashMap<TensorId, PassCost>,
    /// The outputs of all runs, the oldest first, including nested runs whose cost an outer run has replaced.
    order: VecDeque<TensorId>,
    /// The number of outputs ever added to `order`.
    count: usize,
}

/// The cost of a forward or backward pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PassCost {
    pub(crate) flops: u64,
    /// The element type of the computation; if there are several, that of the most expensive op.
    pub(crate) compute: &'static str,
}

/// Returns the current end of this thread's log. Runs that are added until the op ends are nested in it.
pub(crate) fn position() -> usize {
    with(|log| log.count).unwrap_or(0)
}

/// Adds a run that began at `position`, if its output may be asked for gradients. A run of known cost replaces the
/// costs of the runs nested in it.
pub(crate) fn add(position: usize, output: &Tensor, cost: Option<PassCost>) {
    let Some(cost) = cost else { return };
    if output.track_op() {
        with(|log| log.add(position, output, cost));
    }
}

/// Estimates the cost of the backward pass of this loss; `None` if no op of known cost is part of it.
pub(crate) fn backward_cost(loss: &Tensor) -> Option<PassCost> {
    with(|log| log.backward_cost(loss)).flatten()
}

impl ForwardLog {
    fn add(&mut self, position: usize, output: &Tensor, cost: PassCost) {
        let nested = self.count.wrapping_sub(position).min(self.order.len());
        for id in self.order.iter().rev().take(nested) {
            self.costs.remove(id);
        }
        if self.order.len() >= MAX_RUNS
            && let Some(oldest) = self.order.pop_front()
        {
            self.costs.remove(&oldest);
        }
        self.order.push_back(output.id());
        self.count = self.count.wrapping_add(1);
        // An op that returns its input unchanged adds to the cost of the op that made it.
        let total = self.costs.entry(output.id()).or_insert(PassCost { flops: 0, ..cost });
        total.flops = total.flops.saturating_add(cost.flops);
    }

    fn backward_cost(&self, loss: &Tensor) -> Option<PassCost> {
        if self.costs.is_empty() {
            return None;
        }
        // The backward pass walks the same graph, and does far more at each node than this.
        let graph = loss.sorted_nodes();
        let costs = || graph.iter().filter_map(|node| self.costs.get(&node.id()));
        let compute = costs().max_by_key(|cost| cost.flops)?.compute;
        let forward = costs().fold(0_u64, |sum, cost| sum.saturating_add(cost.flops));
        Some(PassCost { flops: forward.saturating_mul(2), compute })
    }
}

/// Runs `action` on this thread's log; `None` while the thread is being torn down.
fn with<R>(action: impl FnOnce(&mut ForwardLog) -> R) -> Option<R> {
    FORWARD_LOG.try_with(|log| Some(action(&mut *log.try_borrow_mut().ok()?))).ok().flatten()
}
