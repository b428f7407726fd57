//! Interleaved measurement of several subscribers. Machines are noisy, so the subscribers take turns, and the least
//! time of many rounds counts.

#![allow(dead_code, unreachable_pub, reason = "each bench uses its own part")]

use std::{hint::black_box, time::Instant};
use tracing::Dispatch;

/// A subscriber that is measured.
pub struct Contender {
    pub name: &'static str,
    pub dispatch: Dispatch,
}

impl Contender {
    pub fn new(name: &'static str, dispatch: impl Into<Dispatch>) -> Self {
        Self { name, dispatch: dispatch.into() }
    }
}

/// A function that makes a number of spans.
pub struct Workload {
    pub name: &'static str,
    pub spans: u32,
    pub run: fn(u32),
}

pub const WORKLOADS: [Workload; 7] = [
    Workload { name: "plain", spans: 10_000, run: plain },
    Workload { name: "two fields", spans: 10_000, run: two_fields },
    Workload { name: "eight fields", spans: 10_000, run: eight_fields },
    Workload { name: "nested, 10 deep", spans: 10_000, run: nested },
    Workload { name: "entered again", spans: 10_000, run: entered_again },
    Workload { name: "8 threads", spans: 16_000, run: threads::<8> },
    Workload { name: "64 threads", spans: 64_000, run: threads::<64> },
];

pub fn plain(spans: u32) {
    for _ in 0..spans {
        let span = tracing::info_span!("plain");
        let _entered = black_box(span.enter());
    }
}

pub fn two_fields(spans: u32) {
    for i in 0..spans {
        let span = tracing::info_span!("two", batch = black_box(i), loss = black_box(0.5));
        let _entered = black_box(span.enter());
    }
}

fn eight_fields(spans: u32) {
    for i in 0..spans {
        let i = black_box(i);
        let span = tracing::info_span!("eight", a = i, b = i, c = i, d = i, e = 0.5, f = 1.5, g = true, h = false);
        let _entered = black_box(span.enter());
    }
}

fn nested(spans: u32) {
    fn down(depth: u32) {
        let span = tracing::info_span!("nested");
        let _entered = black_box(span.enter());
        if depth > 1 {
            down(depth - 1);
        }
    }
    (0..spans / 10).for_each(|_| down(10));
}

fn entered_again(spans: u32) {
    let span = tracing::info_span!("again");
    for _ in 0..spans {
        let _entered = black_box(span.enter());
    }
}

pub fn threads<const THREADS: u32>(spans: u32) {
    let dispatch = tracing::dispatcher::get_default(Clone::clone);
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| tracing::dispatcher::with_default(&dispatch, || plain(spans / THREADS)));
        }
    });
}

/// Returns the number of rounds, or 2 with `-- --quick`, which only checks that the program runs.
pub fn rounds(rounds: u32) -> u32 {
    if std::env::args().any(|argument| argument == "--quick") { 2 } else { rounds }
}

/// Returns the least time of each contender, in nanoseconds per span.
pub fn race(contenders: &[Contender], workload: &Workload, rounds: u32) -> Vec<f64> {
    let mut least = vec![f64::INFINITY; contenders.len()];
    for _ in 0..rounds {
        for (contender, least) in contenders.iter().zip(&mut least) {
            let elapsed = tracing::dispatcher::with_default(&contender.dispatch, || {
                let start = Instant::now();
                (workload.run)(workload.spans);
                start.elapsed()
            });
            *least = least.min(elapsed.as_nanos() as f64 / f64::from(workload.spans));
        }
    }
    least
}

/// A layer that does nothing. It is a second baseline, because the registry alone never frees its spans.
pub struct Nothing;

impl<S: tracing::Subscriber> tracing_subscriber::Layer<S> for Nothing {}
