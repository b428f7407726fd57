//! The profiler that both commands use.

use kernspan::{Activity, Chrome, Html, Perfetto, Profiler, ProfilerBuilder, Stacks, TensorBoard};
use kernspan_candle::kernel_op;

const RUNS: &str = "runs/candle-transformer";

/// Prints the report, and on a GPU the table of kernels by operation.
pub(crate) fn finish(profiler: Profiler) -> Result<(), kernspan::Error> {
    let report = profiler.finish_and_print()?;
    if report.gpu().is_available() {
        println!("{}", report.kernels().group_by(kernel_op).limit(10).fit_terminal());
    }
    Ok(())
}

/// Returns a builder with activities and exporters; each command adds its schedule.
pub(crate) fn profiler() -> ProfilerBuilder {
    let builder = Profiler::builder();
    #[cfg(feature = "samples")]
    let builder = builder.samples(kernspan::Samples::default());
    builder
        .activities([Activity::Host, Activity::Kernels, Activity::Copies, Activity::Memory])
        .export(Chrome::to_dir(RUNS))
        .export(Perfetto::to_dir(RUNS))
        .export(Stacks::to_dir(RUNS))
        .export(Html::to_dir(RUNS))
        .export(TensorBoard::to_dir(RUNS))
}
