//! Four ways to choose the recorded steps. `cargo run --example schedule`

use kernspan::{Phase, Profiler, Schedule, trace::Step};
use tracing::instrument;
use tracing_subscriber::prelude::*;

fn main() -> Result<(), kernspan::Error> {
    // PyTorch's schedule: skip some steps, then repeat a cycle of waiting, warming up and recording.
    run("cycles", Schedule::new().skip_first(2).wait(3).warmup(1).active(2).repeat(2))?;
    // A range of steps, like TensorFlow's `profile_batch`.
    run("range", Schedule::steps(10..=12))?;
    // A function of the step number: here, every power of two.
    let powers = |step: u64| if step.is_power_of_two() { Phase::RecordAndSave } else { Phase::Wait };
    run("powers of two", Schedule::from_fn(powers))?;
    // Windows that the program opens and closes itself.
    run("by hand", Schedule::manual())
}

fn run(name: &str, schedule: Schedule) -> Result<(), kernspan::Error> {
    println!("\n{name}: {schedule:?}");
    let (layer, profiler) = Profiler::builder()
        .schedule(schedule)
        .step_on("inference")
        .on_trace(|trace| {
            let steps: Vec<_> = trace.steps().iter().map(Step::number).collect();
            println!("  window {}: steps {steps:?}, {} spans", trace.window(), trace.spans().len());
        })
        .build()?;
    tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
        for request in 0..20 {
            let _window = (name == "by hand" && request == 7).then(|| profiler.record());
            inference(request);
        }
    });
    profiler.finish().map(drop)
}

/// A request. The end of its span is the end of the step.
#[instrument]
fn inference(request: u64) {
    tracing::info_span!("prefill").in_scope(|| std::hint::black_box(request));
    tracing::info_span!("decode").in_scope(|| std::hint::black_box(request));
}
