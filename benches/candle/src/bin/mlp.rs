//! What recording adds to a Candle training step: microseconds a step.
//!
//! `mlp [ROUNDS] [STEPS]`: all ways to run the loop take turns in one process, CUPTI being let go in between, as steps are slower or
//! faster by a third from second to second; what is printed is the median over the rounds, and the median of the ratios within each.

use candle_bench::{Training, median, raw};
use candle_core::{Device, Result};
use candle_nn::Optimizer;
use cupti_sys::{Cupti, Driver};
use kernspan::{Activity, Profiler, ProfilerLayer, Schedule};
use std::{
    cell::RefCell,
    time::{Duration, Instant},
};
use tracing_subscriber::prelude::*;

fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let number = |place: usize, default| {
        std::env::args()
            .nth(place)
            .map_or(Ok(default), |text| text.parse::<usize>().map_err(|_| format!("not a number: {text}")))
    };
    let (rounds, steps) = (number(1, 20)?, number(2, 20)?);
    let device = Device::new_cuda(0)?;
    let (plain, traced) = (RefCell::new(Training::plain(&device)?), RefCell::new(Training::traced(&device)?));
    let cupti = Cupti::find(Driver::load()?)?;
    let (layer, profiler) = profiler(&[])?;
    let subscriber = tracing::Dispatch::new(tracing_subscriber::registry().with(layer));
    let (layer, with_memory) = self::profiler(&[Activity::Memory])?;
    let memory_subscriber = tracing::Dispatch::new(tracing_subscriber::registry().with(layer));

    let bare = || measure(&mut plain.borrow_mut(), steps, &device).expect("a step");
    let own = || measure(&mut traced.borrow_mut(), steps, &device).expect("a step");
    let alone = |memory: bool, calls: bool| {
        let subscriber = raw::on(&cupti, calls, !calls, memory);
        let time = bare();
        raw::off(&cupti, subscriber);
        time
    };
    let recording = |profiler: &Profiler, subscriber: &tracing::Dispatch| {
        // The spans of the ops are made anew for whoever listens.
        *traced.borrow_mut() = Training::traced(&device).expect("a model");
        tracing::dispatcher::with_default(subscriber, || {
            own();
            profiler.start();
            let time = own();
            profiler.stop();
            // Until CUPTI is let go.
            std::thread::sleep(Duration::from_millis(100));
            time
        })
    };
    let ways: [(&str, &dyn Fn() -> f64); 8] = [
        ("no profiler", &bare),
        ("kernspan-candle, nobody listening", &|| {
            *traced.borrow_mut() = Training::traced(&device).expect("a model");
            own();
            own()
        }),
        ("kernspan, waiting", &|| {
            *traced.borrow_mut() = Training::traced(&device).expect("a model");
            tracing::dispatcher::with_default(&subscriber, || {
                own();
                own()
            })
        }),
        ("CUPTI: kernels, copies, launches", &|| alone(false, true)),
        ("CUPTI: the same by empty callbacks", &|| alone(false, false)),
        ("kernspan, recording", &|| recording(&profiler, &subscriber)),
        ("CUPTI: and callbacks for memory", &|| alone(true, false)),
        ("kernspan, recording memory, too", &|| recording(&with_memory, &memory_subscriber)),
    ];
    // The first time takes longer.
    for (_, way) in &ways {
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
    let ratio =
        |way: usize, base: usize| median(times[way].iter().zip(&times[base]).map(|(own, base)| own / base).collect());
    for (way, (name, _)) in ways.iter().enumerate() {
        let least = times[way].iter().copied().fold(f64::INFINITY, f64::min);
        println!("{name:36} {:6.0} µs a step (least {least:6.0}), {:.3} ×", median(times[way].clone()), ratio(way, 0));
    }
    println!(
        "recording is {:.3} × CUPTI with records of the launches, {:.3} × with callbacks",
        ratio(5, 3),
        ratio(5, 4)
    );
    println!("recording memory, too, is {:.3} × CUPTI with callbacks for memory", ratio(7, 6));
    for profiler in [profiler, with_memory] {
        let report = profiler.finish()?;
        let work = report.attributions();
        println!("{} kernels and copies, {} unattributed; {}", work.total(), work.unattributed, report.losses());
    }
    Ok(())
}

fn profiler(more: &[Activity]) -> std::result::Result<(ProfilerLayer, Profiler), kernspan::Error> {
    let activities = [Activity::Host, Activity::Kernels, Activity::Copies].iter().chain(more).copied();
    let builder = Profiler::builder().activities(activities).schedule(Schedule::manual());
    let (layer, profiler) = builder.detach_after(Duration::ZERO).build()?;
    assert!(profiler.gpu().is_available(), "{}", profiler.gpu());
    Ok((layer, profiler))
}

/// Microseconds a step, until the GPU is done.
fn measure(training: &mut Training<impl Optimizer>, steps: usize, device: &Device) -> Result<f64> {
    device.synchronize()?;
    let start = Instant::now();
    for _ in 0..steps {
        training.step()?;
    }
    device.synchronize()?;
    Ok(start.elapsed().as_secs_f64() * 1e6 / steps as f64)
}
