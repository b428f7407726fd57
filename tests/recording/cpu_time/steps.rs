//! CPU time of steps, of the process, and of threads without spans.

use super::{MILLIS, compute, now, read, record_with};
use crate::support::steps::step_summaries;
use kernspan::{CpuTime, Profiler, Schedule, Trace, trace::Step};
use rustix::time::ClockId;
use std::{
    fs,
    hint::black_box,
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};
use tracing::info_span;

/// The value of a counter in a step.
#[track_caller]
fn counter(trace: &Trace, step: &Step, name: &str) -> f64 {
    let found = trace.counters_in(step).find(|(counter, _)| *counter == name);
    found.unwrap_or_else(|| panic!("no {name} in step {}", step.number())).1
}

#[test]
fn recorded_steps_have_what_the_process_used() {
    let (mut least, mut most) = (Vec::new(), Vec::new());
    let (trace, _) = record_with(
        |builder| builder.cpu_time(CpuTime::steps()).schedule(Schedule::new().wait(1).active(3).repeat(1)),
        |profiler| {
            let mut before = read(ClockId::ProcessCPUTime);
            profiler.step();
            for step in 0..3 {
                let thread = now();
                match step {
                    0 => compute(20 * MILLIS),
                    1 => thread::sleep(20 * MILLIS),
                    // The system gives each page when it is first written.
                    _ => drop(black_box(vec![1_u8; 64 << 20])),
                }
                least.push(now() - thread);
                // Other tests of this process run meanwhile, also between a reading and a step.
                let next = read(ClockId::ProcessCPUTime);
                profiler.step();
                most.push(read(ClockId::ProcessCPUTime) - before);
                before = next;
            }
        },
    );
    assert_eq!(trace.steps().len(), 3);
    // `getrusage` rounds the times in the program and in the system down to microseconds.
    let rounding = 4e-6;
    for ((step, least), most) in trace.steps().iter().zip(least).zip(most) {
        let seconds = counter(&trace, step, "cpu.seconds");
        let (least, most) = (least.as_secs_f64() - rounding, most.as_secs_f64() + rounding);
        assert!(least <= seconds && seconds <= most, "{least} <= {seconds} <= {most}");
        let percent = 100.0 * seconds / step.duration().as_secs_f64();
        assert!((counter(&trace, step, "cpu.percent") / percent - 1.0).abs() < 1e-3 || percent == 0.0);
        for name in ["context_switches.voluntary", "context_switches.involuntary", "page_faults.major"] {
            assert!(counter(&trace, step, name) >= 0.0);
        }
    }
    assert!(counter(&trace, &trace.steps()[1], "context_switches.voluntary") >= 1.0);
    assert!(counter(&trace, &trace.steps()[2], "page_faults.minor") >= 1.0);
}

#[test]
fn step_exporters_get_it_for_every_step() {
    let mut used = Vec::new();
    let (steps, report) = step_summaries(
        |builder| builder.cpu_time(CpuTime::steps()).schedule(Schedule::new().wait(2).active(1).repeat(1)),
        |profiler| {
            for _ in 0..4 {
                let begin = now();
                compute(2 * MILLIS);
                used.push((now() - begin).as_secs_f64());
                profiler.step();
            }
        },
    );
    assert_eq!(steps.len(), 4);
    for (step, used) in steps.iter().zip(used) {
        let value = |name: &str| step.counters.iter().find(|(counter, _)| *counter == name).unwrap().1;
        assert!(value("cpu.seconds") >= used - 4e-6, "{step:?}");
        assert_eq!(step.counters.len(), 6, "{step:?}");
    }
    assert!(report.unwrap().losses().is_empty());
}

#[test]
fn a_window_by_hand_has_the_part_of_its_step() {
    let mut used = Duration::ZERO;
    let (trace, _) = record_with(
        |builder| builder.cpu_time(CpuTime::steps()).schedule(Schedule::manual()),
        |profiler| {
            profiler.step();
            compute(20 * MILLIS);
            let begin = read(ClockId::ProcessCPUTime);
            assert!(profiler.start());
            info_span!("work").in_scope(|| compute(2 * MILLIS));
            profiler.stop();
            used = read(ClockId::ProcessCPUTime) - begin;
        },
    );
    let seconds = counter(&trace, &trace.steps()[0], "cpu.seconds");
    assert!(0.002 - 4e-6 <= seconds && seconds <= used.as_secs_f64() + 4e-6, "{seconds}, {used:?}");
}

#[test]
fn the_report_has_what_the_process_used() {
    let (trace, report) = record_with(
        |builder| builder.cpu_time(CpuTime::steps()),
        |profiler| {
            (0..4).for_each(|_| {
                compute(2 * MILLIS);
                profiler.step();
            });
        },
    );
    let cpu = report.process_cpu().unwrap();
    let sum = |name: &str| trace.steps().iter().map(|step| counter(&trace, step, name)).sum::<f64>();
    assert_eq!(cpu.steps, trace.steps().len() as u64);
    assert!((cpu.cpu.as_secs_f64() - sum("cpu.seconds")).abs() < 1e-6 && cpu.cpu >= 8 * MILLIS);
    assert_eq!(cpu.voluntary_switches as f64, sum("context_switches.voluntary"));
    assert_eq!(cpu.minor_faults as f64, sum("page_faults.minor"));
    assert!((cpu.percent - 100.0 * cpu.cpu.as_secs_f64() / cpu.elapsed.as_secs_f64()).abs() < 1e-6);
    let text = report.to_string();
    assert!(text.contains("\nCPU: ") && text.contains("context switches a step: "), "{text}");
}

#[test]
#[cfg(target_os = "linux")]
fn threads_without_spans_have_their_time() {
    if fs::read_to_string("/proc/thread-self/schedstat").is_err() {
        return println!("skipped: this kernel has no CPU time of threads (CONFIG_SCHED_INFO)");
    }
    let begin = Instant::now();
    let (layer, profiler) = Profiler::builder().cpu_time(CpuTime::steps()).build().unwrap();
    drop(layer);
    let ((computed, wait), (release, released)) = (mpsc::channel(), mpsc::channel::<()>());
    let burner = thread::Builder::new().name("cpu-time-burner".to_owned()).spawn(move || {
        let begin = now();
        compute(50 * MILLIS);
        computed.send(now() - begin).unwrap();
        // The thread must be there when the window closes.
        let _ = released.recv();
    });
    let computed = wait.recv().unwrap();
    let report = profiler.finish().unwrap();
    let elapsed = begin.elapsed();
    drop(release);
    burner.unwrap().join().unwrap();
    let threads = report.process_cpu().unwrap().threads;
    let burner = threads.iter().find(|thread| thread.name == "cpu-time-burner").unwrap();
    // The readings are within the time that was measured here, so the part of it is no smaller.
    let seconds = burner.percent / 100.0 * elapsed.as_secs_f64();
    assert!(seconds >= computed.as_secs_f64() && burner.percent <= 101.0, "{burner:?}, {computed:?} of {elapsed:?}");
    assert!(report.to_string().contains("busiest threads: "));
}
