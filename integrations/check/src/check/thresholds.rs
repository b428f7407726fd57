//! The thresholds of a check: how much worse each metric may be.

use crate::counts::CountKind;
use serde::Serialize;
use std::{error, fmt, str::FromStr};

/// The changes that a check allows, by metric and optionally by span.
///
/// | metric | default | |
/// |---|---|---|
/// | `step` | 5% | the time of a step, without the drift |
/// | `span` | 1% | the self time of a span on the thread of the step, in percent of the step |
/// | `gpu` | 1% | the GPU time of a span, in percent of the step |
/// | `drift` | off | the factor by which everything takes longer |
/// | `memory` | 1% | the peak memory of a GPU |
/// | `kernels`, `copies`, `copied_bytes`, `fills`, `allocations`, `allocated_bytes`, `flops` | 0 | counts of a step |
/// | `heap_allocations` | 0 | allocations on the heap in a typical step, where they were counted |
/// | `heap_bytes` | 1% | their bytes |
/// | `grid` | 0 | blocks and threads of a kernel that is launched as often as before |
/// | `calls` | off | calls of spans |
///
/// A threshold is a percentage, an absolute count, or `off`. For spans, it is set as `metric@pattern`, where the
/// pattern is a name or a path such as `train_step > forward > *`, and `*` stands for anything. The last matching
/// threshold applies.
///
/// ```
/// use kernspan_check::Thresholds;
///
/// let thresholds: Thresholds = Thresholds::default().with("step=3%")?.with("kernels@*attention*=off")?;
/// assert!(Thresholds::default().with("stepp=3%").is_err());
/// # Ok::<(), kernspan_check::ThresholdError>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Thresholds {
    rules: Vec<Rule>,
}

/// A threshold: how much more is allowed.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Threshold {
    /// Anything.
    Off,
    /// This fraction of the value before; for the times of spans, of the step before.
    Part(f64),
    /// This much more of a count.
    Count(f64),
}

/// The quantities that a check compares.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Metric {
    /// The time of a step.
    Step,
    /// The self time of a span on the thread of the step.
    Span,
    /// The GPU time of a span.
    Gpu,
    /// The factor by which everything takes longer.
    Drift,
    /// The peak memory of a GPU.
    Memory,
    /// The blocks and threads of a kernel.
    Grid,
    /// A count of a step.
    Count(CountKind),
}

#[derive(Clone, Debug, PartialEq)]
struct Rule {
    metric: Metric,
    /// The pattern of the spans it applies to; `None` for all.
    pattern: Option<String>,
    threshold: Threshold,
}

/// The reason a threshold cannot be parsed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThresholdError {
    text: String,
    expected: &'static str,
}

impl Default for Thresholds {
    fn default() -> Self {
        let rule = |metric, threshold| Rule { metric, pattern: None, threshold };
        let count = |kind| match kind {
            CountKind::Calls => rule(Metric::Count(kind), Threshold::Off),
            // A name or a number with another digit is a few bytes.
            CountKind::HeapBytes => rule(Metric::Count(kind), Threshold::Part(0.01)),
            _ => rule(Metric::Count(kind), Threshold::Count(0.0)),
        };
        let times = [
            rule(Metric::Step, Threshold::Part(0.05)),
            rule(Metric::Span, Threshold::Part(0.01)),
            rule(Metric::Gpu, Threshold::Part(0.01)),
            rule(Metric::Drift, Threshold::Off),
            rule(Metric::Memory, Threshold::Part(0.01)),
            rule(Metric::Grid, Threshold::Count(0.0)),
        ];
        Self { rules: times.into_iter().chain(CountKind::ALL.map(count)).collect() }
    }
}

impl Thresholds {
    /// Adds a threshold, such as `step=5%`, `kernels=2` or `span@train_step > forward=off`.
    ///
    /// # Errors
    ///
    /// If the text is not a threshold.
    pub fn with(mut self, text: &str) -> Result<Self, ThresholdError> {
        let error = |expected| ThresholdError { text: text.to_owned(), expected };
        let (name, value) = text.rsplit_once('=').ok_or_else(|| error("METRIC=THRESHOLD"))?;
        let (metric, pattern) = match name.split_once('@') {
            Some((metric, pattern)) => (metric, Some(pattern.trim().to_owned())),
            None => (name, None),
        };
        let metric = metric.trim().parse().map_err(|()| error(Metric::EXPECTED))?;
        let threshold = value.trim().parse().map_err(|()| error("a percentage such as 5%, a number, or off"))?;
        if pattern.is_some() && !matches!(metric, Metric::Span | Metric::Gpu | Metric::Count(_)) {
            return Err(error("a metric of spans before the @: span, gpu, or a count"));
        }
        self.rules.push(Rule { metric, pattern, threshold });
        Ok(self)
    }

    /// Reads thresholds from JSON, an object of metrics such as `{"step": "3%", "kernels@*attention*": 2}`.
    ///
    /// # Errors
    ///
    /// If it is not such an object.
    pub fn with_json(self, json: &[u8]) -> Result<Self, ThresholdError> {
        let invalid = || ThresholdError { text: String::from_utf8_lossy(json).into_owned(), expected: "a JSON object" };
        let rules: serde_json::Value = serde_json::from_slice(json).map_err(|_| invalid())?;
        let rules = rules.as_object().ok_or_else(invalid)?;
        rules.iter().try_fold(self, |thresholds, (name, value)| match value {
            serde_json::Value::String(text) => thresholds.with(&format!("{name}={text}")),
            value => thresholds.with(&format!("{name}={value}")),
        })
    }

    /// Returns the threshold of a metric of the whole step.
    pub fn of(&self, metric: Metric) -> Threshold {
        let rule = self.rules.iter().rfind(|rule| rule.metric == metric && rule.pattern.is_none());
        rule.map_or(Threshold::Off, |rule| rule.threshold)
    }

    /// Returns whether times are not compared at all.
    pub(super) fn ignore_times(&self) -> bool {
        let is_time = |rule: &&Rule| matches!(rule.metric, Metric::Step | Metric::Span | Metric::Gpu | Metric::Drift);
        let is_off = |rule: &Rule| match &rule.pattern {
            None => self.of(rule.metric) == Threshold::Off,
            Some(_) => rule.threshold == Threshold::Off,
        };
        self.rules.iter().filter(is_time).all(is_off)
    }

    /// Returns the threshold of a metric of a span.
    pub fn of_span(&self, metric: Metric, path: &[String]) -> Threshold {
        let fits = |rule: &&Rule| rule.pattern.as_deref().is_none_or(|pattern| matches(pattern, path));
        let rule = self.rules.iter().filter(|rule| rule.metric == metric).rfind(fits);
        rule.map_or(Threshold::Off, |rule| rule.threshold)
    }
}

impl Threshold {
    /// Returns the largest allowed value, given the value `before`. Percentages refer to `whole`.
    pub(super) fn limit(self, before: f64, whole: f64) -> f64 {
        match self {
            Self::Off => f64::INFINITY,
            Self::Part(part) => before + part * whole,
            Self::Count(count) => before + count,
        }
    }
}

impl FromStr for Threshold {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let number = |text: &str| text.trim().parse::<f64>().ok().filter(|it| it.is_finite() && *it >= 0.0).ok_or(());
        match text.strip_suffix('%') {
            _ if text == "off" => Ok(Self::Off),
            Some(percent) => Ok(Self::Part(number(percent)? / 100.0)),
            None => Ok(Self::Count(number(text)?)),
        }
    }
}

impl Metric {
    const EXPECTED: &'static str = "one of step, span, gpu, drift, memory, grid, kernels, copies, copied_bytes, fills, \
                                    allocations, allocated_bytes, flops, heap_allocations, heap_bytes and calls before \
                                    the =";
}

impl FromStr for Metric {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let count = || CountKind::ALL.into_iter().find(|kind| kind.as_str() == text).map(Self::Count);
        match text {
            "step" => Ok(Self::Step),
            "span" => Ok(Self::Span),
            "gpu" => Ok(Self::Gpu),
            "drift" => Ok(Self::Drift),
            "memory" => Ok(Self::Memory),
            "grid" => Ok(Self::Grid),
            _ => count().ok_or(()),
        }
    }
}

/// Returns whether a pattern matches the last name of a path, or all of it as `outer > inner`. A `*` matches any text.
fn matches(pattern: &str, path: &[String]) -> bool {
    let last = path.last().map_or("", String::as_str);
    fits(pattern, last) || fits(pattern, &path.join(" > "))
}

fn fits(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = text.strip_prefix(first) else { return false };
    let Some(last) = parts.next_back() else { return rest.is_empty() };
    for part in parts {
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    rest.ends_with(last)
}

impl fmt::Display for Metric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Step => "step",
            Self::Span => "span",
            Self::Gpu => "gpu",
            Self::Drift => "drift",
            Self::Memory => "memory",
            Self::Grid => "grid",
            Self::Count(kind) => kind.as_str(),
        })
    }
}

impl fmt::Display for ThresholdError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "invalid threshold {:?}: expected {}", self.text, self.expected)
    }
}

impl error::Error for ThresholdError {}

#[cfg(test)]
mod tests {
    use super::{Metric, Threshold, Thresholds, matches};
    use crate::counts::CountKind;

    const KERNELS: Metric = Metric::Count(CountKind::Kernels);

    fn path(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn the_last_threshold_that_fits_counts() {
        let thresholds =
            Thresholds::default().with("kernels@*attention*=off").unwrap().with("kernels@mlp = 2").unwrap();
        assert_eq!(thresholds.of(KERNELS), Threshold::Count(0.0));
        assert_eq!(thresholds.of_span(KERNELS, &path(&["model", "self_attention"])), Threshold::Off);
        assert_eq!(thresholds.of_span(KERNELS, &path(&["model", "mlp"])), Threshold::Count(2.0));
        assert_eq!(thresholds.of_span(KERNELS, &path(&["model"])), Threshold::Count(0.0));
        assert_eq!(thresholds.with("kernels=5%").unwrap().of_span(KERNELS, &path(&["mlp"])), Threshold::Part(0.05));
    }

    #[test]
    fn other_texts_are_said_to_be_no_thresholds() {
        let error = |text: &str| Thresholds::default().with(text).unwrap_err().to_string();
        assert_eq!(error("step"), "invalid threshold \"step\": expected METRIC=THRESHOLD");
        assert!(error("stepp=5%").contains("expected one of step, span"));
        assert!(error("step=-5%").contains("expected a percentage"));
        assert!(error("step@forward=5%").contains("expected a metric of spans"));
    }

    #[test]
    fn thresholds_can_be_json() {
        let json = br#"{"step": "3%", "kernels@mlp": 2, "span": "off"}"#;
        let thresholds = Thresholds::default().with_json(json).unwrap();
        assert_eq!(thresholds.of(Metric::Step), Threshold::Part(0.03));
        assert_eq!(thresholds.of_span(KERNELS, &path(&["mlp"])), Threshold::Count(2.0));
        assert_eq!(thresholds.of(Metric::Span), Threshold::Off);
        assert!(Thresholds::default().with_json(b"[]").unwrap_err().to_string().contains("expected a JSON object"));
    }

    #[test]
    fn a_star_stands_for_any_text() {
        let path = ["step", "forward", "attention"].map(str::to_owned);
        let fitting = ["attention", "att*", "*", "*tent*", "step > *", "step > forward > attention", "step*attention"];
        assert!(fitting.iter().all(|pattern| matches(pattern, &path)));
        let others = ["forward", "att", "*x*", "tention", "step > forward", "attention*attention", ""];
        assert!(!others.iter().any(|pattern| matches(pattern, &path)));
    }
}
