//! What a backward pass will take, from the forward passes before it.
//!
//! Candle does not tell what a gradient is made of. But its gradient of a product is two products of the same size, one for each
//! factor, whether or not anybody asked for both, and so for convolutions: twice the FLOPs of the forward pass. So each thread
//! remembers what its ops took, and which tensors they made, and a backward pass counts those that its loss was made of.

use candle_core::{DType, Tensor, TensorId};
use std::{cell::RefCell, collections::HashSet, collections::VecDeque};

/// Runs that are remembered. Where nobody ever goes back, old ones are forgotten.
const KEPT: usize = 1 << 16;

thread_local! {
    static FORWARD: RefCell<Forward> = const { RefCell::new(Forward { runs: VecDeque::new(), count: 0, latest: None }) };
}

struct Forward {
    runs: VecDeque<Run>,
    /// How many have been there.
    count: u64,
    /// Loops do the same again and again: what the runs came to last time.
    latest: Option<(Tally, Backward)>,
}

struct Run {
    output: TensorId,
    dtype: DType,
    flops: u64,
}

/// What makes the runs before a backward pass the same as last time.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Tally {
    runs: usize,
    flops: u64,
}

/// What a backward pass takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Backward {
    pub(crate) flops: u64,
    /// Of most of them.
    pub(crate) dtype: DType,
}

/// Where an op begins: what runs after it is nested in it.
pub(crate) fn mark() -> u64 {
    with(|forward| forward.count).unwrap_or(0)
}

/// Remembers a run, if gradients may be asked for. One that says what it took stands for those nested in it.
pub(crate) fn remember(mark: u64, output: &Tensor, flops: Option<u64>) {
    let Some(flops) = flops else { return };
    if !output.track_op() {
        return;
    }
    with(|forward| {
        let nested = usize::try_from(forward.count.saturating_sub(mark)).unwrap_or(usize::MAX);
        forward.runs.truncate(forward.runs.len().saturating_sub(nested));
        forward.count = mark + 1;
        if forward.runs.len() == KEPT {
            forward.runs.pop_front();
        }
        forward.runs.push_back(Run { output: output.id(), dtype: output.dtype(), flops });
    });
}

/// What the gradients of this loss take, as far as it is known, and forgets the runs.
pub(crate) fn backward_of(loss: &Tensor) -> Option<Backward> {
    with(|forward| {
        let backward = forward.backward_of(loss);
        forward.runs.clear();
        backward
    })
    .flatten()
}

impl Forward {
    fn backward_of(&mut self, loss: &Tensor) -> Option<Backward> {
        let tally = Tally { runs: self.runs.len(), flops: sum(self.runs.iter()) };
        if let Some((known, backward)) = self.latest
            && known == tally
        {
            return Some(backward);
        }
        let graph: HashSet<_> = loss.sorted_nodes().into_iter().map(Tensor::id).collect();
        let runs = || self.runs.iter().filter(|run| graph.contains(&run.output));
        let dtype = runs().max_by_key(|run| run.flops)?.dtype;
        let backward = Backward { flops: sum(runs()).saturating_mul(2), dtype };
        self.latest = Some((tally, backward));
        Some(backward)
    }
}

fn sum<'a>(runs: impl Iterator<Item = &'a Run>) -> u64 {
    runs.fold(0, |sum, run| sum.saturating_add(run.flops))
}

/// None while the thread is being torn down.
fn with<R>(action: impl FnOnce(&mut Forward) -> R) -> Option<R> {
    FORWARD.try_with(|forward| Some(action(&mut *forward.try_borrow_mut().ok()?))).ok().flatten()
}
