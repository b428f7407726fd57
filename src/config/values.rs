//! The types of settings that are more than a number or true and false.

use super::spelling::suggestion;
use crate::{
    activity::Activity,
    builder::ProfilerBuilder,
    export::{Chrome, Html, Perfetto, Stacks, TensorBoard},
    schedule::Schedule,
};
use std::{
    fmt,
    path::{Path, PathBuf},
    str::FromStr,
};

/// A format that traces are exported in, and its folder: `perfetto`, or `perfetto:runs/mnist`.
///
/// PyTorch's names are understood: `tensorboard_trace_handler('runs')`, `export_chrome_trace`, `export_stacks`.
///
/// ```
/// use kernspan::config::{Export, Format};
///
/// let export: Export = "perfetto:runs/mnist".parse()?;
/// assert_eq!(export.format, Format::Perfetto);
/// assert_eq!(export.dir.as_deref(), Some("runs/mnist".as_ref()));
/// # Ok::<(), String>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Export {
    /// The format.
    pub format: Format,
    /// The folder to write to. By default, that of the run.
    pub dir: Option<PathBuf>,
}

/// A format of exported traces: see [`export`](crate::export).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Format {
    /// [`Chrome`]: JSON as PyTorch writes it, for Perfetto and the `kernspan` command.
    Chrome,
    /// [`Perfetto`].
    Perfetto,
    /// [`TensorBoard`].
    TensorBoard,
    /// [`Html`].
    Html,
    /// [`Stacks`].
    Stacks,
}

impl Format {
    const NAMES: [(&'static str, Self); 5] = [
        ("chrome", Self::Chrome),
        ("perfetto", Self::Perfetto),
        ("tensorboard", Self::TensorBoard),
        ("html", Self::Html),
        ("stacks", Self::Stacks),
    ];

    fn name(self) -> &'static str {
        Self::NAMES.iter().find(|(_, format)| *format == self).map_or("", |(name, _)| name)
    }
}

impl Export {
    /// Returns the export of a format to the folder of the run.
    pub fn new(format: Format) -> Self {
        Self { format, dir: None }
    }

    /// Adds the exporter to a builder.
    pub(super) fn add_to(&self, builder: ProfilerBuilder, run_folder: &Path) -> ProfilerBuilder {
        let dir = self.dir.as_deref().unwrap_or(run_folder);
        match self.format {
            Format::Chrome => builder.export(Chrome::to_dir(dir)),
            Format::Perfetto => builder.export(Perfetto::to_dir(dir)),
            Format::TensorBoard => builder.export(TensorBoard::to_dir(dir)),
            Format::Html => builder.export(Html::to_dir(dir)),
            Format::Stacks => builder.export(Stacks::to_dir(dir)),
        }
    }
}

impl FromStr for Export {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let text = text.trim();
        let (name, dir) = match text.strip_suffix(')').and_then(|call| call.split_once('(')) {
            // `tensorboard_trace_handler('runs')`, or with `dir_name=`.
            Some((name, argument)) => {
                let argument = argument.trim().trim_start_matches("dir_name").trim_start_matches([' ', '=']);
                (name, Some(argument.trim_matches(['\'', '"', ' '])))
            }
            None => text.split_once(':').map_or((text, None), |(name, dir)| (name, Some(dir.trim()))),
        };
        let name = name.trim().trim_start_matches("torch.").trim_start_matches("profiler.").to_lowercase();
        let ours = match name.as_str() {
            "tensorboard_trace_handler" => "tensorboard",
            "export_chrome_trace" => "chrome",
            "export_stacks" => "stacks",
            name => name,
        };
        let known = Format::NAMES.map(|(name, _)| name);
        let format = Format::NAMES.iter().find(|(name, _)| *name == ours).map(|(_, format)| *format);
        let format = format.ok_or_else(|| format!("unknown format `{ours}`{}", suggestion(ours, &known)))?;
        let dir = dir.map(PathBuf::from).filter(|dir| !dir.as_os_str().is_empty());
        Ok(Self { format, dir })
    }
}

impl fmt::Display for Export {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.format.name())?;
        self.dir.as_ref().map_or(Ok(()), |dir| write!(f, ":{}", dir.display()))
    }
}

/// A range of steps: `100..110`, `100..=109`, `100..` or `..10`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepRange {
    first: u64,
    /// `None` if the range has no end.
    end: Option<u64>,
}

impl StepRange {
    pub(super) fn schedule(self) -> Schedule {
        match self.end {
            Some(end) => Schedule::steps(self.first..end),
            None => Schedule::steps(self.first..),
        }
    }
}

impl FromStr for StepRange {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parse = || {
            let (first, last) = text.split_once("..")?;
            let number = |text: &str| text.trim().parse::<u64>().ok();
            let first = if first.trim().is_empty() { 0 } else { number(first)? };
            let end = match (last.trim(), last.strip_prefix('=')) {
                ("", _) => None,
                (_, Some(last)) => Some(number(last)?.checked_add(1)?),
                (last, None) => Some(number(last)?),
            };
            Some(Self { first, end })
        };
        let range =
            parse().ok_or_else(|| format!("expected a range of steps, such as \"100..110\", found {text:?}"))?;
        match range.end {
            Some(end) if end <= range.first => Err(format!("the range {text} is empty, so no step would be recorded")),
            _ => Ok(range),
        }
    }
}

impl fmt::Display for StepRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}..", self.first)?;
        self.end.map_or(Ok(()), |end| write!(f, "{end}"))
    }
}

/// The names of activities. PyTorch's are first.
const ACTIVITIES: [(&str, &[Activity]); 13] = [
    ("cpu", &[Activity::Host]),
    ("cuda", &[Activity::Kernels, Activity::Copies]),
    ("gpu", &[Activity::Kernels, Activity::Copies]),
    ("host", &[Activity::Host]),
    ("kernels", &[Activity::Kernels]),
    ("copies", &[Activity::Copies]),
    ("memory", &[Activity::Memory]),
    ("sync", &[Activity::Sync]),
    ("api_calls", &[Activity::ApiCalls]),
    ("heap", &[Activity::Heap]),
    ("samples", &[Activity::Samples]),
    ("counters", &[Activity::Counters]),
    ("vitals", &[Activity::Vitals]),
];

/// Returns the name of an activity.
pub(super) fn activity_name(activity: Activity) -> &'static str {
    let is_it = |(_, known): &&(&str, &[Activity])| *known == [activity];
    ACTIVITIES.iter().rev().find(is_it).map_or("", |(name, _)| name)
}

/// The activities of one name.
pub(super) struct Activities(pub(super) &'static [Activity]);

impl FromStr for Activities {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let name = text.trim().rsplit('.').next().unwrap_or_default().to_lowercase();
        let found = ACTIVITIES.iter().find(|(known, _)| *known == name);
        let unknown = || format!("unknown activity `{name}`{}", suggestion(&name, &ACTIVITIES.map(|(name, _)| name)));
        found.map(|(_, activities)| Self(activities)).ok_or_else(unknown)
    }
}

/// Reads bytes: a number, or `512 MiB`.
pub(super) fn bytes(text: &str) -> Result<u64, String> {
    const UNITS: [(&str, u64); 9] = [
        ("kib", 1 << 10),
        ("mib", 1 << 20),
        ("gib", 1 << 30),
        ("tib", 1 << 40),
        ("kb", 1_000),
        ("mb", 1_000_000),
        ("gb", 1_000_000_000),
        ("tb", 1_000_000_000_000),
        ("b", 1),
    ];
    let lower = text.trim().to_lowercase();
    let (number, unit) =
        UNITS.iter().find_map(|(name, unit)| Some((lower.strip_suffix(name)?, *unit))).unwrap_or((lower.as_str(), 1));
    let number: Option<u64> = number.trim().parse().ok();
    number
        .and_then(|number| number.checked_mul(unit))
        .ok_or_else(|| format!("expected a number of bytes, such as 10000000 or \"512 MiB\", found {text:?}"))
}

#[cfg(test)]
mod tests {
    use super::{Activities, Export, StepRange, bytes};
    use crate::activity::Activity;

    #[test]
    fn the_names_of_pytorch_are_understood() {
        for (text, expected) in [
            ("chrome", "chrome"),
            ("perfetto: runs/x", "perfetto:runs/x"),
            ("tensorboard_trace_handler", "tensorboard"),
            ("torch.profiler.tensorboard_trace_handler('./log')", "tensorboard:./log"),
            ("tensorboard_trace_handler(dir_name=\"log\")", "tensorboard:log"),
            ("export_chrome_trace(trace)", "chrome:trace"),
        ] {
            assert_eq!(text.parse::<Export>().unwrap().to_string(), expected, "{text}");
        }
        assert_eq!("perfeto".parse::<Export>().unwrap_err(), "unknown format `perfeto`: did you mean `perfetto`?");
        for text in ["cuda", "CUDA", "ProfilerActivity.CUDA", "torch.profiler.ProfilerActivity.CUDA"] {
            assert_eq!(text.parse::<Activities>().unwrap().0, [Activity::Kernels, Activity::Copies], "{text}");
        }
    }

    #[test]
    fn all_names_of_activities_are_documented() {
        let text = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/configuration.md")).unwrap();
        let line = text.lines().find(|line| line.starts_with("| `activities`")).unwrap();
        for (name, _) in super::ACTIVITIES {
            assert!(line.contains(&format!("`{name}`")), "{name} is not in {line}");
        }
    }

    #[test]
    fn ranges_are_written_as_in_rust() {
        for (text, expected) in [("100..110", "100..110"), ("5..=9", "5..10"), ("7..", "7.."), ("..3", "0..3")] {
            assert_eq!(text.parse::<StepRange>().unwrap().to_string(), expected, "{text}");
        }
        for text in ["", "7", "a..b", "9..9", "9..3", "-1..3", "1..99999999999999999999"] {
            assert!(text.parse::<StepRange>().is_err(), "{text}");
        }
    }

    #[test]
    fn bytes_have_units() {
        for (text, expected) in [("7", 7), ("512 MiB", 512 << 20), ("10GB", 10_000_000_000), ("1 kb", 1000), ("9B", 9)]
        {
            assert_eq!(bytes(text), Ok(expected), "{text}");
        }
        for text in ["", "MiB", "1.5 GB", "-1", "7 G", "99999999999 TiB"] {
            assert!(bytes(text).is_err(), "{text}");
        }
    }
}
