//! An hour's worth of steps, ten a second, against a collector that is killed, comes back, is slow, refuses and takes a
//! part only: memory stays flat, and what is sent and what is lost are together what was produced.
//!
//! The hour takes a few seconds, or as many as `KERNSPAN_SOAK_SECONDS` says.

use crate::collector::{Behaviour, Collector};
use crate::support::{PATIENCE, child, eventually};
use kernspan::{Profiler, Schedule};
use kernspan_otlp::Otlp;
use std::{
    collections::BTreeSet,
    env,
    ffi::OsStr,
    fs,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};
use tracing_subscriber::prelude::*;

const STEPS: u64 = 36_000;
const SPANS: u64 = 3;
/// The variable with the address of the collector.
const ADDRESS: &str = "KERNSPAN_SOAK_ADDRESS";
/// The variable with the file that the child writes its counts to.
const RESULT: &str = "KERNSPAN_SOAK_RESULT";

fn lasts() -> Duration {
    Duration::from_secs(env::var("KERNSPAN_SOAK_SECONDS").ok().and_then(|text| text.parse().ok()).unwrap_or(12))
}

/// The physical memory of this process, in bytes.
fn memory() -> u64 {
    let pages = fs::read_to_string("/proc/self/statm").unwrap();
    pages.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4096
}

#[cfg(target_os = "linux")]
#[test]
fn memory_stays_flat_and_nothing_is_lost_unseen() {
    let mut collector = Collector::http();
    let folder = tempfile::tempdir().unwrap();
    let result = folder.path().join("result");
    let address = collector.address();
    let mut training = child::start("soak::training", &[(ADDRESS, OsStr::new(&address)), (RESULT, result.as_os_str())]);
    let began = Instant::now();
    let badly = [
        Behaviour::TakePart(2, "too many"),
        Behaviour::Slow(Duration::from_millis(30)),
        Behaviour::Refuse(503),
        Behaviour::RefuseFor(429, 1),
        Behaviour::Refuse(400),
        Behaviour::Close,
    ];
    let mut turn = 0;
    let status = loop {
        if let Some(status) = training.ended() {
            break status;
        }
        assert!(began.elapsed() < lasts() + PATIENCE, "it hangs");
        let asked = collector.asked();
        // It behaves well, badly, well, and is gone; and so on.
        match turn % 4 {
            1 => collector.behave(badly[turn / 4 % badly.len()].clone()),
            3 => collector.go(),
            _ => collector.behave(Behaviour::Well),
        }
        // The turns are spread over the hour.
        std::thread::sleep(lasts() / 40);
        if turn % 4 == 3 {
            collector.come_back();
        } else {
            // At least one request has met this behaviour.
            eventually("a request", || (collector.asked() > asked || training.ended().is_some()).then_some(()));
        }
        turn += 1;
    };
    assert!(status.success());
    let said = fs::read_to_string(&result).unwrap();
    let [produced, sent, lost, rejected]: [u64; 4] =
        said.split_whitespace().map(|number| number.parse().unwrap()).collect::<Vec<_>>().try_into().unwrap();
    println!("{produced} spans produced, {sent} sent, {lost} lost, {rejected} of them rejected; {turn} turns");
    assert_eq!(sent + lost, produced);
    assert!(sent > 0 && lost > 0 && rejected > 0, "the collector did both: {said}");
    // A span may have come more than once: if an answer is lost, the request is sent again.
    let taken = collector.spans();
    let distinct: BTreeSet<_> = taken.iter().map(|span| &span.span_id).collect();
    assert!(distinct.len() as u64 >= sent, "{} came", distinct.len());
    assert!(distinct.len() as u64 <= produced, "{} came", distinct.len());
}

/// The training. It runs in a process of its own, whose memory is measured.
#[test]
fn training() {
    let Ok(address) = env::var(ADDRESS) else { return };
    let produced = Arc::new(AtomicU64::new(1));
    let count = Arc::clone(&produced);
    let otlp = Otlp::from_env().endpoint(address).buffer_bytes(256 << 10).metrics_every(Duration::from_millis(100));
    let (layer, profiler) = Profiler::builder()
        .rank(0, 1)
        .schedule(Schedule::new().wait(3).active(1))
        .export(otlp.answer_within(Duration::from_millis(500)).finish_within(Duration::from_secs(5)))
        .on_trace(move |trace| {
            count.fetch_add(trace.spans().len() as u64 + trace.steps().len() as u64, Ordering::Relaxed);
        })
        .build()
        .unwrap();
    let pause = lasts() / 360;
    let mut early = 0;
    tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
        for step in 0..STEPS {
            for layer in 0..SPANS {
                tracing::info_span!("layer", layer, step).in_scope(|| tracing::info!(counter.loss = 0.5));
            }
            profiler.step();
            // Ten seconds of the hour at once, and then a rest, so that it lasts as long as it should.
            if step % 100 == 99 {
                std::thread::sleep(pause);
            }
            if step == STEPS / 4 {
                early = memory();
            }
        }
    });
    let late = memory();
    let Err(kernspan::Error::Run { report, .. }) = profiler.finish() else { panic!("spans are lost") };
    let [spans, points] = report.deliveries() else { panic!("{:?}", report.deliveries()) };
    assert!(points.sent > 0, "{points}");
    let rejected: u64 = spans.lost.iter().filter(|(cause, _)| *cause == "rejected").map(|(_, count)| count).sum();
    let produced = produced.load(Ordering::Relaxed);
    fs::write(env::var_os(RESULT).unwrap(), format!("{produced} {} {} {rejected}", spans.sent, spans.lost())).unwrap();
    // All buffers have their size after a quarter of the hour. The allocator may keep some memory of threads that
    // ended.
    assert!(late < early + (8 << 20), "{} MiB after a quarter, {} MiB at the end", early >> 20, late >> 20);
    assert_eq!(report.losses().total(), 0, "{}", report.losses());
}
