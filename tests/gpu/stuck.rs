//! Libraries whose calls never return: the program trains on, finishes and is told.

use crate::{
    fake::{self, Fake, Setting},
    support::eventually,
};
use kernspan::{
    Activity, Collected, Error, Profiler, Schedule, Vitals,
    trace::{Gpu, GpuProblem},
};
use tracing::info_span;
use tracing_subscriber::prelude::*;

/// This is not a test but the programs that the others run, each in a process of its own.
#[test]
fn programs() {
    let Some((fake, program)) = Fake::program() else { return };
    match program.as_str() {
        "NVML" => nvml(fake),
        "CUPTI" => cupti(fake),
        program => panic!("no program {program}"),
    }
}

#[test]
fn a_run_ends_though_nvml_is_stuck() {
    fake::run("stuck::programs", "NVML");
}

fn nvml(fake: Fake) {
    fake.set(Setting::StuckNvml, 1);
    let activities = [Activity::Host, Activity::Kernels, Activity::Memory];
    let builder = Profiler::builder().activities(activities).vitals(Vitals::default());
    let (layer, profiler) = builder.build().unwrap();
    let _subscriber = tracing::subscriber::set_default(tracing_subscriber::registry().with(layer));
    info_span!("step").in_scope(|| fake.launch());
    let Err(Error::Run { failures, report, .. }) = profiler.finish() else { panic!("no failure") };
    let said: Vec<_> = failures.iter().map(ToString::to_string).collect();
    assert_eq!(said, ["kernspan: memory was not read to the end: NVML or the driver does not return from a call"]);
    assert_eq!(report.gpu_work(), 1);
    let text = report.to_string();
    assert!(text.contains("the readings end early: NVML or the system does not return from a call"), "{text}");
}

#[test]
fn a_program_trains_on_though_cupti_is_stuck() {
    fake::run("stuck::programs", "CUPTI");
}

fn cupti(fake: Fake) {
    let collected = Collected::new();
    let (layer, profiler) = Profiler::builder().schedule(Schedule::manual()).export(collected.clone()).build().unwrap();
    let _subscriber = tracing::subscriber::set_default(tracing_subscriber::registry().with(layer));
    let window = |name| {
        profiler.start();
        info_span!("step", name).in_scope(|| fake.launch());
        profiler.stop();
    };
    window("recorded");
    eventually("a window", || (collected.traces().len() == 1).then_some(()));
    fake.set(Setting::StuckCupti, 1);
    window("lost");
    let flushed = fake.flushed();
    eventually("a flush", || (fake.flushed() > flushed).then_some(()));
    window("without GPU");
    assert_eq!(profiler.gpu(), Gpu::Unavailable(GpuProblem::Stuck));
    let said = profiler.finish().unwrap_err().to_string();
    assert!(said.contains("windows that waited for GPU records are lost"), "{said}");
    let traces = collected.traces();
    let spans: Vec<_> = traces.iter().map(|trace| (trace.spans().len(), trace.work().len())).collect();
    assert_eq!(spans, [(1, 1), (1, 0)]);
    assert_eq!(traces[1].gpu().to_string(), "GPU not recorded: CUPTI does not return from a call");
}
