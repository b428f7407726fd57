//! Measures the cost that recording adds to a Candle training step, in microseconds per step.
//!
//! `mlp [ROUNDS] [STEPS] [memory]`: with `memory`, allocations are recorded, too. The time of a step varies by a third
//! from second to second, so all variants take turns in one process, and CUPTI is detached in between. The output is
//! the median over the rounds, and the median of the ratios within each round.

use candle_bench::{Size, Training, least, median, raw};
use candle_core::{Device, Result};
use cupti_sys::{Cupti, Driver};
use kernspan::{Activity, Profiler, ProfilerLayer, Schedule};
use std::{
    cell::RefCell,
    time::{Duration, Instant},
};
use tracing_subscriber::prelude::*;

fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let number = |index: usize, default: usize| match std::env::args().nth(index) {
        Some(text) => text.parse().map_err(|_| format!("not a number: {text}")),
        None => Ok(default),
    };
    let (rounds, steps, memory) = (number(1, 20)?, number(2, 20)?, std::env::args().nth(3).is_some());
    let device = Device::new_cuda(0)?;
    let mut plain = Training::plain(Size::FULL, &device)?;
    let cupti = Cupti::find(Driver::load()?)?;
    let (layer, profiler) = profiler(memory)?;
    // One subscriber for all variants, because tracing caches for each callsite whether a subscriber wants it.
    tracing_subscriber::registry().with(layer).init();
    let mut traced = Training::traced(Size::FULL, &device)?;

    let bare = RefCell::new(|| measure(steps, &device, || plain.step()));
    let bare = || bare.borrow_mut()().expect("a step");
    let own = RefCell::new(|| measure(steps, &device, || traced.step_in_spans()));
    let own = || own.borrow_mut()().expect("a step");
    let alone = |calls: bool| {
        let subscriber = raw::on(&cupti, calls, !calls, memory);
        let time = bare();
        raw::off(&cupti, subscriber);
        time
    };
    let recording = || {
        profiler.start();
        let time = own();
        profiler.stop();
        // Waits until CUPTI is detached.
        std::thread::sleep(Duration::from_millis(100));
        time
    };
    let variants: [(&str, &dyn Fn() -> f64); 5] = [
        ("no profiler, no spans", &bare),
        ("kernspan, waiting", &own),
        ("CUPTI, with records of the launches", &|| alone(true)),
        ("CUPTI, with empty callbacks instead", &|| alone(false)),
        ("kernspan, recording", &recording),
    ];
    // The first run of each variant is slower, and not measured.
    for (_, variant) in &variants {
        variant();
    }
    let mut times = vec![Vec::new(); variants.len()];
    for round in 0..rounds {
        for turn in 0..variants.len() {
            let variant = (round + turn) % variants.len();
            times[variant].push(variants[variant].1());
        }
    }

    println!("{rounds} rounds of {steps} steps{}", if memory { ", with memory" } else { "" });
    let ratios =
        |variant: usize, base: usize| times[variant].iter().zip(&times[base]).map(|(own, base)| own / base).collect();
    for (variant, (name, _)) in variants.iter().enumerate() {
        let (least, middle, ratio) =
            (least(&times[variant]), median(times[variant].clone()), median(ratios(variant, 0)));
        println!("{name:36} {middle:6.0} µs a step (least {least:6.0}), {ratio:.3} ×");
    }
    let (records, callbacks) = (median(ratios(4, 2)), median(ratios(4, 3)));
    println!("recording is {records:.3} × CUPTI with records of the launches, {callbacks:.3} × with callbacks");
    let report = profiler.finish()?;
    let work = report.attributions();
    println!("{} kernels and copies, {} unattributed; {}", work.total(), work.unattributed, report.losses());
    assert_eq!(work.unattributed, 0);
    Ok(())
}

fn profiler(memory: bool) -> std::result::Result<(ProfilerLayer, Profiler), kernspan::Error> {
    let mut activities = vec![Activity::Host, Activity::Kernels, Activity::Copies];
    activities.extend(memory.then_some(Activity::Memory));
    let builder = Profiler::builder().activities(activities).schedule(Schedule::manual());
    let (layer, profiler) = builder.detach_after(Duration::ZERO).build()?;
    assert!(profiler.gpu().is_available(), "{}", profiler.gpu());
    Ok((layer, profiler))
}

/// Returns the microseconds per step, including the wait for the GPU at the end.
fn measure(steps: usize, device: &Device, mut step: impl FnMut() -> Result<()>) -> Result<f64> {
    device.synchronize()?;
    let start = Instant::now();
    for _ in 0..steps {
        step()?;
    }
    device.synchronize()?;
    Ok(start.elapsed().as_secs_f64() * 1e6 / steps as f64)
}
