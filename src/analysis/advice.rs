//! What to change about each kind of finding, in words of the framework that the program uses.
//!
//! Names are those of PyTorch 2.11, Candle 0.11, Burn 0.22 and cudarc 0.19. `docs/findings.md` has the same texts, as a
//! test checks.

use super::finding::FindingKind;
use crate::trace::Framework;

impl FindingKind {
    /// The change that would help, in words of a framework.
    ///
    /// ```
    /// use kernspan::{analysis::FindingKind, trace::Framework};
    ///
    /// assert!(FindingKind::InputBound.advice(Framework::PyTorch).contains("num_workers"));
    /// ```
    pub fn advice(self, framework: Framework) -> &'static str {
        match framework {
            Framework::PyTorch => pytorch(self),
            Framework::Candle => candle(self),
            Framework::Burn => burn(self),
            Framework::Other => cuda(self),
        }
    }
}

fn pytorch(kind: FindingKind) -> &'static str {
    match kind {
        FindingKind::InputBound => {
            "Load batches in worker processes, ahead of the step: `DataLoader(num_workers=8, \
             persistent_workers=True)`. If the workers are too slow, use more of them, or do less for each sample in \
             `__getitem__` and `collate_fn`."
        }
        FindingKind::HostSync => {
            "Keep `.item()`, `.cpu()`, `.tolist()`, `print(loss)` and `torch.cuda.synchronize()` out of the step: keep \
             `loss.detach()`, and read it every 50 steps. Boolean masks and `nonzero()` wait as well. \
             `torch.cuda.set_sync_debug_mode(\"warn\")` reports each place."
        }
        FindingKind::LargeReadback => {
            "Compute on the GPU what the host needs (`argmax`, `topk`, `mean`), and call `.cpu()` on that, or do so \
             every so many steps. If all of it is needed, copy it to pinned memory with `non_blocking=True`, and read \
             it a step later, after an event."
        }
        FindingKind::PageableCopy => {
            "Copy from pinned memory, and do not wait for it: `DataLoader(pin_memory=True)` and `batch.to(device, \
             non_blocking=True)`. Without a loader, call `tensor.pin_memory()` once and copy from that tensor in each \
             step."
        }
        FindingKind::TinyCopies => {
            "Put the values into one tensor on the host, and copy that once with `.to(device, non_blocking=True)`. \
             Create constants on the GPU (`torch.full(…, device=\"cuda\")`) before the loop."
        }
        FindingKind::ExposedCopy => {
            "Copy the next batch on a stream of its own while this one is computed: `with torch.cuda.stream(copies)`, \
             pinned memory and `non_blocking=True`, then `torch.cuda.current_stream().wait_stream(copies)` before it \
             is used."
        }
        FindingKind::LaunchBound => {
            "Launch the step by a CUDA graph: `torch.compile(model, mode=\"reduce-overhead\")`, or `torch.cuda.graph` \
             around a step of constant shapes."
        }
        FindingKind::HostWork => {
            "Do the work in a `DataLoader` worker or in another process (threads share Python's lock), or every so \
             many steps, or after the step is queued, while the GPU is busy."
        }
        FindingKind::BlockingAllocation => {
            "Let the caching allocator keep its memory: no `torch.cuda.empty_cache()` in the loop. If sizes vary, pad \
             batches, or set `PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True`. If memory is nearly full, use a \
             smaller batch or activation checkpointing."
        }
        FindingKind::KernelLoading => {
            "Record steps after the first ones: `torch.profiler.schedule(wait=1, warmup=3, active=3)`. If it happens \
             in each step, shapes change: pad batches, or use `torch.compile(dynamic=True)`. \
             `CUDA_MODULE_LOADING=EAGER` loads kernels when the program starts."
        }
        FindingKind::SmallGrid => {
            "Use a larger `batch_size`: the GPU can compute more samples in the same time. If the model must see small \
             batches, batch independent parts with `torch.vmap` or `torch.bmm`."
        }
        FindingKind::NoTensorCores => {
            "Let tensor cores compute: `torch.set_float32_matmul_precision(\"high\")` for TF32, or \
             `torch.autocast(\"cuda\", dtype=torch.bfloat16)` around the forward pass. Results differ in the last \
             digits."
        }
        FindingKind::OutlierSteps => {
            "Look at what only these steps do, such as evaluation, checkpoints (`torch.distributed.checkpoint` has \
             `async_save`) or compilation (`TORCH_LOGS=recompiles` gives the reasons), and do it less often or in the \
             background."
        }
        FindingKind::UnfusedChain => {
            "Let one kernel compute all of it: `torch.compile`, or the operation that does (`F.gelu`, `F.softmax`, \
             `F.layer_norm`, `F.rms_norm`, `F.scaled_dot_product_attention`, `torch.optim.AdamW(fused=True)`)."
        }
        FindingKind::TensorByTensor => {
            "Update all tensors by one launch: `fused=True` or `foreach=True` of the optimizer, \
             `torch.nn.utils.clip_grad_norm_(foreach=True)`, and `torch._foreach_mul_` and the like in loops of your \
             own."
        }
        FindingKind::SameBytesAgain => {
            "Copy it to the GPU once, before the loop: `data = data.to(device)`, or `register_buffer` if it belongs to \
             a module."
        }
        FindingKind::ExposedCollective => {
            "Exchange gradients while the backward pass still runs: `DistributedDataParallel` does so bucket by bucket \
             (try other values of `bucket_cap_mb`); FSDP has `backward_prefetch` and `forward_prefetch`. Accumulate \
             gradients under `no_sync()`, or exchange them as bf16 (`bf16_compress_hook`)."
        }
        FindingKind::SlowRank => {
            "Look at what this rank does that the others do not: uneven samples (`DistributedSampler`), a slower \
             disk, logging or checkpoints on one rank only, fewer cores, or lower clocks (`nvidia-smi -q -d \
             PERFORMANCE`)."
        }
        _ => any(kind),
    }
}

fn candle(kind: FindingKind) -> &'static str {
    match kind {
        FindingKind::InputBound => {
            "Prepare batches on other threads, some in advance, and only receive them in the step: a bounded channel \
             (`std::sync::mpsc::sync_channel`) that workers fill. If they are too slow, use more of them, or do less \
             for each sample."
        }
        FindingKind::HostSync => {
            "Keep the loss a `Tensor`, and call `to_scalar` every 50 steps, or on that of the step before. Do not call \
             `Device::synchronize` in the step."
        }
        FindingKind::LargeReadback => {
            "Compute on the GPU what the host needs (`argmax`, `sum_all`, `mean_all`), and call `to_vec1` on that, or \
             do so every so many steps."
        }
        FindingKind::PageableCopy => {
            "Copy less, as Candle copies from pageable memory: `u8` instead of `f32`, with `to_dtype` on the GPU, or \
             keep data that does not change on the GPU."
        }
        FindingKind::TinyCopies => {
            "Put the values into one `Tensor::from_vec`, and take them apart on the GPU with `narrow`. Make constants \
             before the loop."
        }
        FindingKind::ExposedCopy => {
            "Copy less, as a Candle device has one stream, on which copies and kernels take turns: `u8` instead of \
             `f32`, or keep the data on the GPU."
        }
        FindingKind::LaunchBound => {
            "Use a larger batch, with which each launch does more. Inference can be a CUDA graph \
             (`CudaDevice::cuda_stream`, then cudarc's `begin_capture`)."
        }
        FindingKind::BlockingAllocation => {
            "Tensors come from the driver's pool, which does not wait; look at what else allocates, such as another \
             library or cudarc's `alloc_pinned`, and allocate that before the loop."
        }
        FindingKind::NoTensorCores => {
            "Let tensor cores compute: `candle_core::cuda::set_gemm_reduced_precision_f32(true)` for TF32, or weights \
             and inputs of `DType::BF16`. Results differ in the last digits."
        }
        FindingKind::UnfusedChain => {
            "Use the operation that is one kernel: `Tensor::gelu`, `gelu_erf`, `silu`, `relu`, \
             `candle_nn::ops::sigmoid`. Inference can use `softmax_last_dim`, `layer_norm`, `rms_norm` and `rope` of \
             `candle_nn` as well, which have no backward pass. For anything else, write a kernel and a `CustomOp1`."
        }
        FindingKind::TensorByTensor => {
            "Keep the parameters that are updated in the same way in one tensor, of which layers use parts, or write a \
             `CustomOp` that updates all of them."
        }
        FindingKind::SameBytesAgain => {
            "Copy it to the GPU once, before the loop, by `Tensor::to_device`, and use that tensor in each step."
        }
        _ => rust(kind),
    }
}

fn burn(kind: FindingKind) -> &'static str {
    match kind {
        FindingKind::InputBound => {
            "Let worker threads prepare batches ahead of the step: `DataLoaderBuilder::num_workers`. If they are too \
             slow, use more of them, or do less in `Batcher::batch`."
        }
        FindingKind::HostSync => {
            "Keep the loss a `Tensor`, and call `into_scalar` every 50 steps, or on that of the step before. Do not \
             call `Device::sync` in the step. Metrics of `burn-train` read values, too: register only those you need."
        }
        FindingKind::LargeReadback => {
            "Compute on the GPU what the host needs (`argmax`, `sum`, `mean`), and call `into_data` on that, or do so \
             every so many steps. `into_data_async` does not hold up the thread."
        }
        FindingKind::PageableCopy => {
            "Call `Device::staging` on a batch's `TensorData` in the worker that makes it: it moves the data to \
             page-locked memory. Or copy less: `u8` instead of `f32`, converted on the GPU."
        }
        FindingKind::TinyCopies => {
            "Put the values into one `TensorData`, make one tensor of it, and take it apart on the GPU with `slice`. \
             Make constants before the loop."
        }
        FindingKind::ExposedCopy => {
            "Make the next batch's tensors on another thread, which has a stream of its own \
             (`DataLoaderBuilder::num_workers`), or copy less: `u8` instead of `f32`."
        }
        FindingKind::LaunchBound => {
            "Use a larger batch, with which each launch does more. Work of constant shapes in constant buffers, such \
             as inference, can be a CUDA graph: `burn::tensor::capture`, then `Graph::replay`."
        }
        FindingKind::BlockingAllocation => {
            "Let CubeCL's pools keep their memory: no `Device::memory_cleanup` in the loop. If shapes differ from step \
             to step, pad batches, so that memory fits again."
        }
        FindingKind::KernelLoading => {
            "Record steps after the first ones: `Schedule::skip_first` or `warmup`. If later steps compile or tune, \
             shapes change: pad batches, and drop the last batch if it is smaller. Keep the autotune cache on disk \
             between runs."
        }
        FindingKind::NoTensorCores => {
            "Let tensor cores compute: the feature `autotune` finds TF32 kernels for f32, if sizes are multiples of 8; \
             `device.configure(FloatDType::BF16)` before the first tensor makes all of them bf16. Results differ in \
             the last digits."
        }
        FindingKind::UnfusedChain => {
            "Enable the feature `fusion` of `burn`, which makes one kernel of element-wise operations in a row; \
             reading a value between them ends the row. Or use the operation that does it all, such as \
             `burn::tensor::activation::gelu`, `softmax` or `burn::nn::LayerNorm`."
        }
        FindingKind::TensorByTensor => "Enable the feature `fusion` of `burn`.",
        FindingKind::SameBytesAgain => {
            "Make the tensor once, before the loop, or keep it in the module, and clone it in each step: a clone does \
             not copy."
        }
        _ => rust(kind),
    }
}

/// The texts for programs that call CUDA themselves, or through a framework that is not known.
fn cuda(kind: FindingKind) -> &'static str {
    match kind {
        FindingKind::InputBound => candle(kind),
        FindingKind::HostSync => {
            "Read values every so many steps, or a step later, and do not synchronise in the step: `cuMemcpyDtoHAsync` \
             to page-locked memory, and an event that is queried later."
        }
        FindingKind::LargeReadback => {
            "Reduce on the GPU to what the host needs, and copy that, or copy it every so many steps. If all of it is \
             needed, copy it to page-locked memory on a second stream."
        }
        FindingKind::PageableCopy => {
            "Copy from page-locked memory, which the GPU reads itself while the host goes on: `cuMemAllocHost` \
             (cudarc: `CudaContext::alloc_pinned`)."
        }
        FindingKind::TinyCopies => {
            "Put the values into one buffer, and copy that with one `cuMemcpyHtoDAsync`. Small values can be arguments \
             of the kernel."
        }
        FindingKind::ExposedCopy => {
            "Copy the next batch on a second stream while this one is computed, with two buffers and an event: \
             `cuStreamWaitEvent` (cudarc: `CudaStream::wait`)."
        }
        FindingKind::LaunchBound => {
            "Launch the step by a CUDA graph: `cuStreamBeginCapture` once, `cuGraphLaunch` in each step (cudarc: \
             `CudaStream::begin_capture`, `CudaGraph::launch`)."
        }
        FindingKind::BlockingAllocation => {
            "Allocate before the loop and use the memory again, or allocate from a pool, which does not wait: \
             `cuMemAllocAsync` (cudarc: `CudaStream::alloc`)."
        }
        FindingKind::NoTensorCores => {
            "Let tensor cores compute: `cublasSetMathMode(CUBLAS_TF32_TENSOR_OP_MATH)`, or bf16 matrices. Results \
             differ in the last digits."
        }
        FindingKind::UnfusedChain => "Write one kernel that computes all of it, and keeps values in registers.",
        FindingKind::TensorByTensor => "Pass the addresses of all tensors to one kernel.",
        FindingKind::SameBytesAgain => "Copy it to the GPU once, before the loop, and keep it there.",
        _ => rust(kind),
    }
}

/// The texts that programs in Rust have in common.
fn rust(kind: FindingKind) -> &'static str {
    match kind {
        FindingKind::HostWork => {
            "Move the work to another thread, do it every so many steps, or do it after the step is queued, while the \
             GPU is busy."
        }
        FindingKind::KernelLoading => {
            "Record steps after the first ones: `Schedule::skip_first` or `warmup`. If it happens in each step, load \
             the module once and keep it."
        }
        FindingKind::SmallGrid => {
            "Use a larger batch: the GPU can compute more samples in the same time. If the model must see small \
             batches, run several of them on streams of their own."
        }
        FindingKind::OutlierSteps => {
            "Look at what only these steps do, and move it to another thread, or do it less often."
        }
        FindingKind::ExposedCollective => {
            "Exchange the gradients of each layer as soon as they are computed, on a second stream, while the backward \
             pass goes on; many small ones together. Exchange them less often by accumulating them, or as bf16."
        }
        FindingKind::SlowRank => {
            "Look at what this rank does that the others do not: uneven data, a slower disk, logging or checkpoints on \
             one rank only, fewer cores, or lower clocks (`nvidia-smi -q -d PERFORMANCE`)."
        }
        _ => any(kind),
    }
}

/// The texts that all programs have in common.
fn any(kind: FindingKind) -> &'static str {
    match kind {
        FindingKind::RepeatedWork => {
            "Check whether both are needed: kernels and shapes are the same; whether the inputs are is not known."
        }
        FindingKind::LowClock => {
            "Ask `nvidia-smi -q -d PERFORMANCE` what limits the clock. Raise the power limit (`nvidia-smi -pl`), \
             remove a locked clock (`nvidia-smi -rgc`), or cool the machine better. A GPU at its highest power limit \
             cannot be helped; only less work is faster."
        }
        FindingKind::HostWait => {
            "Hold the lock for a shorter time, or work on a copy; receive results a step later, and do other work \
             meanwhile; wait for an event instead of sleeping."
        }
        FindingKind::IdleThreads => {
            "Give each thread as much work as the others, or make more and smaller pieces, of which each thread takes \
             the next. Split work that one thread does alone, if its parts do not depend on each other."
        }
        FindingKind::RepeatedCalls => {
            "Make the call before the loop, or keep its result for the next call with the same data."
        }
        FindingKind::CpuSaturated => {
            "Stop other programs on these CPUs, ask for more CPUs, or use fewer threads: those of the loader, of \
             the framework and of libraries together should not be more than the CPUs."
        }
        FindingKind::DiskWait => {
            "Read ahead on other threads, keep data that fits in memory, copy it to a local disk before the run, \
             or write checkpoints and logs from another thread."
        }
        FindingKind::Swapping => {
            "Use less memory, such as fewer samples read ahead, or ask for more: `process.resident` in the report \
             says how much the program has, and `process.swap` what of it is swapped out."
        }
        FindingKind::ClockThrottling => {
            "Cool the machine better, or raise its limit of power (`nvidia-smi -q -d \
             PERFORMANCE,POWER,TEMPERATURE` shows which limit it is). Lower but steady clocks (`nvidia-smi -lgc`) \
             make all steps alike."
        }
        FindingKind::SharedGpu => "Find the other process (`nvidia-smi`), and run it elsewhere or at another time.",
        // Frameworks have words of their own for all others.
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use crate::{analysis::FindingKind, trace::Framework};

    const FRAMEWORKS: [Framework; 4] = [Framework::PyTorch, Framework::Candle, Framework::Burn, Framework::Other];

    #[test]
    fn advice_speaks_of_one_framework() {
        let foreign = |framework| match framework {
            Framework::PyTorch => ["Candle", "Burn", "cudarc", "cuMem", "`Schedule"].as_slice(),
            Framework::Candle => &["PyTorch", "torch", "Burn", "CubeCL", "cuMem"],
            Framework::Burn => &["PyTorch", "torch", "Candle", "candle", "cuMem"],
            Framework::Other => &["PyTorch", "torch", "Candle", "candle", "Burn", "CubeCL"],
        };
        for framework in FRAMEWORKS {
            for kind in FindingKind::ALL {
                let text = kind.advice(framework);
                assert!(text.ends_with('.') && !text.contains("  "), "{kind}, {framework:?}: {text:?}");
                for word in foreign(framework) {
                    assert!(!text.contains(word), "{kind}, {framework:?}: {word}");
                }
            }
        }
    }

    #[test]
    fn the_documentation_has_the_advice_for_each_framework() {
        for kind in FindingKind::ALL {
            let section: Vec<_> = kind.explanation().split_whitespace().collect();
            let section = section.join(" ");
            for framework in FRAMEWORKS {
                assert!(section.contains(kind.advice(framework)), "{kind}, {framework:?}: {section}");
            }
        }
    }
}
