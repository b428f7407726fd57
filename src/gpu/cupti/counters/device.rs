//! The hardware counters of one GPU: setting them up, and the samples that no window has taken yet.

use crate::{
    budget::Budget,
    gpu::{Counters, cupti::library::Library},
    trace::{DeviceId, GpuCounters, GpuMetric, Timestamp},
};
use cupti_sys::{Cupti, PmConfig, PmDevice, PmSampler, kind, result};
use std::{collections::VecDeque, ops::Range, time::Duration};

/// A GPU's counters.
pub(super) struct SampledDevice {
    pub(super) id: DeviceId,
    /// The metrics that fit on the counters.
    metrics: Vec<GpuMetric>,
    pub(super) interval: Duration,
    config: Option<PmConfig>,
    sampler: Option<PmSampler>,
    /// Whether samples are wanted.
    is_started: bool,
    /// Whether the next sample is the first since sampling was started, which covers the time before that.
    is_first: bool,
    samples: VecDeque<Sample>,
    lost: u64,
    problem: Option<String>,
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
    /// The least number of samples that can be decoded at once, and the time whose samples can be. If they are decoded
    /// later, samples are lost. A sample takes 17 KB in CUPTI's image with six metrics, and 40 with ten; all
    /// of it is copied each time.
    const AT_ONCE: (u32, Duration) = (256, Duration::from_millis(50));

    /// How long after the window sampling may begin: starting takes 1 ms, and the first sample is dropped.
    const LATE: Duration = Duration::from_millis(10);

    pub(super) fn new(library: &'static Library, id: DeviceId, settings: &Counters) -> Self {
        let interval = settings.interval.max(Counters::MIN_INTERVAL);
        let mut device = Self {
            id,
            metrics: Vec::new(),
            interval,
            config: None,
            sampler: None,
            is_started: false,
            is_first: true,
            samples: VecDeque::new(),
            lost: 0,
            problem: None,
        };
        if interval > settings.interval {
            device.add_problem(format!("the interval was widened to {interval:?}, the shortest that can be decoded"));
        }
        if let Err(problem) = device.configure(library, settings) {
            device.add_problem(problem);
        }
        device
    }

    fn add_problem(&mut self, problem: String) {
        match &mut self.problem {
            Some(before) if before.contains(&problem) => {}
            Some(before) => *before = format!("{before}; {problem}"),
            None => self.problem = Some(problem),
        }
    }

    fn configure(&mut self, library: &'static Library, settings: &Counters) -> Result<(), String> {
        let cupti = &library.cupti;
        initialize(cupti).map_err(|error| words(&error))?;
        if let Ok(Some(part)) = cupti.pm_sampling_problem(self.id.as_u32()) {
            return Err(format!("this GPU's counters cannot be sampled, because of its {part}"));
        }
        let device = PmDevice::new(cupti, self.id.as_u32()).map_err(|error| words(&error))?;
        let fits = |metrics: &[GpuMetric]| match PmConfig::new(&device, metrics.iter().map(GpuMetric::name)) {
            Ok(config) if config.passes() == 1 => Ok(Some(config)),
            Ok(_) => Ok(None),
            Err(error) if error.code() == Some(result::INVALID_PARAMETER) => Ok(None),
            Err(error) => Err(words(&error)),
        };
        let config = match fits(&settings.metrics)? {
            Some(config) => {
                self.metrics.clone_from(&settings.metrics);
                Some(config)
            }
            // One by one, so that those that do not fit are named.
            None => {
                let mut config = None;
                for metric in &settings.metrics {
                    self.metrics.push(metric.clone());
                    match fits(&self.metrics)? {
                        Some(fitting) => config = Some(fitting),
                        None => {
                            self.metrics.pop();
                            let name = metric.name();
                            self.add_problem(format!(
                                "the metric {name} is left out: this GPU does not have it, or not in one pass with \
                                 those before it"
                            ));
                        }
                    }
                }
                config
            }
        };
        self.config = Some(config.ok_or("none of the metrics can be measured")?);
        self.enable()
    }

    /// Sets up the hardware for the interval.
    fn enable(&mut self) -> Result<(), String> {
        let Some(config) = &self.config else { return Ok(()) };
        let nanos = u64::try_from(self.interval.as_nanos()).unwrap_or(u64::MAX);
        let (least, time) = Self::AT_ONCE;
        let at_once = u32::try_from(time.as_nanos() / self.interval.as_nanos().max(1)).unwrap_or(least).max(least);
        self.sampler = Some(PmSampler::new(config, nanos, Self::BUFFER, at_once).map_err(|error| words(&error))?);
        Ok(())
    }

    /// Starts sampling, unless that is done.
    pub(super) fn start(&mut self) {
        if !std::mem::replace(&mut self.is_started, true) {
            self.start_hardware();
        }
    }

    fn start_hardware(&mut self) {
        self.is_first = true;
        if let Some(Err(error)) = self.sampler.as_mut().map(PmSampler::start) {
            self.give_up(words(&error));
        }
    }

    /// Stops sampling, if it was started, and decodes what is pending.
    pub(super) fn stop(&mut self, budget: &Budget) {
        if !std::mem::take(&mut self.is_started) {
            return;
        }
        if let Some(Err(error)) = self.sampler.as_mut().map(PmSampler::stop) {
            self.give_up(words(&error));
        }
        self.decode(budget);
    }

    fn give_up(&mut self, problem: String) {
        self.add_problem(problem);
        self.sampler = None;
    }

    pub(super) fn release(&mut self) {
        (self.sampler, self.config) = (None, None);
    }

    /// The bytes of a sample, here and in the trace.
    fn sample_bytes(&self) -> usize {
        size_of::<Sample>() + 2 * self.metrics.len() * size_of::<f64>() + size_of::<(Timestamp, Timestamp)>()
    }

    pub(super) fn decode(&mut self, budget: &Budget) {
        let bytes = self.sample_bytes();
        let Some(sampler) = &mut self.sampler else { return };
        let (samples, is_first, lost) = (&mut self.samples, &mut self.is_first, &mut self.lost);
        let decoded = sampler.decode(|start, end, values| {
            if std::mem::take(is_first) {
                return;
            }
            if budget.is_spent_at(usize::MAX) {
                *lost += 1;
                return;
            }
            budget.take(bytes);
            let (start, end) = (Timestamp::from_unix_nanos(start), Timestamp::from_unix_nanos(end));
            samples.push_back(Sample { start, end, values: values.into() });
        });
        match decoded {
            Ok(decoded) if decoded.has_overflowed => {
                // The hardware must be set up again, so this is the moment for a longer interval.
                self.sampler = None;
                self.interval = (self.interval * 2).min(Counters::MAX_INTERVAL);
                let interval = self.interval;
                self.lost += 1;
                self.add_problem(format!("the GPU's buffer overflowed, so the interval was widened to {interval:?}"));
                match self.enable() {
                    Ok(()) if self.is_started => self.start_hardware(),
                    Ok(()) => {}
                    Err(problem) => self.give_up(problem),
                }
            }
            Ok(decoded) => self.lost += u64::from(decoded.is_full),
            Err(error) => self.give_up(words(&error)),
        }
    }

    /// Whether the samples reach this moment, or will never.
    pub(super) fn reaches(&self, end: Timestamp) -> bool {
        self.sampler.is_none() || self.samples.back().is_some_and(|sample| sample.end >= end)
    }

    pub(super) fn take(&mut self, window: &Range<Timestamp>, budget: &Budget) -> GpuCounters {
        let bytes = self.sample_bytes();
        let mut counters = GpuCounters {
            device: self.id,
            interval: self.interval,
            metrics: self.metrics.clone(),
            times: Vec::new(),
            values: Vec::new(),
            lost: std::mem::take(&mut self.lost),
            problem: self.problem.clone(),
        };
        for sample in self.samples.iter().take_while(|sample| sample.start < window.end) {
            if sample.end > window.start {
                counters.times.push((sample.start, sample.end));
                counters.values.extend_from_slice(&sample.values);
            }
        }
        let begin = counters.times.first().map_or(window.end, |&(start, _)| start);
        if self.sampler.is_some() && begin.since(window.start) > Self::LATE + 2 * self.interval {
            let late = format!(
                "sampling began {:.0?} after the window, when the counters had been set up",
                begin.since(window.start)
            );
            counters.problem = Some(counters.problem.map_or(late.clone(), |problem| format!("{problem}; {late}")));
        }
        while self.samples.front().is_some_and(|sample| sample.end <= window.end) {
            self.samples.pop_front();
            budget.give_back(bytes);
        }
        counters
    }
}

/// Initialises CUPTI's profiler. Once CUPTI has been detached from the process, as by an earlier kernspan, it must be
/// attached before that, which the first activity does.
fn initialize(cupti: &Cupti) -> Result<(), cupti_sys::Error> {
    match cupti.profiler_initialize() {
        Err(error) if error.code() == Some(result::NOT_INITIALIZED) => {
            cupti.activity_enable(kind::OVERHEAD)?;
            cupti.activity_disable(kind::OVERHEAD)?;
            cupti.profiler_initialize()
        }
        initialized => initialized,
    }
}

/// Returns what a failure means, with what to change where somebody can.
fn words(error: &cupti_sys::Error) -> String {
    let known = match error.code() {
        None => "this CUPTI is older than 12.6, which is needed to sample counters",
        Some(result::NOT_INITIALIZED) => {
            "`libnvperf_host.so`, which belongs next to libcupti, is missing or cannot be loaded"
        }
        Some(result::HARDWARE_BUSY) => "another process samples the counters of this GPU",
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
