//! The hardware counters of one GPU: setting them up, and the samples that no window has taken yet.

use crate::{
    budget::Budget,
    gpu::{Counters, cupti::library::Library},
    trace::{DeviceId, GpuCounters, GpuMetric, Timestamp},
};
use cupti_sys::{Decoded, PmConfig, PmDevice, PmSampler, kind, result};
use std::{collections::VecDeque, mem::take, ops::Range, time::Duration};

/// A GPU's counters.
pub(super) struct SampledDevice {
    pub(super) id: DeviceId,
    /// The metrics that fit on the counters.
    metrics: Vec<GpuMetric>,
    pub(super) interval: Duration,
    config: Option<PmConfig>,
    /// `None` if setting up or a later call failed.
    sampler: Option<PmSampler>,
    is_sampling: bool,
    /// Whether the next sample is the first since sampling was started, which covers the time before that.
    is_first: bool,
    samples: VecDeque<Sample>,
    /// The end of the last sample.
    reached: Option<Timestamp>,
    /// The end of the last sample before some were lost, until there is one again.
    lost_since: Option<Timestamp>,
    lost: u64,
    /// The metrics that were left out, and why.
    left_out: Vec<String>,
    /// Why the interval is longer than requested.
    widened: Option<String>,
    /// The failures in windows that have not been taken.
    failures: Vec<String>,
    /// Why there is no sampler.
    unusable: Option<String>,
}

struct Sample {
    start: Timestamp,
    end: Timestamp,
    values: Box<[f64]>,
}

impl SampledDevice {
    /// The size of the hardware's buffer, which is in the host's memory. No run on an H200 has filled it, at 1 ms or at
    /// 100 µs (`counters` of `benches/gpu`).
    const BUFFER: usize = 32 << 20;
    /// How often samples are decoded, in intervals, and the least and the most of that. Each time, CUPTI's whole image
    /// is copied, which takes 17 KB a sample with six metrics and 40 with ten. So the image has little more room than
    /// is needed, and is decoded rarely.
    const DECODED: (u32, Duration, Duration) = (250, Duration::from_millis(10), Duration::from_millis(250));
    /// By how much decoding may be late before samples are lost: a share of the time between two times, and at least
    /// this long.
    const LATENESS: (f64, Duration) = (0.6, Duration::from_millis(35));
    /// The least room in an image, for long intervals.
    const MIN_ROOM: u32 = 16;

    /// How long after the window sampling may begin: starting takes 1 ms, and the first sample is dropped.
    const LATE: Duration = Duration::from_millis(10);

    pub(super) fn new(library: &'static Library, id: DeviceId, settings: &Counters) -> Self {
        let interval = settings.interval.max(Counters::MIN_INTERVAL);
        let widened = (interval > settings.interval)
            .then(|| format!("the interval was widened to {interval:?}, the shortest that can be decoded"));
        let mut device = Self {
            id,
            metrics: Vec::new(),
            interval,
            config: None,
            sampler: None,
            is_sampling: false,
            is_first: true,
            samples: VecDeque::new(),
            reached: None,
            lost_since: None,
            lost: 0,
            left_out: Vec::new(),
            widened,
            failures: Vec::new(),
            unusable: None,
        };
        if let Err(problem) = device.configure(library, settings) {
            device.fail(problem);
        }
        device
    }

    /// Ends sampling because of this. It is set up again for the next window, unless it could not be configured.
    fn fail(&mut self, problem: String) {
        (self.sampler, self.is_sampling) = (None, false);
        self.unusable = Some(problem.clone());
        self.add_failure(problem);
    }

    fn add_failure(&mut self, problem: String) {
        if !self.failures.contains(&problem) {
            self.failures.push(problem);
        }
    }

    fn configure(&mut self, library: &'static Library, settings: &Counters) -> Result<(), String> {
        let cupti = &library.cupti;
        let initialized = cupti.profiler_initialize().or_else(|error| match error.code() {
            // If CUPTI was detached, by whomever, it has to be attached again first, which the first activity does.
            Some(result::NOT_INITIALIZED) => {
                cupti.activity_enable(kind::OVERHEAD)?;
                cupti.activity_disable(kind::OVERHEAD)?;
                cupti.profiler_initialize()
            }
            _ => Err(error),
        });
        initialized.map_err(|error| words(&error))?;
        if let Ok(Some(part)) = cupti.pm_sampling_problem(self.id.as_u32()) {
            return Err(format!("the counters of this GPU cannot be sampled: CUPTI does not support it ({part})"));
        }
        let device = PmDevice::new(cupti, self.id.as_u32()).map_err(|error| words(&error))?;
        // The outer error is that of a call, the inner one says why the metrics cannot be measured.
        let schedule = |metrics: &[GpuMetric]| match PmConfig::new(&device, metrics.iter().map(GpuMetric::name)) {
            Ok(config) if config.passes() == 1 => Ok(Ok(config)),
            Ok(_) => Ok(Err("it does not fit on the counters in one pass with the metrics before it")),
            Err(error) if error.code() == Some(result::INVALID_PARAMETER) => Ok(Err("this GPU does not have it")),
            Err(error) => Err(words(&error)),
        };
        if let Ok(config) = schedule(&settings.metrics)? {
            self.metrics.clone_from(&settings.metrics);
            self.config = Some(config);
            return self.enable();
        }
        // One by one, so that those that cannot be measured are named.
        for metric in &settings.metrics {
            self.metrics.push(metric.clone());
            match schedule(&self.metrics)? {
                Ok(config) => self.config = Some(config),
                Err(why) => {
                    self.metrics.pop();
                    self.left_out.push(format!("the metric {} is left out: {why}", metric.name()));
                }
            }
        }
        if self.config.is_none() {
            return Err("none of the metrics can be measured".to_owned());
        }
        self.enable()
    }

    /// How often samples are to be decoded.
    pub(super) fn decoded_every(&self) -> Duration {
        let (intervals, least, most) = Self::DECODED;
        (intervals * self.interval).clamp(least, most)
    }

    /// Sets up the hardware for the interval.
    fn enable(&mut self) -> Result<(), String> {
        let Some(config) = &self.config else { return Ok(()) };
        let nanos = u64::try_from(self.interval.as_nanos()).unwrap_or(u64::MAX);
        let ((share, least), every) = (Self::LATENESS, self.decoded_every());
        let time = every + every.mul_f64(share).max(least);
        let room = time.div_duration_f64(self.interval) as u32;
        let sampler = PmSampler::new(config, nanos, Self::BUFFER, room.max(Self::MIN_ROOM));
        self.sampler = Some(sampler.map_err(|error| words(&error))?);
        self.unusable = None;
        Ok(())
    }

    /// Sets up the hardware again, if it failed: another process may have released it meanwhile.
    pub(super) fn prepare(&mut self) {
        if self.sampler.is_none()
            && let Err(problem) = self.enable()
        {
            self.fail(problem);
        }
    }

    /// Starts sampling, unless that is done.
    pub(super) fn start(&mut self) {
        let Some(sampler) = self.sampler.as_mut().filter(|_| !self.is_sampling) else { return };
        match sampler.start() {
            Ok(()) => (self.is_sampling, self.is_first) = (true, true),
            Err(error) => self.fail(words(&error)),
        }
    }

    /// Stops sampling, if it was started, and decodes what is pending.
    pub(super) fn stop(&mut self, budget: &Budget) {
        let Some(sampler) = self.sampler.as_mut().filter(|_| self.is_sampling) else { return };
        let stopped = sampler.stop();
        self.is_sampling = false;
        self.decode(budget);
        if let Err(error) = stopped {
            self.fail(words(&error));
        }
    }

    pub(super) fn release(&mut self, budget: &Budget) {
        (self.sampler, self.config) = (None, None);
        budget.give_back(self.samples.len() * self.sample_bytes());
        self.samples.clear();
    }

    /// The bytes of a sample, here and in the trace.
    fn sample_bytes(&self) -> usize {
        size_of::<Sample>() + 2 * self.metrics.len() * size_of::<f64>() + size_of::<(Timestamp, Timestamp)>()
    }

    pub(super) fn decode(&mut self, budget: &Budget) {
        let (bytes, interval) = (self.sample_bytes(), self.interval);
        let Some(sampler) = &mut self.sampler else { return };
        let (samples, is_first, lost) = (&mut self.samples, &mut self.is_first, &mut self.lost);
        let (reached, lost_since, mut over_memory) = (&mut self.reached, &mut self.lost_since, false);
        let decoded = sampler.decode(|start, end, values| {
            if take(is_first) {
                return;
            }
            let (start, end) = (Timestamp::from_unix_nanos(start), Timestamp::from_unix_nanos(end));
            *reached = Some(end);
            *lost += lost_since.take().map_or(0, |since| count(since, start, interval));
            if budget.is_spent_at(usize::MAX) {
                over_memory = true;
                *lost += 1;
                return;
            }
            budget.take(bytes);
            samples.push_back(Sample { start, end, values: values.into() });
        });
        if over_memory {
            self.add_failure(
                "samples were lost, as there was no memory left: raise `memory_limit_bytes` or record fewer steps"
                    .to_owned(),
            );
        }
        if !matches!(decoded, Ok(Decoded { is_full: false, has_overflowed: false, .. })) {
            self.lost_since = self.lost_since.or(self.reached);
        }
        match decoded {
            Ok(decoded) if decoded.has_overflowed => self.widen(),
            Ok(decoded) if decoded.is_full => self.add_failure(
                "samples were lost, as decoding fell behind: sample less often with `Counters::every`".to_owned(),
            ),
            Ok(_) => {}
            Err(error) => self.fail(words(&error)),
        }
    }

    /// Sets up the hardware with a longer interval. After an overflow it must be set up again in any case.
    fn widen(&mut self) {
        let was_sampling = take(&mut self.is_sampling);
        self.sampler = None;
        self.interval = (self.interval * 2).min(Counters::MAX_INTERVAL);
        let interval = self.interval;
        self.widened = Some(format!("the GPU's buffer overflowed, so the interval was widened to {interval:?}"));
        match self.enable() {
            Ok(()) if was_sampling => self.start(),
            Ok(()) => {}
            Err(problem) => self.fail(problem),
        }
    }

    /// Whether the samples reach this moment, or will never.
    pub(super) fn reaches(&self, end: Timestamp) -> bool {
        !self.is_sampling || self.reached.is_some_and(|reached| reached >= end)
    }

    pub(super) fn take(&mut self, window: &Range<Timestamp>, budget: &Budget) -> GpuCounters {
        let bytes = self.sample_bytes();
        if let Some(since) = self.lost_since.take_if(|since| *since < window.end) {
            self.lost += count(since, window.end, self.interval);
        }
        let mut counters = GpuCounters {
            device: self.id,
            interval: self.interval,
            metrics: self.metrics.clone(),
            times: Vec::new(),
            values: Vec::new(),
            lost: take(&mut self.lost),
            problem: None,
        };
        for sample in self.samples.iter().take_while(|sample| sample.start < window.end) {
            if sample.end > window.start {
                counters.times.push((sample.start, sample.end));
                counters.values.extend_from_slice(&sample.values);
            }
        }
        let mut failures = take(&mut self.failures);
        if failures.is_empty() {
            failures.extend(self.unusable.clone());
        }
        if failures.is_empty() && counters.lost == 0 {
            failures.extend(self.late(&counters, window));
        }
        let problems: Vec<_> = self.left_out.iter().chain(&self.widened).chain(&failures).cloned().collect();
        counters.problem = (!problems.is_empty()).then(|| problems.join("; "));
        while self.samples.front().is_some_and(|sample| sample.end <= window.end) {
            self.samples.pop_front();
            budget.give_back(bytes);
        }
        counters
    }

    /// Returns that the samples begin late in the window, if so.
    fn late(&self, counters: &GpuCounters, window: &Range<Timestamp>) -> Option<String> {
        let Some((begin, _)) = counters.times.first() else {
            return Some("the window was over before the first sample: it is short, or they were set up late".into());
        };
        let late = begin.since(window.start);
        (late > Self::LATE + 2 * self.interval)
            .then(|| format!("sampling began {late:.0?} after the window, when the counters had been set up"))
    }
}

/// Returns how many samples there would have been between two moments: at least one.
fn count(from: Timestamp, to: Timestamp, interval: Duration) -> u64 {
    (to.since(from).div_duration_f64(interval).round() as u64).max(1)
}

/// Returns what a failure means, with what to change where somebody can.
fn words(error: &cupti_sys::Error) -> String {
    let known = match error.code() {
        None => "this CUPTI is older than 12.6, which is needed to sample counters",
        Some(result::NOT_INITIALIZED) => {
            "`libnvperf_host.so`, which belongs next to libcupti, is missing or cannot be loaded"
        }
        Some(result::HARDWARE_BUSY) => "another profiler samples the counters of this GPU",
        Some(result::INSUFFICIENT_PRIVILEGES | result::VIRTUALIZED_DEVICE_INSUFFICIENT_PRIVILEGES) => {
            "only the administrator may read this GPU's counters: run as root, add CAP_SYS_ADMIN, or set the driver's \
             option `NVreg_RestrictProfilingToAdminUsers=0`"
        }
        Some(result::MIG_DEVICE_NOT_SUPPORTED) => "the counters of a MIG instance cannot be sampled",
        Some(result::VIRTUALIZED_DEVICE_NOT_SUPPORTED) => "the counters of this virtual GPU cannot be sampled",
        Some(result::CONFIDENTIAL_COMPUTING_NOT_SUPPORTED) => {
            "counters cannot be sampled while confidential computing is on"
        }
        Some(result::WSL_DEVICE_NOT_SUPPORTED) => "counters cannot be sampled in WSL",
        Some(result::NOT_SUPPORTED) => "this GPU is too old: compute capability 7.5 is needed to sample counters",
        Some(_) => return error.to_string(),
    };
    format!("{known} ({error})")
}
