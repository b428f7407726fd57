//! Metrics of vital signs.

use super::{
    DELTA, measured, metrics,
    received::{collected, numbers, of, points},
    step,
};
use kernspan::{
    Phase,
    analysis::{GpuVitals, VitalSigns},
    trace::sample::at,
};
use std::{collections::BTreeSet, sync::Arc};

fn vitals() -> Arc<VitalSigns> {
    let mut vitals = VitalSigns::default();
    vitals.at = at(500_000);
    let process = &mut vitals.process;
    (process.cpu, process.cpus, process.resident, process.threads) = (Some(12.5), Some(1.5), Some(1e9), Some(7.0));
    let machine = &mut vitals.machine;
    (machine.iowait, machine.network_sent, machine.temperature) = (Some(25.0), Some(2e6), Some(61.0));
    (machine.frequency, machine.throttles, machine.cpu_power) = (Some(3e9), Some(0.5), Some(80.0));
    machine.cpu_energy = Some(4000.0);
    vitals.container.memory_limit = Some(64e9);
    let mut gpu = GpuVitals::default();
    (gpu.utilization, gpu.memory, gpu.memory_used, gpu.temperature) = (Some(90.0), Some(50.0), Some(7e10), Some(60.0));
    (gpu.power, gpu.energy, gpu.clock, gpu.power_limit) = (Some(600.0), Some(9e4), Some(1.98e9), Some(700.0));
    vitals.gpus.push(gpu);
    Arc::new(vitals)
}

#[test]
fn signs_are_sent_by_unit_and_no_figure_twice() {
    let mut metrics = metrics(None, &[]);
    measured(&mut metrics).vitals = Some(vitals());
    let found = collected(&mut metrics, 1, &[]);
    let expected = [
        ("utilization", &[("process.cpu", 0.125), ("machine.iowait", 0.25)][..]),
        ("memory", &[("container.memory_limit", 64e9)]),
        ("throughput", &[("machine.network_sent", 2e6)]),
        ("temperature", &[("machine.temperature", 61.0)]),
        ("frequency", &[("machine.frequency", 3e9), ("gpu0.clock", 1.98e9)]),
        ("power", &[("machine.cpu_power", 80.0), ("gpu0.power_limit", 700.0)]),
        ("energy", &[("machine.cpu_energy", 4000.0)]),
        ("events", &[("machine.throttles", 0.5)]),
        ("value", &[("process.cpus", 1.5)]),
    ];
    for (name, expected) in expected {
        assert_eq!(points(&found, &format!("kernspan.vitals.{name}")), of(expected), "{name}");
    }
    let names: BTreeSet<_> = found.keys().filter_map(|name| name.strip_prefix("kernspan.vitals.")).collect();
    assert_eq!(names, expected.map(|(name, _)| name).into());
    // They were read half a second before they were collected.
    assert_eq!(numbers(&found["kernspan.vitals.power"])[0].time_unix_nano, at(500_000).as_unix_nanos());
    assert!(collected(&mut metrics, 2, &[]).keys().all(|name| !name.starts_with("kernspan.vitals")));
}

#[test]
fn energy_is_a_sum() {
    let mut metrics = metrics(None, &[DELTA]);
    measured(&mut metrics).vitals = Some(vitals());
    collected(&mut metrics, 1, &[]);
    let mut later = VitalSigns::clone(&vitals());
    // Read before the last collection.
    later.machine.cpu_energy = Some(4100.0);
    measured(&mut metrics).vitals = Some(Arc::new(later));
    let found = collected(&mut metrics, 3, &[]);
    assert_eq!(points(&found, "kernspan.vitals.energy"), of(&[("machine.cpu_energy", 100.0)]));
}

#[test]
fn counters_of_steps_leave_vital_signs_out() {
    let mut metrics = metrics(None, &[]);
    metrics.add_step(&step(1, Phase::Wait, 1, &[("loss", 0.5), ("vitals.machine.cpu", 12.0)]));
    let found = collected(&mut metrics, 1, &[]);
    assert_eq!(points(&found, "kernspan.counter"), of(&[("loss", 0.5)]));
}
