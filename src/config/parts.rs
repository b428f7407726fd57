//! The parts of a profiler that settings describe in text: samples, vital signs, CPU time, requests.

use super::profiling::Profiling;
#[cfg(feature = "serving")]
use crate::serving::{RequestKind, RequestLog, Slo};
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
    #[cfg(feature = "serving")]
    requests: (Vec<RequestKind>, Vec<Slo>, Option<RequestLog>),
    /// The first setting that asks for requests, and where it came from.
    #[cfg(not(feature = "serving"))]
    requests: Option<(&'static str, Origin)>,
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
            requests: requests(profiling, origin)?,
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
        #[cfg(feature = "serving")]
        {
            let (kinds, slos, log) = self.requests;
            builder = kinds.into_iter().fold(builder, ProfilerBuilder::request_on);
            builder = slos.into_iter().fold(builder, ProfilerBuilder::slo);
            builder = log.into_iter().fold(builder, ProfilerBuilder::request_log);
        }
        // Not when it is read: tools check files for programs with other features.
        #[cfg(not(feature = "serving"))]
        if let Some((key, origin)) = self.requests {
            return Err(ConfigError::new(origin, format!("`{key}` needs the feature `serving` of kernspan")));
        }
        Ok(builder)
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

#[cfg(feature = "serving")]
fn requests(
    profiling: &Profiling,
    origin: &dyn Fn(&str) -> Origin,
) -> Result<(Vec<RequestKind>, Vec<Slo>, Option<RequestLog>), ConfigError> {
    let Profiling { request_on, slo, request_log, .. } = profiling;
    let fault = |key: &'static str| move |problem: String| ConfigError::new(origin(key), problem);
    let kinds: Vec<_> = request_on.iter().flatten().map(|text| request_kind(text)).collect();
    RequestKind::check_all(&kinds).map_err(fault("request_on"))?;
    let slos: Result<Vec<Slo>, _> = slo.iter().flatten().map(|text| text.parse()).collect();
    let slos = slos.map_err(fault("slo"))?;
    Slo::check_all(&slos, &kinds).map_err(fault("slo"))?;
    if request_log.is_some() && kinds.is_empty() {
        return Err(fault("request_log")("`request_log` needs `request_on`: say which spans are requests".to_owned()));
    }
    Ok((kinds, slos, request_log.as_ref().map(RequestLog::to_file)))
}

#[cfg(not(feature = "serving"))]
fn requests(
    profiling: &Profiling,
    origin: &dyn Fn(&str) -> Origin,
) -> Result<Option<(&'static str, Origin)>, ConfigError> {
    let Profiling { request_on, slo, request_log, .. } = profiling;
    let set = [("request_on", request_on.is_some()), ("slo", slo.is_some()), ("request_log", request_log.is_some())];
    Ok(set.into_iter().find(|(_, is_set)| *is_set).map(|(key, _)| (key, origin(key))))
}

/// Reads the name of a span, or `request by route+model` with the fields that tell requests apart.
#[cfg(feature = "serving")]
fn request_kind(text: &str) -> RequestKind {
    let (name, fields) = text.split_once(" by ").unwrap_or((text, ""));
    let fields = fields.split('+').map(str::trim).filter(|field| !field.is_empty());
    fields.fold(RequestKind::new(name.trim()), RequestKind::by)
}
