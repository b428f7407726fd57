//! The instructions of a span, counted by callgrind: the same on any machine, however busy.
//! `benches/instructions.sh` runs it.

mod support;

#[cfg(feature = "serving")]
use kernspan::ProfilerBuilder;
use kernspan::{Profiler, Schedule};
use support::{Contender, Nothing, WORKLOADS, race};
use tracing_subscriber::{prelude::*, registry};

/// `instructions PHASE WORKLOAD ROUNDS`
fn main() -> Result<(), kernspan::Error> {
    let arguments: Vec<_> = std::env::args().filter(|argument| argument != "--bench").collect();
    let [_, phase, workload, rounds] = arguments.as_slice() else {
        println!("run benches/instructions.sh");
        return Ok(());
    };
    let builder = Profiler::builder().schedule(Schedule::manual()).lane_capacity(1 << 20);
    #[cfg(all(feature = "control", unix))]
    let builder = match phase.as_str() {
        "listening" => builder.listen(kernspan::control::Listen::default()),
        _ => builder,
    };
    let builder = if phase == "timed" { builder.cpu_time(kernspan::CpuTime::spans()) } else { builder };
    #[cfg(feature = "serving")]
    let builder = match phase.as_str() {
        // The names of the spans of the workloads.
        "counted" => ["plain", "two", "eight", "again"].into_iter().fold(builder, ProfilerBuilder::request_on),
        // No span is a request.
        "others" => builder.request_on("other"),
        _ => builder,
    };
    let (layer, profiler) = builder.build()?;
    let (contender, profiler) = match phase.as_str() {
        "empty" => (Contender::new("empty layer", registry().with(Nothing)), Some(profiler)),
        "off" => {
            profiler.finish()?;
            // The other layer keeps spans enabled.
            (Contender::new("off", registry().with(Nothing).with(layer)), None)
        }
        "finished" => {
            let contender = Contender::new("finished", registry().with(layer));
            profiler.finish()?;
            (contender, None)
        }
        "recording" | "timed" => {
            profiler.start();
            (Contender::new("recording", registry().with(layer)), Some(profiler))
        }
        _ => (Contender::new("waiting", registry().with(layer)), Some(profiler)),
    };
    let workload = WORKLOADS.iter().find(|known| known.name == workload).unwrap_or(&WORKLOADS[0]);
    race(&[contender], workload, rounds.parse().unwrap_or(1));
    // Without this, the end of the background threads would be counted, too.
    std::mem::forget(profiler);
    Ok(())
}
