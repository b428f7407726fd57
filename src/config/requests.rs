//! The settings of requests. They are checked by programs with the feature `serving`.

use super::profiling::Profiling;
#[cfg(feature = "serving")]
use crate::serving::{RequestKind, RequestLog, Slo};
use crate::{
    builder::ProfilerBuilder,
    config_error::{ConfigError, Origin},
};

/// What settings say about requests.
#[cfg(feature = "serving")]
#[derive(Debug)]
pub(super) struct RequestSettings {
    kinds: Vec<RequestKind>,
    slos: Vec<Slo>,
    log: Option<RequestLog>,
}

/// The first setting that asks for requests, and where it came from.
#[cfg(not(feature = "serving"))]
#[derive(Debug)]
pub(super) struct RequestSettings(Option<(&'static str, Origin)>);

#[cfg(feature = "serving")]
impl RequestSettings {
    pub(super) fn of(profiling: &Profiling, origin: &dyn Fn(&str) -> Origin) -> Result<Self, ConfigError> {
        let Profiling { request_on, slo, request_log, .. } = profiling;
        let fault = |key: &'static str| move |problem: String| ConfigError::new(origin(key), problem);
        let kinds: Vec<_> = request_on.iter().flatten().map(|text| kind(text)).collect();
        RequestKind::check_all(&kinds).map_err(fault("request_on"))?;
        let slos: Result<Vec<Slo>, _> = slo.iter().flatten().map(|text| text.parse()).collect();
        let slos = slos.map_err(fault("slo"))?;
        Slo::check_all(&slos, &kinds).map_err(fault("slo"))?;
        if request_log.is_some() && kinds.is_empty() {
            let problem = "`request_log` needs `request_on`: say which spans are requests";
            return Err(fault("request_log")(problem.to_owned()));
        }
        Ok(Self { kinds, slos, log: request_log.as_ref().map(RequestLog::to_file) })
    }

    pub(super) fn add_to(self, builder: ProfilerBuilder) -> Result<ProfilerBuilder, ConfigError> {
        let builder = self.kinds.into_iter().fold(builder, ProfilerBuilder::request_on);
        let builder = self.slos.into_iter().fold(builder, ProfilerBuilder::slo);
        Ok(self.log.into_iter().fold(builder, ProfilerBuilder::request_log))
    }
}

#[cfg(not(feature = "serving"))]
impl RequestSettings {
    pub(super) fn of(profiling: &Profiling, origin: &dyn Fn(&str) -> Origin) -> Result<Self, ConfigError> {
        let Profiling { request_on, slo, request_log, .. } = profiling;
        let set =
            [("request_on", request_on.is_some()), ("slo", slo.is_some()), ("request_log", request_log.is_some())];
        Ok(Self(set.into_iter().find(|(_, is_set)| *is_set).map(|(key, _)| (key, origin(key)))))
    }

    /// Fails if there are any. Settings that are only read do not: tools check files for programs with other features.
    pub(super) fn add_to(self, builder: ProfilerBuilder) -> Result<ProfilerBuilder, ConfigError> {
        let needs =
            |(key, origin)| ConfigError::new(origin, format!("`{key}` needs the feature `serving` of kernspan"));
        self.0.map(needs).map_or(Ok(builder), Err)
    }
}

/// Reads the name of a span, or `request by route+model` with the fields that tell requests apart.
#[cfg(feature = "serving")]
fn kind(text: &str) -> RequestKind {
    let (name, fields) = text.split_once(" by ").unwrap_or((text, ""));
    let fields = fields.split('+').map(str::trim).filter(|field| !field.is_empty());
    fields.fold(RequestKind::new(name.trim()), RequestKind::by)
}

#[cfg(all(test, feature = "serving"))]
mod tests {
    use crate::config::Settings;

    #[test]
    fn requests_and_their_objectives_are_set_as_text() {
        let with = |variables: &[(&'static str, &'static str)]| {
            let settings = Settings::new().with_variables(variables.iter().copied()).unwrap();
            settings.check().map(|()| settings).map_err(|error| error.to_string())
        };
        let kinds = ("KERNSPAN_REQUEST_ON", "request by route+model, health");
        let slo = ("KERNSPAN_SLO", "99% of request within 200ms,99.9 % of `health` without an error");
        let parts = format!("{:?}", with(&[kinds, slo]).unwrap().parts().unwrap());
        for part in [
            r#"name: "request", fields: ["route", "model"]"#,
            r#"name: "health", fields: []"#,
            "99 % of `request` within 200 ms",
            "99.9 % of `health` without an error",
        ] {
            assert!(parts.contains(part), "{part} is not in {parts}");
        }
        let cases = [
            (vec![slo], "KERNSPAN_SLO: no requests are called `request`: add `.request_on(\"request\")`"),
            (
                vec![kinds, ("KERNSPAN_SLO", "often")],
                "KERNSPAN_SLO: expected an objective, such as \"99% of request within 200ms\" or \"99.9% of request \
                 without an error\", found \"often\"",
            ),
            (
                vec![("KERNSPAN_REQUEST_LOG", "log.jsonl")],
                "KERNSPAN_REQUEST_LOG: `request_log` needs `request_on`: say which spans are requests",
            ),
            (vec![("KERNSPAN_REQUEST_ON", "a, b, a")], "KERNSPAN_REQUEST_ON: `a` is named twice"),
        ];
        for (variables, expected) in cases {
            assert_eq!(with(&variables).unwrap_err(), expected);
        }
    }
}
