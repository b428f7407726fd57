//! A load in phases, and the vital signs of the GPU meanwhile. `benches/gpu/vitals.py` runs it, reads NVML itself, and
//! compares.
//!
//! `vitals SECONDS MILLIS` runs each phase for so many seconds, with a reading every so many milliseconds. It prints
//! the phases with the bytes that they copied, the readings, and the energy of the run.

use gpu_bench::{
    Gpu,
    work::{SIZE, Work},
};
use kernspan::{Activity, Collected, Profiler, Schedule, Vitals, analysis::VitalSign};
use std::time::{Duration, Instant, SystemTime};
use tracing_subscriber::prelude::*;

/// The bytes of a copy over PCIe.
const PIECE: usize = 64 << 20;

fn nanos() -> u128 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |time| time.as_nanos())
}

/// Runs work again and again for so long, and prints the phase. The work returns the bytes that it has copied.
fn phase(name: &str, seconds: f64, work: &mut Work, mut run: impl FnMut(&mut Work) -> usize) {
    let (start, began, mut bytes) = (nanos(), Instant::now(), 0);
    while began.elapsed().as_secs_f64() < seconds {
        bytes += run(work);
    }
    work.wait();
    println!("phase {name} {start} {} {bytes}", nanos());
}

#[allow(unsafe_code, reason = "page-locked memory is not initialized")]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<f64> = std::env::args().skip(1).map(|text| text.parse()).collect::<Result<_, _>>()?;
    let [seconds, millis] = arguments[..] else { return Err("usage: vitals SECONDS MILLIS".into()) };
    let gpu = Gpu::new();
    let mut work = Work::new(&gpu);
    // SAFETY: bytes need no initialization beyond what the fill below does.
    let mut pinned = unsafe { gpu.context.alloc_pinned_with_flags::<u8>(PIECE, 0) }?;
    pinned.as_mut_slice()?.fill(1);
    (0..20).for_each(|_| work.multiply(SIZE));
    work.wait();

    let collected = Collected::new();
    let (layer, profiler) = Profiler::builder()
        .activities([Activity::Host])
        .vitals(Vitals::default().every_in_windows(Duration::from_secs_f64(millis / 1e3)))
        .schedule(Schedule::manual())
        .export(collected.clone())
        .build()?;
    tracing_subscriber::registry().with(layer).init();
    let window = profiler.record();
    let idle = |_: &mut Work| {
        std::thread::sleep(Duration::from_millis(10));
        0
    };
    phase("idle", seconds, &mut work, idle);
    phase("products", seconds, &mut work, |work| {
        // As a training waits for its loss now and then.
        (0..50).for_each(|_| work.multiply(SIZE));
        work.wait();
        0
    });
    phase("bursts", seconds, &mut work, |work| {
        (0..13).for_each(|_| work.multiply(SIZE));
        work.wait();
        std::thread::sleep(Duration::from_millis(20));
        0
    });
    phase("upload", seconds, &mut work, |work| {
        let bytes = pinned.as_slice().expect("memory");
        work.upload(bytes);
        work.wait();
        PIECE
    });
    phase("download", seconds, &mut work, |work| {
        work.download(pinned.as_mut_slice().expect("memory"));
        work.wait();
        PIECE
    });
    phase("idle", seconds, &mut work, idle);
    drop(window);
    let report = profiler.finish()?;

    for counter in collected.only().counters() {
        let Some(sign) = counter.name().strip_prefix(VitalSign::COUNTER) else { continue };
        for (at, value) in counter.samples() {
            println!("sign {sign} {} {value}", at.as_unix_nanos());
        }
    }
    let vitals = report.vitals();
    for part in vitals.energy.iter().flat_map(|energy| &energy.uses) {
        println!(
            "energy {} {:?} {} {} {}",
            part.subject,
            part.method,
            part.joules,
            part.error,
            part.time.as_secs_f64()
        );
    }
    vitals.problems.iter().for_each(|problem| println!("problem {problem}"));
    Ok(())
}
