//! Vital signs in the report, in traces, and in what exporters of steps are given.

#![cfg(all(feature = "vitals", target_os = "linux"))]

use kernspan::{
    Activity, Chrome, Collected, Exporter, Perfetto, Profiler, Schedule, Vitals,
    analysis::Analysis,
    export::{ExportResult, Run, StepExporter, StepSummary},
};
use std::{
    error::Error,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};
use tracing_subscriber::prelude::*;

/// How often signs are read in these tests.
const EVERY: Duration = Duration::from_millis(20);

/// The names of the counters of all steps, and the run.
#[derive(Clone, Default)]
struct StepCounters(Arc<Mutex<Vec<Vec<&'static str>>>>, Arc<Mutex<Option<Run>>>);

impl Exporter for StepCounters {
    fn export(&mut self, _: &Analysis<'_>) -> ExportResult {
        Ok(Vec::new())
    }

    fn steps(&mut self, run: &Run) -> Option<Box<dyn StepExporter>> {
        assert!(run.vitals().is_none(), "nothing has been read yet");
        *self.1.lock().unwrap() = Some(run.clone());
        Some(Box::new(self.clone()))
    }
}

impl StepExporter for StepCounters {
    fn steps(&mut self, steps: &[StepSummary]) -> Result<(), Box<dyn Error + Send + Sync>> {
        let names = steps.iter().map(|step| step.counters.iter().map(|(name, _)| *name).collect());
        self.0.lock().unwrap().extend(names);
        Ok(())
    }
}

/// Waits for some more readings.
fn wait_for_readings(profiler: &Profiler, mut readings: u32) {
    let (deadline, mut last) = (Instant::now() + Duration::from_secs(120), None);
    while readings > 0 {
        assert!(Instant::now() < deadline, "nothing is read");
        let at = profiler.vitals().map(|vitals| vitals.at);
        if at != last {
            (last, readings) = (at, readings - 1);
        }
        std::thread::yield_now();
    }
}

#[test]
fn vital_signs_are_in_the_report_the_trace_and_the_steps() {
    let (collected, steps) = (Collected::new(), StepCounters::default());
    let folder = tempfile::tempdir().unwrap();
    let crossings = Arc::new(Mutex::new(Vec::new()));
    let hook = Arc::clone(&crossings);
    let vitals = Vitals::default()
        .every(EVERY)
        .every_in_windows(EVERY)
        .threshold("process.threads > 0".parse().unwrap())
        .on_crossing(move |crossing| hook.lock().unwrap().push(crossing.sign.to_string()));
    let (layer, profiler) = Profiler::builder()
        .schedule(Schedule::manual())
        .activities([Activity::Host])
        .vitals(vitals)
        .export(collected.clone())
        .export(Chrome::to_dir(folder.path()))
        .export(Perfetto::to_dir(folder.path()))
        .export(steps.clone())
        .build()
        .unwrap();
    assert!(profiler.records(Activity::Vitals));
    tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
        wait_for_readings(&profiler, 3);
        profiler.step();
        profiler.start();
        tracing::info_span!("train_step").in_scope(|| wait_for_readings(&profiler, 5));
        profiler.step();
        profiler.stop();
    });
    let latest = profiler.vitals().unwrap();
    assert!(latest.process.resident.is_some_and(|bytes| bytes > 1e6) && latest.process.threads > Some(2.0));
    let report = profiler.finish().unwrap();

    let run = report.vitals();
    assert!(run.readings >= 8, "{run:?}");
    let resident = run.get("process.resident").unwrap();
    assert!(resident.average > 1e6 && resident.peak >= resident.average, "{resident:?}");
    let threads = run.get("process.threads").unwrap();
    assert_eq!(threads.above.unwrap().time, threads.observed);
    assert!(report.to_string().contains("process.resident"), "{report}");
    assert_eq!(crossings.lock().unwrap().iter().filter(|name| *name == "process.threads").count(), 1);

    let trace = collected.only();
    let counter = |name: &str| trace.counters().iter().find(|counter| counter.name() == name).cloned();
    let resident = counter("vitals.process.resident").unwrap();
    // The last reading before the window, and those in it.
    assert!(resident.samples().len() >= 5 && resident.samples()[0].0 == trace.start(), "{resident:?}");
    // Exporters can ask for the latest reading, too.
    assert!(steps.1.lock().unwrap().as_ref().unwrap().vitals().unwrap().at >= latest.at);
    let steps = steps.0.lock().unwrap();
    let with_vitals = steps.iter().filter(|names| names.contains(&"vitals.process.resident"));
    assert_eq!(with_vitals.count(), 2, "each step has a reading: {steps:?}");
    #[cfg(feature = "read")]
    {
        let is_chrome = |file: &&std::path::PathBuf| file.to_string_lossy().contains(".json");
        let read = kernspan::read(report.files().iter().find(is_chrome).unwrap()).unwrap().remove(0);
        let again = read.counters().iter().find(|counter| counter.name() == "vitals.process.resident").unwrap();
        assert_eq!(again.samples().len(), resident.samples().len());
    }
}

#[test]
fn without_the_activity_nothing_is_read() {
    let (layer, profiler) = Profiler::builder().activities([Activity::Host]).build().unwrap();
    drop(layer);
    assert!(profiler.vitals().is_none() && !profiler.records(Activity::Vitals));
    assert!(profiler.finish().unwrap().vitals().is_empty());
}
