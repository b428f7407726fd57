//! Metrics of GPUs and of the process.

use super::{
    super::{
        gpu_reading::{Gpu, Reading},
        hardware::Hardware,
    },
    DELTA, measured, metrics,
    received::{check, collected, numbers, of, points, texts},
};
use kernspan::trace::sample::at;
use opentelemetry_proto::tonic::metrics::v1::ScopeMetrics;
use prost::Message;
use std::{collections::BTreeSet, time::Duration};

#[cfg(target_os = "linux")]
#[test]
fn the_process_is_there_from_the_beginning() {
    let mut metrics = metrics(None, &[]);
    let (bytes, _) = metrics.collect(true, &[]).unwrap();
    let found: Vec<_> = ScopeMetrics::decode(&bytes[..]).unwrap().metrics;
    found.iter().for_each(check);
    let names: BTreeSet<_> = found.iter().map(|metric| &*metric.name).collect();
    for name in ["process.cpu.time", "process.memory.usage", "process.thread.count"] {
        assert!(names.contains(name), "{names:?}");
    }
    let cpu = found.iter().find(|metric| metric.name == "process.cpu.time").unwrap();
    assert_eq!(numbers(cpu).iter().map(|point| texts(&point.attributes)).collect::<Vec<_>>(), ["user", "system"]);
}

#[test]
fn gpus_say_what_they_can() {
    let mut metrics = metrics(None, &[DELTA]);
    let now = measured(&mut metrics).last.0;
    let first = Reading {
        utilization: Some(0.25),
        memory: Some((10, 40)),
        temperature: Some(50.0),
        power: Some(100.0),
        energy: Some(5000.0),
    };
    let second =
        Reading { utilization: Some(0.75), memory: Some((20, 40)), power: Some(300.0), energy: Some(5200.0), ..first };
    let mut able = Gpu::new("GPU-0".to_owned(), "NVIDIA H200".to_owned(), first, now);
    able.add(second, now);
    let unable = Gpu::new("GPU-1".to_owned(), "NVIDIA T1".to_owned(), Reading::default(), now);
    measured(&mut metrics).hardware = Hardware::of([able, unable]);
    let found = collected(&mut metrics, 1, &[]);
    let labels = "GPU-0 NVIDIA H200 gpu";
    let expected = [
        ("hw.gpu.utilization", 0.5),
        ("hw.gpu.memory.utilization", 0.5),
        ("hw.gpu.memory.usage", 20.0),
        ("hw.gpu.memory.limit", 40.0),
        ("hw.temperature", 50.0),
        ("hw.power", 200.0),
        ("hw.energy", 200.0),
    ];
    for (name, value) in expected {
        assert_eq!(points(&found, name), of(&[(labels, value)]), "{name}");
    }
    // Without a new reading, the last one is sent again.
    let found = collected(&mut metrics, 2, &[]);
    assert_eq!(points(&found, "hw.gpu.utilization"), of(&[(labels, 0.75)]));
    assert_eq!(points(&found, "hw.energy"), of(&[(labels, 0.0)]));
    // It is too old an hour later.
    let (bytes, _) = measured(&mut metrics).collect(now + Duration::from_secs(3600), at(3_000_000), &[]);
    let found = ScopeMetrics::decode(&bytes[..]).unwrap().metrics;
    assert!(!found.iter().any(|metric| metric.name.starts_with("hw.")));
}

/// On a machine with GPUs, they have the ids that CUDA has for them; elsewhere there are no metrics of hardware.
#[cfg(target_os = "linux")]
#[test]
fn gpus_are_read_where_there_are_any() {
    let mut metrics = metrics(None, &[]);
    let (bytes, _) = metrics.collect(true, &[]).unwrap();
    let found = ScopeMetrics::decode(&bytes[..]).unwrap().metrics;
    found.iter().for_each(check);
    let hardware: Vec<_> = found.iter().filter(|metric| metric.name.starts_with("hw.")).collect();
    if !std::path::Path::new("/proc/driver/nvidia/version").exists() {
        println!("skipped: no NVIDIA driver");
        assert!(hardware.is_empty(), "{hardware:?}");
        return;
    }
    for metric in hardware {
        for point in numbers(metric) {
            let labels = texts(&point.attributes);
            println!("{} {labels}: {:?} {}", metric.name, point.value, metric.unit);
            assert!(labels.starts_with("GPU-") && labels.ends_with(" gpu"), "{labels}");
        }
    }
}
