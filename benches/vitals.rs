//! The CPU time that reading vital signs takes. `cargo bench --features vitals --bench vitals`

use kernspan::{Activity, Profiler, Schedule, Vitals};
use std::{
    hint::black_box,
    time::{Duration, Instant},
};

/// The CPU time of the thread that reads. Linux cuts names of threads to 15 characters, which are all that this has.
fn reader_time() -> Duration {
    let mut nanos = 0;
    for thread in std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten() {
        let read = |file: &str| std::fs::read_to_string(thread.path().join(file)).unwrap_or_default();
        if read("comm").trim() == "kernspan-vitals" {
            nanos += read("schedstat").split(' ').next().and_then(|nanos| nanos.parse::<u64>().ok()).unwrap_or(0);
        }
    }
    Duration::from_nanos(nanos)
}

fn measure(name: &str, every: Duration, in_window: bool, seconds: u64) {
    let schedule = if in_window { Schedule::always() } else { Schedule::manual() };
    let profiler = Profiler::builder().schedule(schedule).activities([Activity::Host]);
    let (layer, profiler) = profiler.vitals(Vitals::default().every(every)).build().unwrap();
    // The first readings load code and open what is then known.
    std::thread::sleep(2 * every);
    let (before, started) = (reader_time(), Instant::now());
    std::thread::sleep(Duration::from_secs(seconds));
    let (used, elapsed) = (reader_time() - before, started.elapsed());
    let percent = 100.0 * used.as_secs_f64() / elapsed.as_secs_f64();
    let started = Instant::now();
    let calls = 1_000_000;
    for _ in 0..calls {
        black_box(profiler.vitals());
    }
    let call = started.elapsed().as_nanos() / calls;
    drop(layer);
    let readings = profiler.finish().unwrap().vitals().readings;
    println!("{name}: {percent:.3} % of a core, {readings} readings in all; vitals() {call} ns");
}

fn main() {
    let seconds = if std::env::args().any(|argument| argument == "--quick") { 2 } else { 30 };
    measure("every second", Vitals::EVERY, false, seconds);
    measure("in a window, every 100 ms", Vitals::EVERY, true, seconds);
}
