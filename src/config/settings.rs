//! The settings of all layers together, and the profiler that they describe.

use super::{
    layer::{CYCLE, Layer, Variables},
    parts::Parts,
    profiling::Profiling,
    run_folder::run_folder,
    values::{Export, Format, activity_name},
};
#[cfg(all(feature = "control", unix))]
use crate::control::Listen;
use crate::{
    activity::{Activities, Activity},
    builder::ProfilerBuilder,
    config_error::{ConfigError, Origin},
    flight::FlightRecorder,
    profiler::Profiler,
    sampling::Samples,
    schedule::Schedule,
    vitals::Vitals,
};
use std::{
    collections::BTreeMap,
    ffi::OsStr,
    fmt,
    path::{Path, PathBuf},
};

/// The settings of a profiler, from several layers.
///
/// A layer overrides those that were added before it, key by key. In the usual order, from low to high: defaults, file,
/// environment, command line, code. Only a schedule is more than one key: `steps` in a higher layer replaces the cycles
/// of a lower one, and the other way round.
///
/// ```
/// # use kernspan::{Profiler, config::Settings};
/// # use std::fs;
/// # let folder = tempfile::tempdir()?;
/// # let file = folder.path().join("train.yaml");
/// # fs::write(&file, "profiling: {wait: 5, warmup: 1, active: 3}\n")?;
/// let settings = Settings::new()
///     .with_file(&file)? // profiling: {wait: 5, warmup: 1, active: 3}
///     .with_variables([("KERNSPAN_SCHEDULE", "active=2")])?;
/// assert_eq!(settings.schedule().to_string(), "wait 5, warmup 1, active 2, repeat until the end");
/// assert_eq!(settings.origin("active").to_string(), "KERNSPAN_SCHEDULE");
/// let builder = settings.builder()?; // to be changed by code
/// # drop(builder);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Settings {
    profiling: Profiling,
    origins: BTreeMap<&'static str, Origin>,
}

/// The effective value of a setting, and where it came from.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Explained {
    /// The name of the setting.
    pub key: &'static str,
    /// Its value as text, as a variable would have it; empty if there is none.
    pub value: String,
    /// Where it came from.
    pub origin: Origin,
}

impl Settings {
    /// The folder that has a folder for each run, by default.
    pub const DIR: &'static str = "runs";

    /// Returns the defaults.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the settings of the environment variables, over those of the file that `KERNSPAN_CONFIG` names.
    ///
    /// # Errors
    ///
    /// If the file cannot be read, or a setting is unknown, has the wrong type or contradicts another.
    pub fn load() -> Result<Self, ConfigError> {
        Self::new().with_env()
    }

    /// Adds the settings of a file: TOML, YAML or JSON, by its ending. If it has a section `profiling`, other sections
    /// are ignored.
    ///
    /// # Errors
    ///
    /// If the file cannot be read, or a setting is unknown, has the wrong type or contradicts another.
    pub fn with_file(self, path: impl AsRef<Path>) -> Result<Self, ConfigError> {
        self.over(Layer::of_file(path.as_ref())?)
    }

    /// Adds settings that the program has read itself. Errors and [`explain`](Self::explain) call them `name`.
    ///
    /// # Errors
    ///
    /// If a setting contradicts another.
    pub fn with(self, profiling: Profiling, name: impl Into<String>) -> Result<Self, ConfigError> {
        let mut layer = Layer::default();
        layer.add(profiling, &Origin::Program { name: name.into() });
        self.over(layer)
    }

    /// Adds the settings of the environment variables, over those of the file that `KERNSPAN_CONFIG` names.
    ///
    /// # Errors
    ///
    /// Those of [`load`](Self::load).
    pub fn with_env(self) -> Result<Self, ConfigError> {
        self.with_variables(std::env::vars_os())
    }

    /// Adds the settings of these variables, as [`with_env`](Self::with_env) does. Those whose names do not begin with
    /// `KERNSPAN` are ignored.
    ///
    /// # Errors
    ///
    /// Those of [`load`](Self::load).
    pub fn with_variables<N: AsRef<OsStr>, V: AsRef<OsStr>>(
        self,
        variables: impl IntoIterator<Item = (N, V)>,
    ) -> Result<Self, ConfigError> {
        let owned = |(name, value): (N, V)| (name.as_ref().to_owned(), value.as_ref().to_owned());
        let Variables { file, layer } = Variables::read(variables.into_iter().map(owned))?;
        let settings = match file {
            Some(file) => self.with_file(file)?,
            None => self,
        };
        settings.over(layer)
    }

    /// Adds a layer.
    fn over(mut self, layer: Layer) -> Result<Self, ConfigError> {
        layer.check()?;
        let Layer { profiling, mut origins } = layer;
        let replaced: &[&'static str] = match &profiling.steps {
            Some(_) => &CYCLE,
            None if CYCLE.iter().any(|key| origins.contains_key(key)) => &["steps"],
            None => &[],
        };
        // An activity that this layer turns off.
        let memory_off = profiling.profile_memory == Some(false);
        for key in replaced {
            self.profiling.remove(key);
            self.origins.remove(key);
        }
        self.profiling.take(profiling, |_| ());
        self.origins.append(&mut origins);
        if let (true, Some(activities)) = (memory_off, &mut self.profiling.activities) {
            activities.retain(|activity| *activity != Activity::Memory);
        }
        Ok(self)
    }

    /// Checks that the settings make sense together.
    ///
    /// # Errors
    ///
    /// If a setting contradicts another.
    pub fn check(&self) -> Result<(), ConfigError> {
        let fault = |key: &str, problem: String| Err(ConfigError::new(self.origin(key), problem));
        if let (None, Some(key)) = (self.profiling.active, CYCLE.iter().find(|key| self.origins.contains_key(**key))) {
            let problem = format!("`{key}` is set, but not `active`: say how many steps of each cycle are recorded");
            return fault(key, problem);
        }
        if let Err(error) = self.schedule().check() {
            return fault("active", error.to_string());
        }
        if self.profiling.flight_slow_step.is_some() && self.profiling.flight_recorder.is_none() {
            let problem = "`flight_slow_step` needs `flight_recorder`: say how much is kept".to_owned();
            return fault("flight_slow_step", problem);
        }
        if self.profiling.flight_recorder.is_some_and(|length| FlightRecorder::from(length).check().is_err()) {
            return fault("flight_recorder", "`flight_recorder` is 0, so nothing would be kept".to_owned());
        }
        let needs = |key: &str, activity| match self.activities().contains(&activity) {
            true => Ok(()),
            false => {
                let name = activity_name(activity);
                fault(key, format!("`{key}` needs the activity `{name}`: add it to `activities`"))
            }
        };
        if self.profiling.heap_lines == Some(true) {
            needs("heap_lines", Activity::Heap)?;
        }
        for key in Parts::NEED_SAMPLES.iter().filter(|key| self.origins.contains_key(**key)) {
            needs(key, Activity::Samples)?;
        }
        for key in Parts::NEED_VITALS.iter().filter(|key| self.origins.contains_key(**key)) {
            needs(key, Activity::Vitals)?;
        }
        self.parts().map(drop)
    }

    pub(super) fn parts(&self) -> Result<Parts, ConfigError> {
        Parts::of(&self.profiling, &|key| self.origin(key))
    }

    /// Returns the settings that some layer has set.
    pub fn profiling(&self) -> &Profiling {
        &self.profiling
    }

    /// Returns where a setting came from.
    pub fn origin(&self, key: &str) -> Origin {
        self.origins.get(key).cloned().unwrap_or_default()
    }

    /// Whether the profiler is on: as `enabled` and `KERNSPAN` say, or else if anything is set.
    pub fn is_enabled(&self) -> bool {
        let is_asked = || self.origins.keys().any(|key| *key != "control") || self.has_control();
        self.profiling.enabled.unwrap_or_else(is_asked)
    }

    /// Whether the running program can be asked from outside.
    fn has_control(&self) -> bool {
        self.profiling.control == Some(true)
    }

    /// Whether windows are recorded only when somebody or something asks for them.
    fn records_on_demand(&self) -> bool {
        self.has_control() || self.profiling.flight_recorder.is_some()
    }

    /// The reason why the profiler is off.
    fn why_off(&self) -> String {
        match (self.profiling.enabled, self.origin("enabled")) {
            (None, _) => "no setting asks for it: set KERNSPAN=on".to_owned(),
            (Some(_), Origin::Variable { name }) => format!("{name}=off"),
            (Some(_), origin) => format!("`enabled` is false, {origin}"),
        }
    }

    /// Returns the schedule. By default, five steps wait, one warms up and three are recorded, once. If any number of
    /// the schedule is set, the others are PyTorch's defaults: 0.
    pub fn schedule(&self) -> Schedule {
        let Profiling { skip_first, skip_first_wait, wait, warmup, active, repeat, steps, .. } = &self.profiling;
        let is_cycle = CYCLE.iter().any(|key| self.origins.contains_key(key));
        match (steps, is_cycle) {
            (Some(steps), _) => steps.schedule(),
            (None, true) => Schedule::new()
                .skip_first(skip_first.unwrap_or(0))
                .skip_first_wait(skip_first_wait.unwrap_or(false))
                .wait(wait.unwrap_or(0))
                .warmup(warmup.unwrap_or(0))
                .active(active.unwrap_or(1))
                .repeat(repeat.unwrap_or(0)),
            // Nothing is recorded until somebody asks for it.
            (None, false) if self.records_on_demand() => Schedule::manual(),
            (None, false) => Schedule::new().wait(5).warmup(1).active(3).repeat(1),
        }
    }

    /// Returns the activities that are recorded.
    pub fn activities(&self) -> Vec<Activity> {
        let activities = self.profiling.activities.clone();
        let mut activities = activities.unwrap_or_else(|| Activities::DEFAULT.to_vec());
        if self.profiling.profile_memory == Some(true) && !activities.contains(&Activity::Memory) {
            activities.push(Activity::Memory);
        }
        activities
    }

    fn exports(&self) -> Vec<Export> {
        self.profiling.export.clone().unwrap_or_else(|| [Format::Chrome, Format::Html].map(Export::new).to_vec())
    }

    fn dir(&self) -> PathBuf {
        self.profiling.dir.clone().unwrap_or_else(|| Self::DIR.into())
    }

    /// Returns the folders that files are written to: [`dir`](Profiling::dir), if any format goes there, and those of
    /// single formats.
    pub fn folders(&self) -> Vec<PathBuf> {
        let mut folders: Vec<_> = self.exports().into_iter().map(|it| it.dir.unwrap_or_else(|| self.dir())).collect();
        folders.sort();
        folders.dedup();
        folders
    }

    /// Returns a builder with these settings, for code that changes them or adds its own exporters.
    ///
    /// # Errors
    ///
    /// If a setting contradicts another, or needs a feature that is off.
    pub fn builder(&self) -> Result<ProfilerBuilder, ConfigError> {
        self.check()?;
        let profiling = &self.profiling;
        let mut builder = Profiler::builder()
            .schedule(self.schedule())
            .activities(self.activities())
            .backtraces(profiling.with_stack.unwrap_or(false))
            .heap_lines(profiling.heap_lines.unwrap_or(false))
            .print_report(profiling.print_report.unwrap_or(false));
        if let Some(span) = &profiling.step_on {
            builder = builder.step_on(span);
        }
        builder = self.parts()?.add_to(builder)?;
        #[cfg(all(feature = "nvtx", unix))]
        if let Some(ranges) = profiling.nvtx {
            builder = builder.nvtx(ranges);
        }
        // Not in `check`: tools check files for programs with other features.
        if profiling.nvtx == Some(true) && !cfg!(all(feature = "nvtx", unix)) {
            let problem = "`nvtx` needs the feature `nvtx` of kernspan, on Unix".to_owned();
            return Err(ConfigError::new(self.origin("nvtx"), problem));
        }
        if let Some(bytes) = profiling.memory_limit_bytes {
            builder = builder.memory_limit_bytes(usize::try_from(bytes).unwrap_or(usize::MAX));
        }
        if let Some(bytes) = profiling.disk_limit_bytes {
            builder = builder.disk_limit_bytes(bytes);
        }
        #[cfg(all(feature = "signals", unix))]
        if profiling.save_on_exit == Some(true) {
            builder = builder.save_on_exit();
        }
        #[cfg(all(feature = "control", unix))]
        if self.has_control() {
            builder = builder.listen(Listen::default());
        }
        if let Some(length) = profiling.flight_recorder {
            let recorder = FlightRecorder::from(length);
            let slow = profiling.flight_slow_step;
            builder = builder.flight_recorder(slow.map_or(recorder.clone(), |slow| recorder.on_slow_step(slow)));
        }
        let folder = run_folder(&self.dir());
        builder = self.exports().iter().fold(builder, |builder, export| export.add_to(builder, &folder));
        Ok(if self.is_enabled() { builder } else { builder.off_because(self.why_off()) })
    }

    /// Returns the effective value of each setting, and where it came from.
    pub fn explain(&self) -> Vec<Explained> {
        let explain = |key: &'static str| Explained {
            key,
            value: self.profiling.text(key).unwrap_or_else(|| self.default_text(key)),
            origin: self.origin(key),
        };
        Profiling::KEYS.iter().map(|key| explain(key.name)).collect()
    }

    fn default_text(&self, key: &str) -> String {
        let is_set = self.profiling.steps.is_some() || CYCLE.iter().any(|key| self.origins.contains_key(key));
        // Defaults of the schedule are those of PyTorch as soon as a part of it is set.
        let cycle = |by_default: &str| match (&self.profiling.steps, is_set) {
            (None, true) => "0".to_owned(),
            (None, false) if !self.records_on_demand() => by_default.to_owned(),
            _ => String::new(),
        };
        match key {
            "enabled" => self.is_enabled().to_string(),
            "wait" => cycle("5"),
            "warmup" => cycle("1"),
            "active" => cycle("3"),
            "repeat" => cycle("1"),
            "skip_first" => cycle("0"),
            "profile_memory" => self.activities().contains(&Activity::Memory).to_string(),
            "skip_first_wait" | "with_stack" | "heap_lines" | "nvtx" | "print_report" | "save_on_exit" | "control" => {
                "false".to_owned()
            }
            "record_shapes" | "with_flops" => "true".to_owned(),
            "sample_hertz" if self.activities().contains(&Activity::Samples) => Samples::HERTZ.to_string(),
            "vitals_interval" if self.activities().contains(&Activity::Vitals) => format!("{:?}", Vitals::EVERY),
            "dir" => Self::DIR.to_owned(),
            "memory_limit_bytes" => ProfilerBuilder::MEMORY_LIMIT_BYTES.to_string(),
            "activities" => {
                Profiling { activities: Some(self.activities()), ..Profiling::default() }.text(key).unwrap_or_default()
            }
            "export" => {
                Profiling { export: Some(self.exports()), ..Profiling::default() }.text(key).unwrap_or_default()
            }
            _ => String::new(),
        }
    }
}

impl fmt::Display for Explained {
    /// Writes `active = 3 (train.yaml:4:3)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { key, value, origin } = self;
        match value.as_str() {
            "" => write!(f, "{key} is not set"),
            value => write!(f, "{key} = {value} ({origin})"),
        }
    }
}
