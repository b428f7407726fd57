//! Ways to say what is recorded. `cargo run --example schedule`

use kernspan::{Phase, Profiler, Schedule};
use tracing::instrument;
use tracing_subscriber::prelude::*;

fn main() -> Result<(), kernspan::Error> {
    // PyTorch's schedule: skip, then wait, warm up and record, some times over.
    run("cycles", Schedule::new().skip_first(2).wait(3).warmup(1).active(2).repeat(2))?;
    // TensorFlow's profile_batch: a range.
    run("range", Schedule::steps(10..=12))?;
    // Any function: here, every step whose number is a power of two.
    let powers = |step: u64| if step.is_power_of_two() { Phase::RecordAndSave } else { Phase::Wait };
    run("powers of two", Schedule::from_fn(powers))?;
    // The profiler can also be steered by hand.
    run("by hand", Schedule::manual())
}

fn run(name: &str, schedule: Schedule) -> Result<(), kernspan::Error> {
    println!("\n{name}: {schedule:?}");
    let (layer, profiler) = Profiler::builder()
        .schedule(schedule)
        .step_on("inference")
        .on_trace(|trace| {
            let steps: Vec<_> = trace.steps().iter().map(kernspan::trace::Step::number).collect();
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

/// Its close is the step.
#[instrument]
fn inference(request: u64) {
    tracing::info_span!("prefill").in_scope(|| std::hint::black_box(request));
    tracing::info_span!("decode").in_scope(|| std::hint::black_box(request));
}
