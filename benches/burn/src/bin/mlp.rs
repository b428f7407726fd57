//! What recording adds to a Burn training step: microseconds a step.
//!
//! `mlp [ROUNDS] [STEPS]`: all ways to run the loop take turns in one process, CUPTI being let go in between, as steps are slower or faster
//! from second to second; what is printed is the median over the rounds, and the median of the ratios within each. How idle the GPU is
//! without a profiler is taken from the time of a step without it and the time of the kernels with it.

use burn::tensor::Device;
use burn_bench::{Size, gpu, least, median, training};
use kernspan::{Activity, Profiler, Schedule};
use std::{
    cell::RefCell,
    time::{Duration, Instant},
};
use tracing_subscriber::prelude::*;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let number = |place: usize, default: usize| match std::env::args().nth(place) {
        Some(text) => text.parse().map_err(|_| format!("not a number: {text}")),
        None => Ok(default),
    };
    let (rounds, steps) = (number(1, 20)?, number(2, 20)?);
    let device = gpu()?;
    let activities = [Activity::Host, Activity::Kernels, Activity::Copies];
    let builder = Profiler::builder().activities(activities).schedule(Schedule::manual());
    let (layer, profiler) = builder.detach_after(Duration::ZERO).build()?;
    assert!(profiler.gpu().is_available(), "{}", profiler.gpu());
    tracing_subscriber::registry().with(layer).init();

    let training = RefCell::new(training(Size::FULL, &device));
    let bare = || measure(steps, &device, || training.borrow_mut().step());
    let own = || measure(steps, &device, || training.borrow_mut().step_in_spans());
    let waiting = || {
        let _attached = attach(&profiler, &device);
        own()
    };
    let recording = || {
        let attached = attach(&profiler, &device);
        profiler.start();
        let time = own();
        profiler.stop();
        drop(attached);
        // Until CUPTI is let go.
        std::thread::sleep(Duration::from_millis(100));
        time
    };
    let ways: [(&str, &dyn Fn() -> f64); 3] =
        [("no profiler, no spans", &bare), ("kernspan, waiting", &waiting), ("kernspan, recording", &recording)];
    // The first time, kernels are compiled and tuned.
    for (_, way) in ways.iter().chain(&ways) {
        way();
    }
    let mut times = vec![Vec::new(); ways.len()];
    for round in 0..rounds {
        for turn in 0..ways.len() {
            let way = (round + turn) % ways.len();
            times[way].push(ways[way].1());
        }
    }

    println!("{rounds} rounds of {steps} steps");
    let ratios = |way: usize, base: usize| times[way].iter().zip(&times[base]).map(|(own, base)| own / base).collect();
    for (way, (name, _)) in ways.iter().enumerate() {
        let (least, middle, ratio) = (least(&times[way]), median(times[way].clone()), median(ratios(way, 0)));
        println!("{name:24} {middle:6.0} µs a step (least {least:6.0}), {ratio:.3} ×");
    }
    let report = profiler.finish()?;
    let work = report.attributions();
    let recorded = (rounds + 2) * steps;
    let busy: f64 =
        report.kernels().rows().iter().map(|row| row.total.as_secs_f64() * 1e6).sum::<f64>() / recorded as f64;
    let idle = |way: usize| 100.0 * (1.0 - busy / median(times[way].clone()));
    println!(
        "kernels take {busy:.0} µs a step: the GPU is idle {:.1} % of the time without a profiler, {:.1} % while recording",
        idle(0),
        idle(2)
    );
    println!(
        "{} kernels and copies: {} handed off, {} from before, {} unattributed; {}",
        work.total(),
        work.handed_off,
        work.before,
        work.unattributed,
        report.losses()
    );
    println!("{}", report.kernels().limit(8));
    println!("{report}");
    assert_eq!((work.unattributed, work.before), (0, 0));
    Ok(())
}

fn attach(profiler: &Profiler, device: &Device) -> impl Sized {
    kernspan_burn::attach(profiler, device).expect("a device to attach to")
}

/// Microseconds a step, until the GPU is done.
fn measure(steps: usize, device: &Device, mut step: impl FnMut()) -> f64 {
    device.sync().expect("the device");
    let start = Instant::now();
    for _ in 0..steps {
        step();
    }
    device.sync().expect("the device");
    start.elapsed().as_secs_f64() * 1e6 / steps as f64
}
