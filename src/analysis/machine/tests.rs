//! Tests on built windows; `tests/exports/machine.rs` has recorded ones.

use super::machine_findings;
use crate::{
    analysis::{Analysis, Finding, FindingKind},
    trace::{
        Trace,
        sample::{HostTrace, add_counter, at},
    },
};
use std::time::Duration;

const MILLI: u64 = 1000;

/// Returns forty steps of about 10 ms, in a window with readings every 20 ms of a sign. It is `high` in readings 5
/// to 9, and steps in these take so much longer.
fn trace(sign: &str, [low, high]: [f64; 2], longer: u64) -> Trace {
    let mut host = HostTrace::default();
    let (mut now, mut ends) = (0, Vec::new());
    for step in 0..40 {
        let is_slow = (10..20).contains(&step);
        // Steps are never quite alike.
        let micros = 10 * MILLI + step % 3 * 100 + if is_slow { longer } else { 0 };
        host.step(micros).span(0, "train_step", 0, micros - 10);
        now += micros;
        if step % 2 == 1 {
            ends.push((now, if is_slow { high } else { low }));
        }
    }
    let mut trace = host.trace();
    let readings = [(0, low)].into_iter().chain(ends).map(|(micros, value)| (at(micros), value));
    add_counter(&mut trace, &format!("vitals.{sign}"), &readings.collect::<Vec<_>>());
    trace
}

fn only(trace: &Trace) -> Finding {
    let mut found = machine_findings(trace);
    assert_eq!(found.len(), 1, "{found:?}");
    found.remove(0)
}

#[test]
fn steps_that_a_condition_slows_down_are_compared_with_the_others() {
    let finding = only(&trace("machine.cpu", [35.0, 97.0], 4 * MILLI));
    assert_eq!(finding.kind, FindingKind::CpuSaturated);
    assert_eq!(finding.title, "10 of 40 steps take 4.00 ms longer while the CPUs are saturated");
    let expected = [
        "They take 14.1 ms on average, the others 10.1 ms.",
        "`machine.cpu` is 97.0 % in these steps, 35.0 % in the others.",
    ];
    assert_eq!(finding.evidence, expected);
    // A quarter of the steps.
    let micros = |time: Duration| time.as_micros();
    assert!((950..1050).contains(&micros(finding.saving.likely)), "{:?}", finding.saving);
    assert!(finding.saving.least < finding.saving.likely && finding.saving.likely < finding.saving.most);
    assert!((11_050..11_150).contains(&micros(finding.step)), "{:?}", finding.step);
    assert_eq!((finding.steps, finding.ranges.len()), (40, 5));
    assert!(finding.ranges.iter().all(|range| (20..30).contains(&range.step.unwrap())), "{:?}", finding.ranges);
}

#[test]
fn each_condition_has_its_kind() {
    let cases = [
        ("container.cpu_throttled", 50.0, FindingKind::CpuSaturated),
        ("machine.iowait", 30.0, FindingKind::DiskWait),
        ("machine.io_pressure", 60.0, FindingKind::DiskWait),
        ("machine.swap_in", 50e6, FindingKind::Swapping),
        ("gpu0.thermal_throttle", 100.0, FindingKind::ClockThrottling),
        ("gpu3.power_throttle", 100.0, FindingKind::ClockThrottling),
    ];
    for (sign, high, kind) in cases {
        let trace = trace(sign, [0.0, high], 4 * MILLI);
        assert_eq!(only(&trace).kind, kind, "{sign}");
        // It is among those of the window.
        assert!(Analysis::of(&trace).findings().iter().any(|finding| finding.kind == kind), "{sign}");
    }
    assert_eq!(machine_findings(&trace("gpu0.power", [100.0, 700.0], 4 * MILLI)), []);
}

/// Returns sixty steps of 200 ms, of which those in the seconds 4 to 8 take `longer` milliseconds more. Readings,
/// ten a second, have the condition from `begins` to `over`.
fn late_trace(longer: u64, [begins, over]: [f64; 2]) -> Trace {
    let mut host = HostTrace::default();
    let mut now = 0;
    for step in 0..60_u64 {
        let is_slow = (4_000..8_000).contains(&now);
        let millis = 200 + step % 3 + if is_slow { longer } else { 0 };
        host.step(MILLI * millis).span(0, "train_step", 0, MILLI * millis - 10);
        now += millis;
    }
    let mut trace = host.trace();
    let readings = (0..=now / 100).map(|index| {
        let second = index as f64 / 10.0;
        (at(index * 100 * MILLI), if second > begins && second <= over { 90.0 } else { 0.0 })
    });
    add_counter(&mut trace, "vitals.gpu1.other_processes", &readings.collect::<Vec<_>>());
    trace
}

#[test]
fn late_readings_of_other_processes_are_allowed_for() {
    // Another process that does nothing more, and one that has ended.
    for (begins, over) in [(4.1, 9.0), (5.4, 9.0), (4.4, 8.0)] {
        let finding = only(&late_trace(100, [begins, over]));
        assert_eq!(finding.kind, FindingKind::SharedGpu);
        let (title, saving) = (&finding.title, finding.saving.likely.as_secs_f64() * 1e3);
        assert!(title.contains("steps take 100 ms longer"), "{title}");
        // 13 or 14 of 60 steps: 23 ms.
        assert!((19.0..31.0).contains(&saving), "{begins} to {over}: {saving}");
    }
    assert_eq!(machine_findings(&late_trace(0, [5.4, 9.0])), []);
}

#[test]
fn without_a_slowdown_nothing_is_reported() {
    // Just as fast; faster; all steps alike; the condition never there.
    for (signs, longer) in [([35.0, 97.0], 0), ([95.0, 97.0], 4 * MILLI), ([35.0, 40.0], 4 * MILLI)] {
        assert_eq!(machine_findings(&trace("machine.cpu", signs, longer)), [], "{signs:?}");
    }
    let mut faster = trace("machine.cpu", [97.0, 35.0], 4 * MILLI);
    assert_eq!(machine_findings(&faster), []);
    faster.steps.clear();
    assert_eq!(machine_findings(&faster), []);
}

#[test]
fn steps_that_do_other_work_are_not_compared() {
    let mut host = HostTrace::default();
    let mut readings = vec![(at(0), 0.0)];
    for step in 0..40 {
        let evaluates = step % 4 == 3;
        let micros = if evaluates { 30 * MILLI } else { 10 * MILLI + step % 3 * 100 };
        host.step(micros).span(0, if evaluates { "evaluate" } else { "train_step" }, 0, micros - 10);
        let end = readings.last().unwrap().0 + Duration::from_micros(micros);
        readings.push((end, if evaluates { 50.0 } else { 0.0 }));
    }
    let mut trace = host.trace();
    add_counter(&mut trace, "vitals.machine.iowait", &readings);
    // An evaluation reads its data, and takes longer anyway.
    assert_eq!(machine_findings(&trace), []);
}

#[test]
fn few_readings_and_noise_are_not_enough() {
    // One reading with the condition.
    let mut once = trace("machine.iowait", [0.0, 0.0], 0);
    let samples: Vec<_> = (0..=40).map(|index| (at(index * 10_100), if index == 12 { 50.0 } else { 0.0 })).collect();
    once.counters.clear();
    add_counter(&mut once, "vitals.machine.iowait", &samples);
    assert_eq!(machine_findings(&once), []);
    // Steps that differ by more than the condition makes them.
    let mut host = HostTrace::default();
    let mut readings = vec![(at(0), 0.0)];
    for step in 0..40_u64 {
        let micros = 5 * MILLI + (step * 7_919) % (10 * MILLI);
        host.step(micros).span(0, "train_step", 0, 10);
        let end = readings.last().unwrap().0 + Duration::from_micros(micros);
        readings.push((end, if step % 2 == 0 { 50.0 } else { 0.0 }));
    }
    let mut noisy = host.trace();
    add_counter(&mut noisy, "vitals.machine.iowait", &readings);
    assert_eq!(machine_findings(&noisy), []);
}

#[test]
fn a_condition_in_steps_that_do_other_work_changes_no_saving() {
    let with_evaluations = |count: u64| {
        let mut host = HostTrace::default();
        let mut readings = vec![(at(0), 30.0)];
        let mut step = |name: &'static str, micros: u64, cpu: f64| {
            host.step(micros).span(0, name, 0, micros - 10);
            readings.push((readings.last().unwrap().0 + Duration::from_micros(micros), cpu));
        };
        for index in 0..40 {
            let is_slow = (10..20).contains(&index);
            step(
                "train_step",
                10 * MILLI + index % 3 * 100 + if is_slow { 4 * MILLI } else { 0 },
                if is_slow { 97.0 } else { 30.0 },
            );
        }
        // An evaluation needs all CPUs.
        (0..count).for_each(|_| step("evaluate", 50 * MILLI, 99.0));
        let mut trace = host.trace();
        add_counter(&mut trace, "vitals.machine.cpu", &readings);
        only(&trace).saving.likely
    };
    assert_eq!(with_evaluations(15), with_evaluations(0));
}
