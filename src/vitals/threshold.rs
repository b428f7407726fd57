//! Thresholds of vital signs, and the watch that warns once for each.

use crate::{
    analysis::{VitalSign, VitalSigns, VitalSubject, VitalUnit, signs_of},
    trace::DeviceId,
};
use std::{fmt, str::FromStr, sync::Arc, time::Duration};

/// A vital sign and the value above which a warning is due.
///
/// It is written as `machine.cpu > 90%` or, for all GPUs, as `gpu.memory > 90%`; `gpu0.memory` is one GPU. Values have
/// the sign's unit: percent, bytes, bytes per second, hertz, watts or degrees Celsius.
///
/// ```
/// use kernspan::vitals::Threshold;
///
/// let threshold: Threshold = "gpu.temperature > 85".parse()?;
/// assert_eq!(threshold.to_string(), "gpu.temperature > 85.0 °C");
/// assert!("cpu > 90".parse::<Threshold>().is_err(), "of the process or of the machine?");
/// # Ok::<(), String>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Threshold {
    subject: VitalSubject,
    /// Whether it is for all GPUs, whatever the number of the one in `subject`.
    any_gpu: bool,
    key: &'static str,
    unit: VitalUnit,
    limit: f64,
    lasting: Duration,
}

/// A threshold that was crossed.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Crossing {
    /// The threshold.
    pub threshold: Threshold,
    /// The vital sign, with the GPU if there are several.
    pub sign: VitalSign,
    /// Its value.
    pub value: f64,
    /// The number of the step at that moment.
    pub step: u64,
}

/// A function that is called when a threshold is crossed.
pub(super) type Hook = Arc<dyn Fn(&Crossing) + Send + Sync>;

impl Threshold {
    /// How long the default thresholds have to be exceeded: a training has short peaks at its beginning and whenever it
    /// saves, and a warning about these would be noise.
    pub const LASTING: Duration = Duration::from_secs(10);

    /// Returns the default thresholds: 90 % of the CPU and the memory of the machine, of its limits in a container, and
    /// of each GPU's memory, and 80 % of the time of a disk, each for [`Self::LASTING`].
    #[must_use]
    pub fn defaults() -> Vec<Self> {
        let all = [
            "machine.cpu > 90%",
            "machine.memory > 90%",
            "machine.disk_busy > 80%",
            "container.cpu > 90%",
            "container.memory > 90%",
            "gpu.memory > 90%",
        ];
        all.iter().filter_map(|text| text.parse::<Self>().ok()).map(|it| it.lasting(Self::LASTING)).collect()
    }

    /// Sets how long the value has to be exceeded, in all readings of that time. By default, one reading is enough.
    #[must_use]
    pub fn lasting(mut self, time: Duration) -> Self {
        self.lasting = time;
        self
    }

    /// Returns the value that must not be exceeded.
    #[must_use]
    pub fn limit(&self) -> f64 {
        self.limit
    }

    pub(super) fn is_of(&self, sign: VitalSign) -> bool {
        let is_gpu = |subject| matches!(subject, VitalSubject::Gpu(_));
        let same_subject = sign.subject() == self.subject || self.any_gpu && is_gpu(sign.subject());
        same_subject && sign.key() == self.key
    }

    pub(super) fn is_of_same(&self, other: &Self) -> bool {
        (self.subject, self.any_gpu, self.key) == (other.subject, other.any_gpu, other.key)
    }
}

impl FromStr for Threshold {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let problem = || format!("`{text}` is not a threshold: write `machine.cpu > 90%` or `gpu.memory > 90%`");
        let (sign, limit) = text.split_once('>').ok_or_else(problem)?;
        let (subject, key) = sign.trim().split_once('.').ok_or_else(problem)?;
        let (subject, any_gpu) = match subject {
            "process" => (VitalSubject::Process, false),
            "container" => (VitalSubject::Container, false),
            "machine" => (VitalSubject::Machine, false),
            "gpu" => (VitalSubject::Gpu(DeviceId::default()), true),
            gpu => {
                let number = gpu.strip_prefix("gpu").and_then(|number| number.parse().ok());
                (VitalSubject::Gpu(DeviceId::new(number.ok_or_else(problem)?)), false)
            }
        };
        let known = signs_of(subject);
        let info = known.iter().find(|info| info.key == key).ok_or_else(|| {
            let keys: Vec<_> = known.iter().map(|info| info.key).collect();
            format!("unknown vital sign `{}`: known are {}", sign.trim(), keys.join(", "))
        })?;
        let limit: f64 = limit.trim().trim_end_matches('%').trim_end().parse().map_err(|_| problem())?;
        let limit = Some(limit).filter(|limit| limit.is_finite()).ok_or_else(problem)?;
        Ok(Self { subject, any_gpu, key: info.key, unit: info.unit, limit, lasting: Duration::ZERO })
    }
}

impl fmt::Display for Threshold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.any_gpu {
            true => f.write_str("gpu")?,
            false => write!(f, "{}", self.subject)?,
        }
        write!(f, ".{} > {}", self.key, self.unit.format(self.limit))
    }
}

impl fmt::Display for Crossing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { threshold, sign, value, step } = self;
        write!(f, "{sign} is {} at step {step}: over the threshold {threshold}", sign.unit().format(*value))?;
        match threshold.lasting {
            Duration::ZERO => Ok(()),
            lasting => write!(f, " for {lasting:?}"),
        }
    }
}

/// Compares readings with thresholds, and warns once for each threshold.
pub(super) struct ThresholdWatch {
    hook: Option<Hook>,
    /// Each threshold that has not been crossed, and since when each sign that it is for has been above it.
    waiting: Vec<(Threshold, Vec<(VitalSign, Duration)>)>,
    /// All thresholds.
    thresholds: Vec<Threshold>,
}

impl ThresholdWatch {
    pub(super) fn new(thresholds: Vec<Threshold>, hook: Option<Hook>) -> Self {
        Self { hook, waiting: thresholds.iter().map(|it| (it.clone(), Vec::new())).collect(), thresholds }
    }

    /// Returns the limit of a sign, that of its own GPU before that of all GPUs.
    pub(super) fn limit(&self, sign: VitalSign) -> Option<f64> {
        let of_sign = self.thresholds.iter().filter(|it| it.is_of(sign));
        of_sign.min_by_key(|it| it.any_gpu).map(Threshold::limit)
    }

    /// Warns of the thresholds that a reading exceeds for the first time.
    pub(super) fn look(&mut self, signs: &VitalSigns, at: Duration, step: u64) {
        let hook = self.hook.as_deref();
        self.waiting.retain_mut(|(threshold, since)| {
            let above = signs.values().filter(|(sign, value)| threshold.is_of(*sign) && *value > threshold.limit);
            let above: Vec<_> = above.collect();
            since.retain(|(sign, _)| above.iter().any(|(it, _)| it == sign));
            for (sign, value) in above {
                let first = since.iter().find(|(it, _)| *it == sign).map_or(at, |(_, first)| *first);
                if at.saturating_sub(first) >= threshold.lasting {
                    let crossing = Crossing { threshold: threshold.clone(), sign, value, step };
                    tracing::warn!("kernspan: {crossing}");
                    hook.iter().for_each(|hook| hook(&crossing));
                    return false;
                }
                if first == at {
                    since.push((sign, at));
                }
            }
            true
        });
    }
}

#[cfg(test)]
mod tests {
    use super::{Threshold, ThresholdWatch};
    use crate::{
        analysis::{GpuVitals, MachineVitals, VitalSigns},
        trace::DeviceId,
    };
    use std::{
        sync::{Arc, Mutex},
        time::Duration,
    };

    fn signs(cpu: f64, gpus: [f64; 2]) -> VitalSigns {
        let gpu = |(id, memory)| GpuVitals { device: DeviceId::new(id), memory: Some(memory), ..GpuVitals::default() };
        let machine = MachineVitals { cpu: Some(cpu), ..MachineVitals::default() };
        VitalSigns { machine, gpus: (0..).zip(gpus).map(gpu).collect(), ..VitalSigns::default() }
    }

    #[test]
    fn thresholds_are_read_and_unknown_ones_explained() {
        for (text, expected) in [
            ("machine.cpu > 90%", "machine.cpu > 90.0 %"),
            ("gpu.memory>90", "gpu.memory > 90.0 %"),
            ("gpu3.power > 650", "gpu3.power > 650 W"),
            ("process.resident > 1073741824", "process.resident > 1.00 GiB"),
        ] {
            assert_eq!(text.parse::<Threshold>().map(|it| it.to_string()), Ok(expected.to_owned()));
        }
        for text in ["", "cpu > 90", "machine.cpu < 90", "machine.cpu > NaN", "gpux.memory > 1", "machine.cpu > a lot"]
        {
            assert!(text.parse::<Threshold>().is_err_and(|error| error.contains("is not a threshold")), "{text}");
        }
        let error = "container.cpus > 1".parse::<Threshold>().unwrap_err();
        assert!(error.starts_with("unknown vital sign `container.cpus`: known are cpu, cpu_limit"), "{error}");
        assert_eq!(Threshold::defaults().len(), 6);
    }

    #[test]
    fn a_threshold_warns_once_and_only_if_it_lasts() {
        let thresholds = ["machine.cpu > 90", "gpu.memory > 90", "gpu1.memory > 50"].map(|it| it.parse().unwrap());
        let [cpu, memory, one]: [Threshold; 3] = thresholds;
        let crossed = Arc::new(Mutex::new(Vec::new()));
        let hook = {
            let crossed = Arc::clone(&crossed);
            move |it: &super::Crossing| crossed.lock().unwrap().push((it.step, it.to_string()))
        };
        let thresholds = vec![cpu.lasting(Duration::from_secs(2)), memory, one];
        let mut watch = ThresholdWatch::new(thresholds, Some(Arc::new(hook)));
        let readings = [
            (95.0, [10.0, 60.0]),
            (96.0, [10.0, 60.0]),
            (90.0, [10.0, 60.0]),
            (97.0, [91.0, 60.0]),
            (98.0, [92.0, 60.0]),
            (99.0, [93.0, 60.0]),
            (99.5, [93.0, 60.0]),
        ];
        for (step, (cpu, gpus)) in (0..).zip(readings) {
            watch.look(&signs(cpu, gpus), Duration::from_secs(step), step);
        }
        let expected = [
            (0, "gpu1.memory is 60.0 % at step 0: over the threshold gpu1.memory > 50.0 %"),
            (3, "gpu0.memory is 91.0 % at step 3: over the threshold gpu.memory > 90.0 %"),
            (5, "machine.cpu is 99.0 % at step 5: over the threshold machine.cpu > 90.0 % for 2s"),
        ];
        assert_eq!(*crossed.lock().unwrap(), expected.map(|(step, text)| (step, text.to_owned())));
        let limits: Vec<_> = signs(0.0, [0.0; 2]).values().map(|(sign, _)| watch.limit(sign)).collect();
        assert_eq!(limits, [Some(90.0), Some(90.0), Some(50.0)]);
    }
}
