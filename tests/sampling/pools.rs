//! Samples of the threads of a pool are in the span that waits for the pool.

use super::{compute, cpu_time, frame, is_sampled, record};
use kernspan::{
    Samples,
    trace::{Attribution, Span},
};
use rayon::prelude::*;
use std::time::Duration;
use tracing::info_span;

#[inline(never)]
fn job_of_pool(duration: Duration) {
    let until = cpu_time() + duration;
    while cpu_time() < until {
        compute();
    }
}

#[test]
fn jobs_of_rayon_are_in_the_span_that_waits_for_them() {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(2).build().unwrap();
    let part = Duration::from_millis(20);
    let trace = record(Samples::default().hertz(999), || {
        // Until the events are open.
        job_of_pool(5 * part);
        for _ in 0..10 {
            info_span!("parallel").in_scope(|| pool.install(|| (0..8).into_par_iter().for_each(|_| job_of_pool(part))));
            // Nobody waits for these.
            pool.install(|| (0..2).into_par_iter().for_each(|_| job_of_pool(part)));
        }
    });
    if !is_sampled(&trace) {
        return;
    }
    let jobs =
        || trace.stack_samples().filter(|sample| !sample.is_waiting() && frame(*sample, "job_of_pool").is_some());
    let of_pool: Vec<_> = jobs().filter(|sample| sample.attribution() == Attribution::HandedOff).collect();
    println!("{} of {} samples are attributed", of_pool.len(), jobs().count());
    // By the moments of the spans: all parts are done when `install` returns.
    let parallel: Vec<_> = trace.spans().filter(|span| span.name() == "parallel").collect();
    for sample in &of_pool {
        let within = parallel.iter().find(|span| span.start() <= sample.at() && sample.at() <= span.end());
        assert_eq!(sample.span().map(Span::id), within.map(|span| span.id()), "{sample:?}");
        assert!(sample.span().is_some_and(|span| span.track().thread() != sample.track().thread()), "{sample:?}");
    }
    if trace.stack_sampling().unwrap().problem().is_none() {
        // On a busy machine, some waits have no stack, and what other tests' threads wait for may not be known.
        assert!(!of_pool.is_empty(), "none of {}", jobs().count());
    }
}
