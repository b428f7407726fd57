//! Work of the host that takes a given time.

use std::{
    hint::black_box,
    time::{Duration, Instant},
};

/// A computation on one thread, of which it is known how long it takes.
///
/// It does not sleep and does not look at the clock, so it takes the same cycles each time, as a program's own work
/// does.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HostWork {
    iterations_per_second: f64,
}

impl HostWork {
    /// Measures how fast this processor computes.
    pub(crate) fn calibrate() -> Self {
        const ITERATIONS: u64 = 2_000_000;
        let time = |_| {
            let start = Instant::now();
            compute(ITERATIONS);
            start.elapsed()
        };
        // The first trials let the processor raise its clock; the fastest is the one that nothing interrupted.
        let fastest = (0..15).map(time).min().unwrap_or_default();
        Self { iterations_per_second: ITERATIONS as f64 / fastest.as_secs_f64().max(1e-9) }
    }

    /// Computes for about this long, and returns the result.
    pub(crate) fn spend(self, time: Duration) -> u64 {
        compute((self.iterations_per_second * time.as_secs_f64()) as u64)
    }
}

/// Computes random numbers, each from the one before, so that the processor cannot compute several at once.
#[inline(never)]
fn compute(iterations: u64) -> u64 {
    let mut number = black_box(88_172_645_463_325_252_u64);
    for _ in 0..iterations {
        number ^= number << 13;
        number ^= number >> 7;
        number ^= number << 17;
    }
    black_box(number)
}
