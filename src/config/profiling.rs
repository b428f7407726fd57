//! The settings of a profiler as a section of a configuration file.

use super::{
    values::{Export, StepRange, activity_name},
    visitors::{
        read_activities, read_bytes, read_duration, read_exports, read_texts, write_activities, write_duration,
    },
};
use crate::{activity::Activity, cpu_time::CpuTime, flight::FlightLength, request::StepCondition};
use serde::{Deserialize, Serialize};
use std::{path::PathBuf, time::Duration};

/// A setting, for documentation and the command line.
#[derive(Debug)]
pub(super) struct KeyInfo {
    pub(super) name: &'static str,
    /// The name of its option, without dashes.
    #[cfg_attr(not(feature = "clap"), expect(dead_code, reason = "only the command line has options"))]
    pub(super) option: &'static str,
    /// An example of a value.
    #[cfg_attr(not(feature = "clap"), expect(dead_code, reason = "only the command line shows it"))]
    pub(super) value: &'static str,
    #[cfg_attr(not(feature = "clap"), expect(dead_code, reason = "only the command line shows it"))]
    pub(super) help: &'static str,
}

/// Makes a struct of optional settings and the functions that go through all of them, so that none can be forgotten.
macro_rules! settings {
    ($(#[$of_struct:meta])* $name:ident {
        $($(#[$of_field:meta])* $key:ident: $type:ty = $value:literal, $help:literal,)*
    }) => {
        $(#[$of_struct])*
        pub struct $name {
            $(
                #[doc = $help]
                $(#[$of_field])*
                #[serde(skip_serializing_if = "Option::is_none")]
                pub $key: Option<$type>,
            )*
        }

        impl $name {
            /// All settings.
            pub(super) const KEYS: &'static [KeyInfo] = &[$(KeyInfo {
                name: stringify!($key),
                option: concat!("profiling.", stringify!($key)),
                value: $value,
                help: $help,
            },)*];

            /// Takes over the settings that another has, and calls a function with the name of each.
            pub(super) fn take(&mut self, other: Self, mut taken: impl FnMut(&'static str)) {
                $(if other.$key.is_some() {
                    self.$key = other.$key;
                    taken(stringify!($key));
                })*
            }

            /// Removes a setting.
            pub(super) fn remove(&mut self, key: &str) {
                match key {
                    $(stringify!($key) => self.$key = None,)*
                    _ => {}
                }
            }

            /// Returns the value of a setting as text.
            pub(super) fn text(&self, key: &str) -> Option<String> {
                match key {
                    $(stringify!($key) => self.$key.as_ref().map(SettingText::setting_text),)*
                    _ => None,
                }
            }
        }
    };
}

settings! {
    /// The settings of a profiler, as a section of a configuration file; all are optional.
    ///
    /// Embed it in a program's own configuration, or let [`Settings`](super::Settings) read it from a file. Unknown
    /// keys are errors. [`Settings::with_env`](super::Settings::with_env) lets variables override it.
    ///
    /// ```
    /// use kernspan::config::{Profiling, Settings};
    ///
    /// #[derive(serde::Deserialize)]
    /// struct Config {
    ///     #[serde(default)]
    ///     profiling: Profiling,
    /// }
    ///
    /// let text = r#"{"profiling": {"wait": 5, "warmup": 1, "active": 3, "activities": ["cpu", "cuda"]}}"#;
    /// let config: Config = serde_json::from_str(text)?;
    /// assert_eq!(config.profiling.active, Some(3));
    /// let settings = Settings::new().with(config.profiling, "config.json")?;
    /// assert_eq!(settings.schedule().to_string(), "wait 5, warmup 1, active 3, repeat until the end");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
    #[serde(default, deny_unknown_fields)]
    #[non_exhaustive]
    Profiling {
        enabled: bool = "true|false", "Whether anything is recorded. By default, if any setting is set.",
        skip_first: u64 = "STEPS", "Steps to skip at the beginning of the run.",
        skip_first_wait: bool = "true|false", "Whether the first cycle skips its wait.",
        wait: u64 = "STEPS", "Steps at the start of each cycle in which nothing happens.",
        warmup: u64 = "STEPS", "Steps after the wait in which the profiler prepares to record.",
        active: u64 = "STEPS", "Steps of each cycle that are recorded.",
        repeat: u64 = "CYCLES", "The number of cycles; 0 for no limit.",
        steps: StepRange = "FROM..TO", "A range of steps to record instead of cycles.",
        step_on: String = "SPAN", "The name of a span that ends a step when it closes.",
        #[serde(deserialize_with = "read_activities", serialize_with = "write_activities")]
        activities: Vec<Activity> = "cpu,cuda", "The activities that are recorded.",
        record_shapes: bool = "true|false", "No effect: shapes are always recorded.",
        profile_memory: bool = "true|false", "Whether GPU memory is recorded.",
        with_stack: bool = "true|false", "Whether a backtrace is taken at every span.",
        with_flops: bool = "true|false", "No effect: FLOPs are always counted.",
        heap_lines: bool = "true|false", "Whether the lines that allocate on the heap are recorded.",
        sample_hertz: u64 = "HERTZ", "How often the call stack of a running thread is sampled, per second.",
        #[serde(deserialize_with = "read_duration", serialize_with = "write_duration")]
        vitals_interval: Duration = "TIME", "The time between two readings of vital signs.",
        #[serde(deserialize_with = "read_texts")]
        vitals_thresholds: Vec<String> = "SIGN > VALUE,…", "Thresholds of vital signs.",
        carbon_intensity: f64 = "G/KWH", "Grams of carbon dioxide for each kilowatt-hour.",
        energy_price: f64 = "PRICE", "The price of a kilowatt-hour.",
        cpu_time: CpuTime = "steps|spans", "Where CPU time is read.",
        nvtx: bool = "true|false", "Whether spans are NVTX ranges for Nsight Systems and Nsight Compute.",
        #[serde(alias = "on_trace_ready", deserialize_with = "read_exports")]
        export: Vec<Export> = "chrome,html", "The formats of the exported traces.",
        dir: PathBuf = "FOLDER", "The folder that has a folder for each run.",
        #[serde(deserialize_with = "read_bytes")]
        disk_limit_bytes: u64 = "BYTES", "The most bytes that the files of windows take.",
        #[serde(deserialize_with = "read_bytes")]
        memory_limit_bytes: u64 = "BYTES", "The most bytes that windows take until they have been exported.",
        print_report: bool = "true|false", "Whether the report is printed if the profiler is dropped.",
        save_on_exit: bool = "true|false", "Whether the recording is saved at Ctrl-C and exit.",
        control: bool = "true|false", "Whether the running program can be asked from outside.",
        flight_recorder: FlightLength = "STEPS|TIME", "How much of the recent past is kept.",
        flight_slow_step: StepCondition = "CONDITION", "The condition of a step that writes what is kept.",
        #[serde(deserialize_with = "read_texts")]
        request_on: Vec<String> = "SPAN,…", "The names of spans that are requests.",
        #[serde(deserialize_with = "read_texts")]
        slo: Vec<String> = "PERCENT of SPAN within TIME,…", "Service level objectives.",
        request_log: PathBuf = "FILE", "The file that lines about requests are appended to.",
    }
}

/// A value as text, as a variable would have it.
trait SettingText {
    fn setting_text(&self) -> String;
}

macro_rules! setting_text {
    ($($type:ty: $value:ident => $text:expr;)*) => {
        $(impl SettingText for $type {
            fn setting_text(&self) -> String {
                let $value = self;
                $text
            }
        })*
    };
}

setting_text! {
    bool: value => value.to_string();
    u64: value => value.to_string();
    f64: value => value.to_string();
    String: value => value.clone();
    PathBuf: value => value.display().to_string();
    StepRange: value => value.to_string();
    Duration: value => format!("{value:?}");
    FlightLength: value => value.to_string();
    StepCondition: value => value.to_string();
    CpuTime: value => value.to_string();
    Vec<String>: value => value.join(",");
    Vec<Activity>: value => value.iter().map(|activity| activity_name(*activity)).collect::<Vec<_>>().join(",");
    Vec<Export>: value => value.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
}
