//! One layer of settings: those of a file, or of all environment variables, with the origin of each.

use super::{
    decode::{DecodeError, decode},
    node::{Node, Position, Value},
    profiling::Profiling,
    spelling::{similar, suggestion},
};
use crate::{
    activity::Activity,
    config_error::{ConfigError, Origin},
};
use std::{
    collections::BTreeMap,
    ffi::{OsStr, OsString},
    fs,
    path::{Path, PathBuf},
};

/// The keys of a schedule in cycles.
pub(super) const CYCLE: [&str; 6] = ["skip_first", "skip_first_wait", "wait", "warmup", "active", "repeat"];
/// The section of a larger file that has the settings.
const SECTION: &str = "profiling";
/// Variables that are read elsewhere.
const OTHER_VARIABLES: [&str; 3] = ["KERNSPAN_CUPTI", "KERNSPAN_PRINTED", "KERNSPAN_RUN_ID"];

/// Settings, and where each came from.
#[derive(Debug, Default)]
pub(super) struct Layer {
    pub(super) profiling: Profiling,
    pub(super) origins: BTreeMap<&'static str, Origin>,
}

/// The environment variables of the profiler.
#[derive(Debug, Default)]
pub(super) struct Variables {
    /// The file that `KERNSPAN_CONFIG` names.
    pub(super) file: Option<PathBuf>,
    pub(super) layer: Layer,
}

impl Layer {
    /// Takes over settings that all come from one place.
    pub(super) fn add(&mut self, profiling: Profiling, origin: &Origin) {
        let Self { profiling: own, origins } = self;
        own.take(profiling, |key| drop(origins.insert(key, origin.clone())));
    }

    /// Reads a file.
    pub(super) fn of_file(path: &Path) -> Result<Self, ConfigError> {
        let at = |position| Origin::File { path: path.to_owned(), position };
        let cannot_read = |reason: &dyn std::fmt::Display| ConfigError::new(at(None), format!("cannot read: {reason}"));
        let parse = match path.extension().and_then(OsStr::to_str).map(str::to_lowercase).as_deref() {
            Some("toml") => Node::from_toml,
            Some("yaml" | "yml" | "json") => Node::from_yaml,
            _ => return Err(cannot_read(&"expected a name that ends with .yaml, .yml, .json or .toml")),
        };
        let text = fs::read_to_string(path).map_err(|error| cannot_read(&error))?;
        let root = parse(&text).map_err(|error| ConfigError::new(at(error.position), error.problem))?;
        let (node, is_section) = section(root);
        if let Value::Null = node.value {
            return Ok(Self::default());
        }
        let profiling: Profiling = decode(&node).map_err(|DecodeError { position, mut problem }| {
            if !is_section && problem.starts_with("unknown key") {
                problem += &without_section(&node, position);
            }
            ConfigError::new(at(position), problem)
        })?;
        let mut layer = Self { profiling: Profiling::default(), origins: BTreeMap::new() };
        layer.add(profiling, &at(None));
        let Value::Map(entries) = &node.value else { return Ok(layer) };
        for (key, _) in entries {
            let name = if key.name == "on_trace_ready" { "export" } else { key.name.as_str() };
            if let Some(origin) = layer.origins.get_mut(name) {
                *origin = at(key.position);
            }
        }
        Ok(layer)
    }

    /// Checks that no two settings of the layer contradict each other.
    pub(super) fn check(&self) -> Result<(), ConfigError> {
        let fault = |key: &str, problem: String| {
            Err(ConfigError::new(self.origins.get(key).cloned().unwrap_or_default(), problem))
        };
        let profiling = &self.profiling;
        if profiling.active == Some(0) {
            return fault("active", "`active` is 0, so no step would ever be recorded: use 1 or more".to_owned());
        }
        if let (Some(_), Some(cycle)) = (&profiling.steps, CYCLE.iter().find(|key| self.origins.contains_key(**key))) {
            let problem = format!("`steps` and `{cycle}` contradict each other: a range is not repeated; remove one");
            return fault("steps", problem);
        }
        let records_memory = profiling.activities.iter().flatten().any(|activity| *activity == Activity::Memory);
        if profiling.profile_memory == Some(false) && records_memory {
            let problem = "`profile_memory` is false, but `activities` has `memory`: remove one".to_owned();
            return fault("profile_memory", problem);
        }
        let exports = profiling.export.as_deref().unwrap_or_default();
        if let Some((_, twice)) = exports.iter().enumerate().find(|(index, it)| exports[..*index].contains(it)) {
            return fault("export", format!("`export` has {twice} twice"));
        }
        if profiling.save_on_exit == Some(true) && !cfg!(all(feature = "signals", unix)) {
            return fault("save_on_exit", "`save_on_exit` needs the feature `signals` of kernspan, on Unix".to_owned());
        }
        if profiling.control == Some(true) && !cfg!(all(feature = "control", unix)) {
            return fault("control", "`control` needs the feature `control` of kernspan, on Unix".to_owned());
        }
        Ok(())
    }
}

/// Returns the part of a file that has the settings, and whether it is a section.
fn section(root: Node) -> (Node, bool) {
    if let Value::Map(entries) = &root.value
        && let Some((_, section)) = entries.iter().find(|(key, _)| key.name == SECTION)
    {
        return (section.clone(), true);
    }
    (root, false)
}

/// Explains why a file without the section has an unknown key.
fn without_section(root: &Node, position: Option<Position>) -> String {
    let Value::Map(entries) = &root.value else { return String::new() };
    match entries.iter().find(|(key, _)| key.position == position) {
        Some((key, Node { value: Value::Map(_), .. })) => match similar(&key.name, &[SECTION, "profiler"]) {
            Some(_) => format!("; the section is called `{SECTION}`"),
            None => format!("; a file with other sections needs a section `{SECTION}`"),
        },
        _ => String::new(),
    }
}

/// Returns the variable that sets a key, unless that is part of the schedule.
pub(super) fn variable_of(key: &str) -> Option<String> {
    match key {
        "enabled" => Some("KERNSPAN".to_owned()),
        "steps" => None,
        key if CYCLE.contains(&key) => None,
        key => Some(format!("KERNSPAN_{}", key.to_uppercase())),
    }
}

impl Variables {
    /// Reads the variables whose names begin with `KERNSPAN`. Those that are empty are not set.
    pub(super) fn read(variables: impl IntoIterator<Item = (OsString, OsString)>) -> Result<Self, ConfigError> {
        let mut found = Self::default();
        let is_ours = |name: &str| name == "KERNSPAN" || name.starts_with("KERNSPAN_");
        let mut ours: Vec<_> = variables
            .into_iter()
            .filter_map(|(name, value)| Some((name.into_string().ok().filter(|name| is_ours(name))?, value)))
            .filter(|(_, value)| !value.is_empty())
            .collect();
        // The first of several errors does not depend on the order of variables.
        ours.sort();
        for (name, value) in ours {
            found.read_one(&name, value)?;
        }
        Ok(found)
    }

    fn read_one(&mut self, name: &str, value: OsString) -> Result<(), ConfigError> {
        let fault = |problem: String| ConfigError::new(Origin::variable(name), problem);
        if name == "KERNSPAN_CONFIG" {
            self.file = Some(value.into());
            return Ok(());
        }
        if OTHER_VARIABLES.contains(&name) {
            return Ok(());
        }
        let key =
            Profiling::KEYS.iter().map(|key| key.name).find(|key| variable_of(key).is_some_and(|known| known == name));
        if key.is_none() && name != "KERNSPAN_SCHEDULE" {
            return Err(ConfigError::new(Origin::Default, unknown_variable(name)));
        }
        let text = value.into_string().map_err(|_| fault("expected text in UTF-8".to_owned()))?;
        let node = match key {
            Some(key) => Node::map([(key, Node::untyped(text.trim()))]),
            None => schedule(&text).map_err(fault)?,
        };
        let profiling = decode(&node).map_err(|error| {
            // A variable for one key names it already.
            let prefix = key.map_or_else(String::new, |key| format!("`{key}`: "));
            fault(error.problem.trim_start_matches(&prefix).to_owned())
        })?;
        self.layer.add(profiling, &Origin::variable(name));
        Ok(())
    }
}

/// Reads `wait=5,warmup=1,active=3`, or `steps=100..110`.
fn schedule(text: &str) -> Result<Node, String> {
    let known: Vec<_> = CYCLE.into_iter().chain(["steps"]).collect();
    let mut entries = Vec::new();
    for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
        let (key, value) =
            part.split_once('=').ok_or_else(|| format!("expected key=value, such as wait=5, found {part:?}"))?;
        let (key, value) = (key.trim(), value.trim());
        if !known.contains(&key) {
            return Err(format!("unknown key `{key}`{}", suggestion(key, &known)));
        }
        entries.push((key, Node::untyped(value)));
    }
    Ok(Node::map(entries))
}

fn unknown_variable(name: &str) -> String {
    let known: Vec<_> = Profiling::KEYS.iter().filter_map(|key| variable_of(key.name)).collect();
    let known: Vec<_> = known.iter().map(String::as_str).chain(["KERNSPAN_CONFIG", "KERNSPAN_SCHEDULE"]).collect();
    let known: Vec<_> = known.into_iter().chain(OTHER_VARIABLES).collect();
    let key = name.trim_start_matches("KERNSPAN_").to_lowercase();
    let meant = match CYCLE.into_iter().chain(["steps"]).find(|known| *known == key) {
        Some(key) => format!(": did you mean KERNSPAN_SCHEDULE=\"{key}=…\"?"),
        None => suggestion(name, &known),
    };
    format!("unknown environment variable {name}{meant}")
}
