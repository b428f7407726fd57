//! The cost of counters for a step: windows without and with them, in turns.

use crate::{cpu_time, step};
use gpu_bench::{
    Gpu,
    work::{COPIED, Work},
};
use kernspan::{Counters, Profiler, ProfilerBuilder, Schedule};
use std::time::{Duration, Instant};
use tracing_subscriber::prelude::*;

/// A function that runs a step.
type RunStep = fn(&Gpu, &mut Work);

/// Measures a step with and without counters, in turns.
pub(crate) fn cost(rounds: usize, micros: u64, only: &str, metrics: &[String]) {
    let gpu = Gpu::new();
    let mut work = Work::new(&gpu);
    let steps: [(&str, RunStep); 3] = [("launches", step), ("products", products), ("copies", copies)];
    assert!(only == "all" || steps.iter().any(|(name, _)| *name == only), "no step is called {only}");
    let defaults = if metrics.is_empty() { Counters::default() } else { Counters::default().without_defaults() };
    let counters = metrics.iter().fold(defaults, Counters::metric).every(Duration::from_micros(micros));
    for (name, step) in steps.into_iter().filter(|(name, _)| only == *name || only == "all") {
        (0..300).for_each(|_| step(&gpu, &mut work));
        work.wait();
        let mut ratios = Vec::with_capacity(rounds);
        let mut decoding = Vec::with_capacity(rounds);
        let mut without = Vec::with_capacity(rounds);
        for round in 0..rounds {
            let counters = counters.clone();
            let mut measure = |counters| cost_of_window(&gpu, &mut work, step, counters);
            let (plain, counted) = if round % 2 == 0 {
                let plain = measure(None);
                (plain, measure(Some(counters)))
            } else {
                let counted = measure(Some(counters));
                (measure(None), counted)
            };
            ratios.push(counted.step / plain.step);
            without.push(plain.step);
            decoding.push(counted.decoding);
        }
        let (low, ratio, high) = median_within(ratios);
        println!(
            "{name}: {:.1} µs without counters, {ratio:.4} times as long with them every {micros} µs ({low:.4} to \
             {high:.4}); decoding {:.1} % of a core",
            median_within(without).1,
            100.0 * decoding.iter().sum::<f64>() / decoding.len() as f64,
        );
    }
}

/// A step that the GPU takes longer for than the host, limited by its arithmetic.
fn products(_: &Gpu, work: &mut Work) {
    let _step = tracing::info_span!("step").entered();
    tracing::info_span!("compute").in_scope(|| (0..8).for_each(|_| work.multiply(4096)));
}

/// A step that the GPU takes longer for than the host, limited by its memory.
fn copies(_: &Gpu, work: &mut Work) {
    let _step = tracing::info_span!("step").entered();
    tracing::info_span!("memory").in_scope(|| (0..8).for_each(|_| work.copy(COPIED / 8)));
}

/// The cost of a window.
struct WindowCost {
    /// The time of a step in microseconds: the median of [`CHUNKS`](Self::CHUNKS) means.
    step: f64,
    /// The share of a core that decoding took.
    decoding: f64,
}

impl WindowCost {
    /// The machine is slow for some milliseconds now and then, which a median of short stretches leaves out.
    const CHUNKS: usize = 25;
    /// The steps of a chunk.
    const STEPS: u32 = 8;
}

/// Records steps in a window of a profiler of its own.
fn cost_of_window(gpu: &Gpu, work: &mut Work, step: RunStep, counters: Option<Counters>) -> WindowCost {
    let builder = Profiler::builder().schedule(Schedule::manual()).memory_limit_bytes(2 << 30);
    let builder = counters.into_iter().fold(builder, ProfilerBuilder::counters);
    let (layer, profiler) = builder.build().expect("a profiler");
    // Counters are set up in the background; wait in both cases, so that windows are alike.
    std::thread::sleep(Duration::from_millis(600));
    let subscriber = tracing_subscriber::registry().with(layer);
    let cost = tracing::subscriber::with_default(subscriber, || {
        let guard = profiler.record();
        (0..20).for_each(|_| step(gpu, work));
        work.wait();
        let (start, before) = (Instant::now(), cpu_time("kernspan-counters"));
        let chunk = |_| {
            let start = Instant::now();
            (0..WindowCost::STEPS).for_each(|_| step(gpu, work));
            work.wait();
            1e6 * start.elapsed().as_secs_f64() / f64::from(WindowCost::STEPS)
        };
        let chunks: Vec<_> = (0..WindowCost::CHUNKS).map(chunk).collect();
        let decoding = cpu_time("kernspan-counters") - before;
        let decoding = decoding.as_secs_f64() / start.elapsed().as_secs_f64();
        drop(guard);
        WindowCost { step: median_within(chunks).1, decoding }
    });
    profiler.finish().expect("a report");
    cost
}

/// Returns the median, between the ends of its 95 % confidence interval, which the ranks of a binomial distribution
/// give for any distribution of the values.
fn median_within(mut values: Vec<f64>) -> (f64, f64, f64) {
    values.sort_by(f64::total_cmp);
    let (count, middle) = (values.len() as f64, values.len() / 2);
    let ranks = (0.98 * count.sqrt()).ceil() as usize;
    let at = |index: usize| values[index.min(values.len() - 1)];
    (at(middle.saturating_sub(ranks)), at(middle), at(middle + ranks))
}
