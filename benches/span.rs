//! The cost of a span in each phase, beside a layer that does nothing. `cargo bench --bench span`

mod support;

use kernspan::{CpuTime, Profiler, Schedule};
use std::{hint::black_box, time::Instant};
use support::{Contender, Nothing, WORKLOADS, race};
use tracing_subscriber::{prelude::*, registry};

fn main() -> Result<(), kernspan::Error> {
    let (off, ended) = Profiler::builder().build()?;
    ended.finish()?;
    let (waiting, wait) = Profiler::builder().schedule(Schedule::manual()).build()?;
    let (recording, record) = Profiler::builder().build()?;
    let (timed, time) = Profiler::builder().cpu_time(CpuTime::spans()).build()?;
    let contenders = vec![
        Contender::new("registry alone", registry()),
        Contender::new("empty layer", registry().with(Nothing)),
        Contender::new("off", registry().with(off)),
        Contender::new("waiting", registry().with(waiting)),
        Contender::new("recording", registry().with(recording)),
        // With the feature `cpu-time` only; without it, this is the same.
        Contender::new("with CPU time", registry().with(timed)),
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
    for (name, cpu_time) in [("recording", None), ("with CPU time", Some(CpuTime::steps()))] {
        let least = recorded_step(cpu_time, rounds)?;
        println!("step() while {name}: {least:.1} ns");
    }
    println!("with CPU time: {} spans kept", time.finish()?.spans());
    let report = record.finish()?;
    println!("recording: {} spans kept, {}", report.spans(), report.losses());
    Ok(())
}

/// Returns the least nanoseconds of a recorded step.
fn recorded_step(cpu_time: Option<CpuTime>, rounds: u32) -> Result<f64, kernspan::Error> {
    let steps = 1_000;
    let mut least = f64::INFINITY;
    for _ in 0..rounds.div_ceil(10) {
        let builder = Profiler::builder().activities([kernspan::Activity::Host]);
        let (_layer, profiler) = match cpu_time {
            Some(cpu_time) => builder.cpu_time(cpu_time).build()?,
            None => builder.build()?,
        };
        let start = Instant::now();
        (0..steps).for_each(|_| black_box(&profiler).step());
        least = least.min(start.elapsed().as_nanos() as f64 / f64::from(steps));
        profiler.finish()?;
    }
    Ok(least)
}
