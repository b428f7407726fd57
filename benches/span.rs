//! The cost of a span in each phase, beside a layer that does nothing. `cargo bench --bench span`

mod support;

use kernspan::{Profiler, Schedule};
use std::{hint::black_box, time::Instant};
use support::{Contender, Nothing, WORKLOADS, race};
use tracing_subscriber::{prelude::*, registry};

fn main() -> Result<(), kernspan::Error> {
    let (off, ended) = Profiler::builder().build()?;
    ended.finish()?;
    let (waiting, wait) = Profiler::builder().schedule(Schedule::manual()).build()?;
    let (recording, record) = Profiler::builder().build()?;
    let contenders = [
        Contender::new("registry alone", registry()),
        Contender::new("empty layer", registry().with(Nothing)),
        Contender::new("off", registry().with(off)),
        Contender::new("waiting", registry().with(waiting)),
        Contender::new("recording", registry().with(recording)),
    ];

    let rounds = support::rounds(200);
    println!("ns a span, least of {rounds} interleaved rounds (in brackets: more than the empty layer)\n");
    print!("{:16}", "");
    contenders.iter().for_each(|contender| print!("{:>20}", contender.name));
    println!();
    for workload in &WORKLOADS {
        let least = race(&contenders, workload, rounds);
        print!("{:16}", workload.name);
        least.iter().for_each(|nanos| print!("{:>20}", format!("{nanos:.1} ({:+.1})", nanos - least[1])));
        println!();
    }

    let steps = 100_000;
    let mut least = f64::INFINITY;
    for _ in 0..rounds {
        let start = Instant::now();
        (0..steps).for_each(|_| black_box(&wait).step());
        least = least.min(start.elapsed().as_nanos() as f64 / f64::from(steps));
    }
    println!("\nstep() while waiting: {least:.1} ns");
    let report = record.finish()?;
    println!("recording: {} spans kept, {}", report.spans(), report.losses());
    Ok(())
}
