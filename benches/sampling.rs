//! The cost of sampled call stacks for a training step on all cores. `cargo bench --features sampling --bench sampling`

mod support;

use kernspan::{Activity, Profiler, ProfilerBuilder, Samples, Schedule};
use rustix::time::{ClockId, clock_gettime};
use std::{
    hint::black_box,
    time::{Duration, Instant},
};
use tracing::{Dispatch, dispatcher, info_span};
use tracing_subscriber::{prelude::*, registry};

/// The length of a vector of a layer.
const WIDTH: usize = 256;
/// The layers of a step.
const LAYERS: usize = 12;
/// The steps of a window.
const STEPS: u32 = 20;

/// The time that all threads of the process have run.
fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs() as u32)
}

/// The time that the sampling threads of all profilers have run. Linux cuts their names to 15 characters.
fn sampler_time() -> Duration {
    let mut nanos = 0;
    for thread in std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten() {
        let read = |file: &str| std::fs::read_to_string(thread.path().join(file)).unwrap_or_default();
        if read("comm").starts_with("kernspan-sample") {
            nanos += read("schedstat").split(' ').next().and_then(|nanos| nanos.parse::<u64>().ok()).unwrap_or(0);
        }
    }
    Duration::from_nanos(nanos)
}

/// A layer: its rows are computed on all cores.
fn layer(weights: &[f32], input: &[f32], output: &mut [f32]) {
    let half = output.len() / 2;
    let (first, second) = output.split_at_mut(half);
    let rows = |output: &mut [f32], from: usize| {
        for (row, value) in output.iter_mut().enumerate() {
            let weights = &weights[(from + row) * WIDTH..][..WIDTH];
            // As many times as a batch has samples.
            for _ in 0..64 {
                *value = black_box(weights).iter().zip(input).map(|(weight, input)| weight * input).sum();
            }
        }
    };
    rayon::join(|| rows(first, 0), || rows(second, half));
}

fn step(weights: &[f32]) {
    let (mut input, mut output) = ([0.5; WIDTH], [0.0; WIDTH]);
    for _ in 0..LAYERS {
        let _span = info_span!("layer").entered();
        layer(weights, &input, &mut output);
        input = output.map(|value| value.clamp(-1.0, 1.0));
    }
    black_box(input);
}

fn main() -> Result<(), kernspan::Error> {
    let weights: Vec<f32> = (0..WIDTH * WIDTH).map(|index| (index % 17) as f32 / 170.0).collect();
    let names = ["without", "99 Hz", "999 Hz"];
    let samples = [None, Some(Samples::default().hertz(99)), Some(Samples::default().hertz(999))];
    let build = |samples: Option<Samples>| {
        let builder = Profiler::builder().activities([Activity::Host]).schedule(Schedule::manual());
        let builder = samples.into_iter().fold(builder, ProfilerBuilder::samples);
        builder.build().map(|(layer, profiler)| (profiler, Dispatch::new(registry().with(layer))))
    };
    let [without, slow, fast] = samples.map(build);
    let contenders = [without?, slow?, fast?];

    let rounds = support::rounds(60);
    let mut times = [(); 3].map(|()| Vec::new());
    for round in 0..rounds {
        // Each is first, second and third equally often.
        for contender in (0..3).map(|index| (index + round as usize) % 3) {
            let (profiler, dispatch) = &contenders[contender];
            dispatcher::with_default(dispatch, || {
                profiler.start();
                // Until events are open, and the symbols of the last window are looked up.
                std::thread::sleep(Duration::from_millis(100));
                step(&weights);
                let (start, cpu, sampler) = (Instant::now(), cpu_time(), sampler_time());
                (0..STEPS).for_each(|_| step(black_box(&weights)));
                let taken = [start.elapsed(), cpu_time() - cpu, sampler_time() - sampler];
                times[contender].push(taken.map(|time| 1e3 * time.as_secs_f64() / f64::from(STEPS)));
                profiler.stop();
            });
        }
    }
    println!("a step, {rounds} interleaved rounds of {STEPS} steps; more than without, in the same round\n");
    println!(
        "{:10}{:>12}{:>10}{:>14}{:>10}{:>22}",
        "", "median", "more", "CPU, median", "more", "sampling thread, mean"
    );
    let median = |mut values: Vec<f64>| {
        values.sort_by(f64::total_cmp);
        values[values.len() / 2]
    };
    for (name, of) in names.iter().zip(&times) {
        let [wall, cpu] = [0, 1].map(|which| median(of.iter().map(|it| it[which]).collect()));
        let more = |which: usize| {
            let pairs = of.iter().zip(&times[0]);
            100.0 * median(pairs.map(|(it, without)| it[which] / without[which] - 1.0).collect())
        };
        let sampler = of.iter().map(|it| it[2]).sum::<f64>() / of.len() as f64;
        let share = 100.0 * of.iter().map(|it| it[2]).sum::<f64>() / of.iter().map(|it| it[1]).sum::<f64>();
        print!("{name:10}{wall:>9.3} ms{:>+8.2} %{cpu:>11.3} ms{:>+8.2} %", more(0), more(1));
        println!("{sampler:>11.3} ms{share:>6.2} %");
    }
    for (profiler, _) in contenders {
        profiler.finish()?;
    }
    Ok(())
}
