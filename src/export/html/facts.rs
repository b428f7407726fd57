//! The facts of a run: where and how it was recorded.

use crate::{
    activity::Activity,
    analysis::FollowedRun,
    export::{json::Object, time_text::Utc},
    report::{RecordingCost, Report, units},
    trace::{Gpu, Metadata, Timestamp},
};
use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};

/// The facts of a run.
#[derive(Debug, Default)]
pub(super) struct RunFacts {
    pub(super) metadata: Option<Arc<Metadata>>,
    /// The start of the run, or else of the first window.
    pub(super) start: Option<Timestamp>,
    /// The requested schedule and activities, which traces do not contain.
    pub(super) recorded: Option<(String, Vec<Activity>)>,
    /// The durations of steps that were not recorded, once the run has ended.
    pub(super) unrecorded: Arc<OnceLock<Vec<Duration>>>,
    pub(super) followed: Arc<OnceLock<FollowedRun>>,
    #[cfg(feature = "serving")]
    pub(super) requests: Option<Arc<crate::serving::RequestRecorder>>,
}

impl RunFacts {
    /// Returns the time when the run started, if it is known.
    pub(super) fn started(&self) -> Option<String> {
        Some(Utc::from(self.start?).to_string())
    }
}

/// Writes what is known about the run, and the report's own lines below. `name` is the one given to the run.
pub(super) fn write(name: Option<&str>, run: &RunFacts, report: &Report, section: &mut Object<'_>) {
    let metadata = run.metadata.as_deref();
    section.array("items", |items| {
        let mut fact = |label: &str, text: &str| {
            items.array(|fact| [label, text].iter().for_each(|part| fact.string(part)));
        };
        name.iter().for_each(|name| fact("name", name));
        if let Some(metadata) = metadata {
            let process = Some(&metadata.process).filter(|name| !name.is_empty());
            fact("program", &format!("{} (process {})", process.map_or("unknown", String::as_str), metadata.pid));
            if !metadata.host.is_empty() {
                fact("host", &metadata.host);
            }
            if metadata.world_size > 1 {
                fact("rank", &format!("{} of {}", metadata.rank, metadata.world_size));
            }
        }
        if let Some(started) = run.started() {
            fact("started", &started);
        }
        if let Some((schedule, activities)) = &run.recorded {
            fact("schedule", schedule);
            // Without a GPU only the host was recorded, whatever was requested.
            let is_recorded = |activity: &Activity| *activity == Activity::Host || report.gpu().is_available();
            let activities: Vec<_> = activities.iter().copied().filter(is_recorded).collect();
            fact("recorded", &activities.iter().map(|activity| format!("{activity:?}")).collect::<Vec<_>>().join(", "));
        }
        for device in report.devices() {
            let memory = units::bytes(device.memory);
            fact(&format!("GPU {}", device.id), &format!("{}, {memory}", device.name));
        }
        match report.gpu() {
            Gpu::Available(library) => {
                let (cupti, cuda) = (library.cupti_version, library.driver_version);
                fact("CUPTI", &format!("{cupti}, driver for CUDA {}.{}", cuda / 1000, cuda % 1000 / 10));
            }
            state => fact("GPUs", &state.to_string()),
        }
        fact("kernspan", env!("CARGO_PKG_VERSION"));
        for (key, value) in metadata.iter().flat_map(|metadata| &metadata.user) {
            fact(key, value);
        }
    });
    section.array("notes", |notes| {
        let unrecorded = run.unrecorded.get().cloned().unwrap_or_default();
        if let Some(cost) = RecordingCost::of(unrecorded, report.steps().on_host()) {
            notes.string(&cost.to_string());
        }
        // The findings have their own section.
        let lines = report.width(usize::MAX).summary();
        let lines = lines.lines().take_while(|line| *line != "what to change first:");
        lines.for_each(|line| notes.string(line));
    });
}
