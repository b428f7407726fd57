//! The parts of a profiler that settings describe in text: samples, vital signs, CPU time, requests.

use super::{profiling::Profiling, requests::RequestSettings};
use crate::{
    builder::ProfilerBuilder,
    config_error::{ConfigError, Origin},
    cpu_time::CpuTime,
    sampling::Samples,
    vitals::{Threshold, Vitals},
};

/// The parts of a profiler that settings describe in text.
#[derive(Debug)]
pub(super) struct Parts {
    samples: Option<Samples>,
    vitals: Option<Vitals>,
    cpu_time: Option<CpuTime>,
    requests: RequestSettings,
}

impl Parts {
    /// The settings that need the activity `samples`.
    pub(super) const NEED_SAMPLES: [&str; 1] = ["sample_hertz"];
    /// The settings that need the activity `vitals`.
    pub(super) const NEED_VITALS: [&str; 4] =
        ["vitals_interval", "vitals_thresholds", "carbon_intensity", "energy_price"];

    /// Reads the settings. `origin` says where each came from.
    pub(super) fn of(profiling: &Profiling, origin: &dyn Fn(&str) -> Origin) -> Result<Self, ConfigError> {
        Ok(Self {
            samples: samples(profiling, origin)?,
            vitals: vitals(profiling, origin)?,
            cpu_time: profiling.cpu_time,
            requests: RequestSettings::of(profiling, origin)?,
        })
    }

    pub(super) fn add_to(self, mut builder: ProfilerBuilder) -> Result<ProfilerBuilder, ConfigError> {
        if let Some(samples) = self.samples {
            builder = builder.samples(samples);
        }
        if let Some(vitals) = self.vitals {
            builder = builder.vitals(vitals);
        }
        if let Some(cpu_time) = self.cpu_time {
            builder = builder.cpu_time(cpu_time);
        }
        self.requests.add_to(builder)
    }
}

fn samples(profiling: &Profiling, origin: &dyn Fn(&str) -> Origin) -> Result<Option<Samples>, ConfigError> {
    let Some(hertz) = profiling.sample_hertz else { return Ok(None) };
    let samples = Samples::default().hertz(u32::try_from(hertz).unwrap_or(u32::MAX));
    samples.check().map_err(|problem| ConfigError::new(origin("sample_hertz"), problem))?;
    Ok(Some(samples))
}

fn vitals(profiling: &Profiling, origin: &dyn Fn(&str) -> Origin) -> Result<Option<Vitals>, ConfigError> {
    let Profiling { vitals_interval, vitals_thresholds, carbon_intensity, energy_price, .. } = profiling;
    let mut set = None;
    let mut change = |key: &str, change: &dyn Fn(Vitals) -> Result<Vitals, String>| {
        let changed = change(set.take().unwrap_or_default()).and_then(|vitals| vitals.check().map(|()| vitals));
        set = Some(changed.map_err(|problem| ConfigError::new(origin(key), problem))?);
        Ok(())
    };
    if let Some(interval) = vitals_interval {
        change("vitals_interval", &|vitals| Ok(vitals.every(*interval)))?;
    }
    for text in vitals_thresholds.iter().flatten() {
        change("vitals_thresholds", &|vitals| Ok(vitals.threshold(text.parse::<Threshold>()?)))?;
    }
    if let Some(grams) = carbon_intensity {
        let source = origin("carbon_intensity").to_string();
        change("carbon_intensity", &|vitals| Ok(vitals.carbon(*grams, &source)))?;
    }
    if let Some(price) = energy_price {
        change("energy_price", &|vitals| Ok(vitals.price(*price)))?;
    }
    Ok(set)
}

#[cfg(test)]
mod tests {
    use crate::config::Settings;

    #[test]
    fn vital_signs_and_cpu_time_are_set_as_text() {
        let variables = [
            ("KERNSPAN_ACTIVITIES", "cpu,vitals"),
            ("KERNSPAN_VITALS_THRESHOLDS", "machine.cpu > 50%, gpu.memory > 95%"),
            ("KERNSPAN_CARBON_INTENSITY", "85.5"),
            ("KERNSPAN_ENERGY_PRICE", "1"),
            ("KERNSPAN_CPU_TIME", "spans up to info"),
        ];
        let settings = Settings::new().with_variables(variables).unwrap();
        let text = |key: &str| settings.profiling().text(key).unwrap();
        let texts = ["vitals_thresholds", "carbon_intensity", "energy_price", "cpu_time"].map(text);
        assert_eq!(texts, ["machine.cpu > 50%,gpu.memory > 95%", "85.5", "1", "spans up to info"]);
        // As it was read, `Display` writes what is read again.
        assert_eq!(texts[3].parse(), Ok(settings.profiling().cpu_time.unwrap()));
        let parts = format!("{:?}", settings.parts().unwrap());
        assert!(parts.contains("limit: 50.0") && parts.contains("LevelFilter::INFO"), "{parts}");
    }
}
