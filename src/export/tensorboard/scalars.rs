//! Scalars: the time, the rates and the counters of every step, and what only a recorded window has, which are the
//! report's figures for each step and the losses.

use super::{capture::FailedProfiles, events_file::SharedFile, summary::Summary, tag};
use crate::{
    analysis::{Analysis, StepInterval},
    export::exporter::{ExportResult, StepExporter, StepSummary},
    trace::{Step, Timestamp, convention},
};
use rustc_hash::FxHashMap;
use std::{error::Error, time::Duration};

/// Computes the scalars of steps.
#[derive(Clone, Debug)]
pub(super) struct StepScalars {
    pub(super) samples_per_step: Option<u64>,
    /// The number that TensorBoard gives to step 0.
    pub(super) first_step: u64,
    /// The tags of counters, by their names.
    tags: FxHashMap<String, String>,
}

impl StepScalars {
    /// The maximum number of tags kept. A program may have any number of counters.
    const MAX_TAGS: usize = 4096;

    pub(super) fn new(samples_per_step: Option<u64>, first_step: u64) -> Self {
        Self { samples_per_step, first_step, tags: FxHashMap::default() }
    }

    /// Returns the number that TensorBoard gives to a step.
    pub(super) fn number(&self, step: u64) -> u64 {
        // TensorBoard's number is signed.
        self.first_step.saturating_add(step).min(i64::MAX.cast_unsigned())
    }

    /// Returns the scalars of a step. Without a duration, these are only the counters.
    fn of<'a>(
        &mut self,
        duration: Option<Duration>,
        counters: impl Iterator<Item = (&'a str, f64)> + Clone,
    ) -> Summary {
        let mut summary = Summary::default();
        if let Some(duration) = duration {
            summary.scalar(tag::STEP_TIME, duration.as_secs_f64() * 1e3);
            let counted =
                counters.clone().filter(|&(name, _)| name == convention::SAMPLES).map(|(_, value)| value).last();
            let samples = counted.or(self.samples_per_step.map(|samples| samples as f64));
            if !duration.is_zero() {
                summary.scalar(tag::STEPS_PER_SECOND, 1.0 / duration.as_secs_f64());
                samples
                    .iter()
                    .for_each(|samples| summary.scalar(tag::SAMPLES_PER_SECOND, samples / duration.as_secs_f64()));
            }
        }
        counters.for_each(|(name, value)| summary.scalar(self.tag(name), value));
        summary
    }

    fn tag(&mut self, name: &str) -> &str {
        if !self.tags.contains_key(name) {
            if self.tags.len() >= Self::MAX_TAGS {
                self.tags.clear();
            }
            self.tags.insert(name.to_owned(), tag::of_counter(name));
        }
        self.tags.get(name).map_or("", String::as_str)
    }

    /// Returns the scalars of each step of a trace, with the step's end and its number, for a trace exported without a
    /// run.
    pub(super) fn of_window(&mut self, window: &Analysis<'_>) -> Vec<(Timestamp, u64, Summary)> {
        let (trace, mut found) = (window.trace(), Vec::new());
        let mut whole = window.step_intervals().iter().peekable();
        for (id, step) in trace.step_ids().zip(trace.steps()) {
            let counters: Vec<_> = trace.counters_in(step).collect();
            let time = whole.next_if(|whole| whole.id == id).map(StepInterval::time);
            let duration = time.filter(|_| has_time(step.number()));
            found.push((step.end(), self.number(step.number()), self.of(duration, counters.into_iter())));
        }
        found
    }
}

/// Returns whether the duration of a step is worth showing.
///
/// The first step of a run begins when the profiler is built, before the data and the model are loaded. In a chart, it
/// would flatten all others to a line at the bottom.
fn has_time(step: u64) -> bool {
    step > 0
}

/// The exporter of the scalars of every step.
#[derive(Debug)]
pub(super) struct ScalarExporter {
    pub(super) file: SharedFile,
    pub(super) scalars: StepScalars,
    /// Whether there are hyperparameters, whose session ends with the run.
    pub(super) hparams: bool,
    /// Whether the training has failed.
    pub(super) failed: bool,
    /// The end and the number of the last step.
    pub(super) last: (Timestamp, u64),
    /// Whether the last attempt to write the file failed. That failure has been reported.
    pub(super) failing: bool,
    pub(super) failed_profiles: FailedProfiles,
}

impl StepExporter for ScalarExporter {
    fn steps(&mut self, steps: &[StepSummary]) -> Result<(), Box<dyn Error + Send + Sync>> {
        let mut file = self.file.lock();
        for step in steps {
            let duration = (step.ended && has_time(step.number)).then_some(step.duration);
            let summary = self.scalars.of(duration, step.counters.iter().copied());
            self.last = (step.end(), self.scalars.number(step.number));
            file.add(step.end(), self.last.1, &summary);
        }
        let flushed = file.flush();
        self.failing = flushed.is_err();
        Ok(flushed?)
    }

    fn panicked(&mut self) {
        self.failed = true;
    }

    fn finish(&mut self) -> ExportResult {
        let mut file = self.file.lock();
        if self.hparams {
            let (at, step) = self.last;
            let mut summary = Summary::default();
            summary.hparams_end(at, self.failed);
            file.add(at, step, &summary);
        }
        let unreported = self.failed_profiles.unreported();
        let profiles = (unreported > 0).then(|| format!("{unreported} more profiles could not be written"));
        if let Err(error) = file.flush() {
            return Err(match profiles {
                None => error.into(),
                // The error has already been reported.
                Some(profiles) if self.failing => profiles.into(),
                Some(profiles) => format!("{profiles}, and {error:?}").into(),
            });
        }
        let dropped = match file.dropped() {
            0 => None,
            dropped => Some(format!("{dropped} events are missing because the file could not be written for too long")),
        };
        // Nothing was left to write, so no other file was started instead.
        let deleted = file.deleted().map(|path| format!("{} was deleted before the run ended", path.display()));
        match [dropped, deleted, profiles].into_iter().flatten().collect::<Vec<_>>() {
            none if none.is_empty() => Ok(file.unreported_path().into_iter().collect()),
            problems => Err(problems.join(", and ").into()),
        }
    }
}

/// Returns the scalars of each step of a window, and those of the window itself, at its last step if it has one. Each
/// comes with its time and the step's number in the trace.
pub(super) fn of_window(window: &Analysis<'_>) -> Vec<(Timestamp, Option<u64>, Summary)> {
    let trace = window.trace();
    let ends: FxHashMap<u64, Timestamp> = trace.steps().iter().map(|step| (step.number(), step.end())).collect();
    let mut found = Vec::new();
    for step in window.gpu_steps() {
        let mut summary = Summary::default();
        let mut scalar = |name: &str, value| summary.scalar(&tag::of_gpu(step.device.as_u32(), name), value);
        scalar(tag::BUSY, step.usage.busy_percent());
        scalar(tag::KERNELS, step.usage.kernels as f64);
        scalar(tag::COPIED, step.usage.copied as f64);
        step.peak_memory.iter().for_each(|&bytes| scalar(tag::PEAK_MEMORY, bytes as f64));
        step.usage.mfu().iter().for_each(|&mfu| scalar(tag::MFU, mfu));
        for value in window.step_counters(step).iter().flat_map(|counters| &counters.values) {
            scalar(&tag::of_metric(&value.metric), value.mean);
        }
        found.push((ends.get(&step.step).copied().unwrap_or(trace.end()), Some(step.step), summary));
    }
    let mut lost = Summary::default();
    lost.scalar(tag::LOST, trace.losses().total() as f64);
    found.push((trace.end(), trace.steps().last().map(Step::number), lost));
    found
}

#[cfg(test)]
mod tests {
    use super::{StepScalars, Summary, of_window};
    use crate::{
        analysis::Analysis,
        report::Report,
        trace::{
            Counter, DeviceId, MetricMeaning, Trace,
            sample::{add_gpu_counters, at, gpu_trace, memory_trace, set_flops},
        },
    };
    use std::time::Duration;

    fn summary(values: &[(&str, f64)]) -> Vec<u8> {
        let mut summary = Summary::default();
        values.iter().for_each(|&(tag, value)| summary.scalar(tag, value));
        summary.as_bytes().to_vec()
    }

    #[test]
    fn a_step_has_its_time_its_rates_and_its_counters() {
        let of = |scalars: &mut StepScalars, millis, counters: &[(&'static str, f64)]| {
            let duration = Duration::from_millis(millis);
            scalars.of(Some(duration), counters.iter().copied()).as_bytes().to_vec()
        };
        let mut plain = StepScalars::new(None, 0);
        assert_eq!(of(&mut plain, 4, &[]), summary(&[("step/time_ms", 4.0), ("step/per_second", 250.0)]));
        // A step that took no time has no rate.
        assert_eq!(of(&mut plain, 0, &[("a\0b", 1.0)]), summary(&[("step/time_ms", 0.0), ("a_b", 1.0)]));
        let mut sampled = StepScalars::new(Some(8), 0);
        let rates = |samples| [("step/time_ms", 4.0), ("step/per_second", 250.0), ("step/samples_per_second", samples)];
        assert_eq!(of(&mut sampled, 4, &[]), summary(&rates(2000.0)));
        let counted = [&rates(500.0)[..], &[("samples", 2.0)]].concat();
        assert_eq!(of(&mut sampled, 4, &[("samples", 2.0)]), summary(&counted));
        assert_eq!(sampled.of(None, [("loss", 0.5)].into_iter()).as_bytes(), summary(&[("loss", 0.5)]));
    }

    #[test]
    fn steps_are_counted_from_where_the_run_goes_on() {
        assert_eq!(StepScalars::new(None, 7).number(3), 10);
        assert_eq!(StepScalars::new(None, u64::MAX).number(3), i64::MAX as u64);
    }

    #[test]
    fn a_trace_knows_the_same_of_its_steps() {
        let mut trace = gpu_trace();
        let samples = vec![(at(0), 1.0), (at(99), 2.0), (at(200), 3.0)];
        trace.counters.push(Counter { name: "loss".into(), samples });
        trace.steps[1].cut.end = true;
        let [first, second] = StepScalars::new(None, 10).of_window(&Analysis::of(&trace)).try_into().unwrap();
        let expected = summary(&[("step/time_ms", 0.1), ("step/per_second", 10_000.0), ("loss", 2.0)]);
        assert_eq!((first.0, first.1, first.2.as_bytes()), (at(100), 15, &expected[..]));
        assert_eq!((second.0, second.1, second.2.as_bytes()), (at(200), 16, &[][..]));
        // The first of the run has everything before the loop in it.
        trace.steps[0].number = 0;
        let first = &StepScalars::new(None, 10).of_window(&Analysis::of(&trace))[0];
        assert_eq!((first.1, first.2.as_bytes()), (10, &summary(&[("loss", 2.0)])[..]));
    }

    #[test]
    fn steps_have_the_numbers_of_the_report() {
        let mut trace = gpu_trace();
        set_flops(&mut trace, 1, 1_000_000, "f32");
        trace.losses.late = 3;
        trace.allocations = memory_trace(&[(1, Some(20), 120, None)]).allocations;
        let mfu = Report::of([&trace]).gpu_steps().steps()[0].usage.mfu().unwrap();
        let of = |values: &[(&str, f64)]| {
            let mut summary = Summary::default();
            values.iter().for_each(|&(tag, value)| summary.scalar(tag, value));
            summary.as_bytes().to_vec()
        };
        let found: Vec<_> = of_window(&Analysis::of(&trace))
            .iter()
            .map(|(at, step, summary)| (*at, *step, summary.as_bytes().to_vec()))
            .collect();
        let common = |busy| {
            [
                ("gpu/busy_percent", busy),
                ("gpu/kernels", 3.0),
                ("gpu/copied_bytes", 4000.0),
                ("gpu/peak_memory_bytes", 120.0),
            ]
        };
        let first = [&common(54.0)[..], &[("gpu/mfu_percent", mfu)]].concat();
        assert_eq!(
            found,
            [
                (at(100), Some(5), of(&first)),
                (at(200), Some(6), of(&common(59.0))),
                (at(200), Some(6), of(&[("profiler/lost", 3.0)]))
            ]
        );
        let without_steps = Trace { losses: trace.losses, ..Trace::default() };
        let [(_, step, lost)] = &of_window(&Analysis::of(&without_steps))[..] else {
            panic!("{:?}", of_window(&Analysis::of(&without_steps)))
        };
        assert_eq!((step, lost.as_bytes()), (&None, &of(&[("profiler/lost", 3.0)])[..]));
    }

    #[test]
    fn steps_have_the_means_of_hardware_counters() {
        let mut trace = gpu_trace();
        let metrics =
            [("sm", MetricMeaning::SmActive), ("dram", MetricMeaning::DramRead), ("a\0b", MetricMeaning::Custom)];
        // The work of the first step takes 35 µs of the first sample and all of the second; that of the second step is
        // not covered.
        add_gpu_counters(&mut trace, 0, &metrics, 40, &[&[30.0, 3e9, 15.0], &[90.0, 9e9, 45.0]]);
        let scalars = of_window(&Analysis::of(&trace));
        let means = [
            ("gpu/busy_percent", 54.0),
            ("gpu/kernels", 3.0),
            ("gpu/copied_bytes", 4000.0),
            ("gpu/peak_memory_bytes", 5096.0),
            ("gpu/sm_active_percent", 62.0),
            ("gpu/dram_read_bytes_per_second", 6.2e9),
            ("gpu/a_b", 31.0),
        ];
        assert_eq!(scalars[0].2.as_bytes(), summary(&means));
        assert!(!String::from_utf8_lossy(scalars[1].2.as_bytes()).contains("sm_active"));
    }

    #[test]
    fn other_gpus_have_numbers() {
        let mut trace = gpu_trace();
        trace.streams.iter_mut().for_each(|stream| stream.device = DeviceId::new(3));
        add_gpu_counters(&mut trace, 3, &[("sm", MetricMeaning::SmActive)], 100, &[&[50.0]]);
        let text = String::from_utf8_lossy(of_window(&Analysis::of(&trace))[0].2.as_bytes()).into_owned();
        assert!(text.contains("gpu3/busy_percent") && text.contains("gpu3/sm_active_percent"), "{text}");
        assert!(!text.contains("gpu/"), "{text}");
    }
}
