/// Which readers a [`Chrome`](crate::Chrome) file is for. No file suits all of them: HolisticTraceAnalysis fails on a file that
/// the TensorBoard plugin shows whole, and the other way round.
///
/// ```no_run
/// # use kernspan::{Chrome, Profiler, export::Flavor};
/// let (layer, profiler) = Profiler::builder()
///     .export(Chrome::to_dir("runs/mnist"))
///     .export(Chrome::to_dir("runs/mnist").flavor(Flavor::TorchTensorBoard))
///     .build()?;
/// # drop((layer, profiler));
/// # Ok::<(), kernspan::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Flavor {
    /// What `torch.profiler` writes today, for Perfetto and HolisticTraceAnalysis.
    #[default]
    Kineto,
    /// What the last release of TensorBoard's plugin for PyTorch reads, torch-tb-profiler 0.4.3. The files are in a folder of their
    /// own, `torch_tb_profiler`, in the one that was asked for: `tensorboard --logdir runs/mnist/torch_tb_profiler`.
    ///
    /// Calls of the GPU's API are `runtime`, whichever API it is. What loads data is `enumerate(DataLoader)#kernspan.__next__`, so the
    /// Overview says how much of each step that is: spans of the [input pipeline](crate::trace::InputStage) on the thread that steps. Each span has a `Call stack`, that of its backtrace or
    /// else the spans it lies in. Spans with `op.module` (see [`convention`](crate::trace::convention)) are also `nn.Module: PATH`, for the
    /// Module view. A launch of nothing but an NCCL kernel lies in an op `nccl:all_reduce` and its like, for the Distributed view,
    /// where it was not handed over from another thread. Steps are on the host only.
    ///
    /// The plugin has ways of its own: it draws a step's end out to the end of what was launched in it, leaves out last steps that
    /// launched less than those before, takes calls out of the host self time of the span they belong to, and makes one op of a span
    /// whose only child has the same name. A step that would be left with no time is the annotation `step#N`, on which the
    /// plugin does not divide by zero.
    TorchTensorBoard,
}
