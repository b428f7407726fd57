//! The cost of a request while nothing is recorded. `cargo bench --features serving --bench requests`
//!
//! A service's threads end some thousand requests a second each, and a background thread adds up what they note. Where
//! they end more, as without a pause, they add it up themselves.

mod support;

use kernspan::{Profiler, ProfilerBuilder, ProfilerLayer, Schedule};
use std::{thread::sleep, time::Duration};
use support::{Contender, WORKLOADS, Workload, plain, race, rounds, threads, two_fields};
use tracing_subscriber::{prelude::*, registry};

/// Twice as long as until the background thread has visited all lists of notes.
const PAUSE: Duration = Duration::from_millis(100);

/// Fewer requests for each thread than its list has room for, which is 512.
const WITH_PAUSES: [Workload; 4] = [
    Workload { name: "plain", spans: 400, run: plain },
    Workload { name: "two fields", spans: 400, run: two_fields },
    Workload { name: "8 threads", spans: 8 * 400, run: threads::<8> },
    Workload { name: "64 threads", spans: 64 * 400, run: threads::<64> },
];

/// Returns the layer of a profiler that waits, and lives as long as the process.
fn waiting(builder: ProfilerBuilder) -> Result<ProfilerLayer, kernspan::Error> {
    let (layer, profiler) = builder.schedule(Schedule::manual()).build()?;
    std::mem::forget(profiler);
    Ok(layer)
}

fn main() -> Result<(), kernspan::Error> {
    let kinds = ["plain", "two", "eight", "nested", "again"];
    let counted = kinds.into_iter().fold(Profiler::builder(), ProfilerBuilder::request_on);
    let contenders = [
        Contender::new("waiting", registry().with(waiting(Profiler::builder())?)),
        Contender::new("counted", registry().with(waiting(counted)?)),
        // No span is a request.
        Contender::new("others", registry().with(waiting(Profiler::builder().request_on("other"))?)),
    ];
    let rounds = rounds(50);
    println!("ns a span, least of {rounds} interleaved rounds\n");
    println!("{:28}{:>10}{:>10}{:>10}{:>15}", "", "waiting", "counted", "a request", "not a request");
    let show = |name: &str, least: &[f64]| {
        let [waiting, counted, others] = [least[0], least[1], least[2]];
        println!("{name:28}{waiting:10.1}{counted:10.1}{:10.1}{:15.1}", counted - waiting, others - waiting);
    };
    for workload in &WITH_PAUSES {
        let mut least = [f64::INFINITY; 3];
        for _ in 0..rounds {
            for (contender, least) in contenders.iter().zip(&mut least) {
                // Before each of them, as caches are cold after it.
                sleep(PAUSE);
                *least = least.min(race(std::slice::from_ref(contender), workload, 1)[0]);
            }
        }
        show(workload.name, &least);
    }
    for workload in &WORKLOADS {
        show(&format!("{}, no pause", workload.name), &race(&contenders, workload, rounds));
    }
    Ok(())
}
