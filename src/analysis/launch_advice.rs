//! What to do about launches that bound a step, but for graphs and larger batches.

use crate::trace::Framework;

/// Returns how to launch fewer kernels, the other change that helps a step which launches bound.
pub(super) fn fewer_launches(framework: Framework) -> &'static str {
    match framework {
        Framework::PyTorch => {
            "Launch fewer kernels: a larger batch, `torch.compile(model)`, `F.scaled_dot_product_attention`, and \
             optimizers with `fused=True`. The saving is that of half as many."
        }
        Framework::Candle => {
            "Launch fewer kernels: operations that are one kernel, such as `Tensor::gelu` and `silu`, and one product \
             for all heads. Inference can use `softmax_last_dim`, `layer_norm`, `rms_norm` and `rope` of `candle_nn`, \
             which have no backward pass. The saving is that of half as many."
        }
        Framework::Burn => {
            "Launch fewer kernels: the features `fusion` and `autotune` of `burn`. The saving is that of half as many."
        }
        Framework::Other => {
            "Launch fewer kernels: a larger batch, or one kernel for several operations. The saving is that of half as \
             many."
        }
    }
}

/// Returns how to run a loop once for all of its members, which is the same change for a step with loops.
pub(super) fn batched_loops(framework: Framework) -> &'static str {
    match framework {
        Framework::PyTorch => {
            "Run the loop once for all of its members: stack their weights and inputs (`torch.bmm`, \
             `torch.func.vmap`), or use one wider or grouped layer and split its result. If each needs the result of \
             the one before, use an operation that runs all of it, such as `nn.LSTM`; layers cannot be batched."
        }
        Framework::Candle => {
            "Run the loop once for all of its members: stack their weights and inputs (`Tensor::stack`, then one \
             `matmul` with a batch dimension), or use one wider layer and `chunk` its result. This is not possible if \
             each needs the result of the one before."
        }
        Framework::Burn => {
            "Run the loop once for all of its members: stack their weights and inputs (`Tensor::stack`, then one \
             `matmul` with a batch dimension), or use one wider layer and `split` its result. This is not possible if \
             each needs the result of the one before."
        }
        Framework::Other => {
            "Run the loop once for all of its members, with one more dimension of the grid, or a batched product \
             (`cublasSgemmStridedBatched`). This is not possible if each needs the result of the one before."
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{batched_loops, fewer_launches};
    use crate::{analysis::FindingKind, trace::Framework};

    #[test]
    fn the_documentation_has_both_for_each_framework() {
        let section: Vec<_> = FindingKind::LaunchBound.explanation().split_whitespace().collect();
        let section = section.join(" ");
        for framework in [Framework::PyTorch, Framework::Candle, Framework::Burn, Framework::Other] {
            assert!(section.contains(fewer_launches(framework)), "{framework:?}: {section}");
            assert!(section.contains(batched_loops(framework)), "{framework:?}: {section}");
        }
    }
}
