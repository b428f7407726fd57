//! Measures the cost that recording adds to a Burn training step, in microseconds per step.
//!
//! `mlp [ROUNDS] [STEPS]`: the time of a step varies from second to second, so all variants take turns in one process,
//! and CUPTI is detached in between. The output is the median over the rounds, and the median of the ratios within each
//! round. The GPU's idle time without a profiler is computed from the step time without it and the kernel times with
//! it.

use burn::tensor::Device;
use burn_bench::{Size, gpu, least, median, training};
use kernspan::{Activity, Profiler, Schedule};
use std::{
    cell::RefCell,
    time::{Duration, Instant},
};
use tracing_subscriber::prelude::*;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let number = |index: usize, default: usize| match std::env::args().nth(index) {
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
        // Waits until CUPTI is detached.
        std::thread::sleep(Duration::from_millis(100));
        time
    };
    let variants: [(&str, &dyn Fn() -> f64); 3] =
        [("no profiler, no spans", &bare), ("kernspan, waiting", &waiting), ("kernspan, recording", &recording)];
    // In the first runs kernels are compiled and tuned; they are not measured.
    for (_, variant) in variants.iter().chain(&variants) {
        variant();
    }
    let mut times = vec![Vec::new(); variants.len()];
    for round in 0..rounds {
        for turn in 0..variants.len() {
            let variant = (round + turn) % variants.len();
            times[variant].push(variants[variant].1());
        }
    }

    println!("{rounds} rounds of {steps} steps");
    let ratios =
        |variant: usize, base: usize| times[variant].iter().zip(&times[base]).map(|(own, base)| own / base).collect();
    for (variant, (name, _)) in variants.iter().enumerate() {
        let (least, middle, ratio) =
            (least(&times[variant]), median(times[variant].clone()), median(ratios(variant, 0)));
        println!("{name:24} {middle:6.0} µs a step (least {least:6.0}), {ratio:.3} ×");
    }
    let report = profiler.finish()?;
    let work = report.attributions();
    let recorded = (rounds + 2) * steps;
    let busy: f64 =
        report.kernels().rows().iter().map(|row| row.total.as_secs_f64() * 1e6).sum::<f64>() / recorded as f64;
    let idle = |variant: usize| 100.0 * (1.0 - busy / median(times[variant].clone()));
    let (without, recording) = (idle(0), idle(2));
    print!("kernels take {busy:.0} µs a step: ");
    println!("the GPU is idle {without:.1} % of the time without a profiler, {recording:.1} % while recording");
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

/// Returns the microseconds per step, including the wait for the GPU at the end.
fn measure(steps: usize, device: &Device, mut step: impl FnMut()) -> f64 {
    device.sync().expect("the device");
    let start = Instant::now();
    for _ in 0..steps {
        step();
    }
    device.sync().expect("the device");
    start.elapsed().as_secs_f64() * 1e6 / steps as f64
}
