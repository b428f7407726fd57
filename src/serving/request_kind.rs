//! Which spans are requests, and by which fields they are told apart.

use std::{fmt, path::PathBuf, time::Duration};

/// A kind of requests: the name of their spans, and the fields by which they are broken down.
///
/// ```
/// use kernspan::{Profiler, serving::RequestKind};
///
/// let chat = RequestKind::new("chat").by("route").by("model").most_groups(32);
/// let (layer, profiler) = Profiler::builder().request_on(chat).request_on("health_check").build()?;
/// # drop(layer);
/// # profiler.finish()?;
/// # Ok::<(), kernspan::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "a kind of requests does nothing until it is given to `ProfilerBuilder::request_on`"]
pub struct RequestKind {
    pub(super) name: String,
    pub(super) fields: Vec<String>,
    pub(super) most_groups: usize,
    /// The time above which the trace of a request is written, and the folder.
    pub(super) slow: Option<(Duration, PathBuf)>,
}

impl RequestKind {
    /// The most fields that requests are broken down by.
    pub const MOST_FIELDS: usize = 4;
    /// The default of [`most_groups`](Self::most_groups). Each takes up to 36 KB per histogram.
    pub const MOST_GROUPS: usize = 64;
    /// The least time between two traces of [slow requests](Self::write_slower_than): as for a flight recorder that is
    /// written when threads panic.
    pub const SLOW_EVERY: Duration = Duration::from_secs(10);
    /// The largest value of [`most_groups`](Self::most_groups).
    pub const LIMIT_OF_GROUPS: usize = 4096;

    /// Returns the kind of requests that are spans of this name: the one in the source.
    pub fn new(span_name: impl Into<String>) -> Self {
        Self { name: span_name.into(), fields: Vec::new(), most_groups: Self::MOST_GROUPS, slow: None }
    }

    /// Breaks the requests down by the values of a field, such as `route` or `model`, together with those before it.
    /// There can be [`Self::MOST_FIELDS`]. A field that is recorded before the span closes counts, too.
    pub fn by(mut self, field: impl Into<String>) -> Self {
        self.fields.push(field.into());
        self
    }

    /// Sets how many different groups there are at most. By default, [`Self::MOST_GROUPS`]. Requests with other values
    /// are counted in a group whose values are `other`, so that no client can exhaust the memory with new routes.
    pub fn most_groups(mut self, groups: usize) -> Self {
        self.most_groups = groups;
        self
    }

    /// Writes what the [flight recorder](crate::FlightRecorder) has kept into a folder after a request that takes
    /// longer than this, from its intended start if it has one. By default, nothing is written.
    ///
    /// This happens at most once in [`Self::SLOW_EVERY`], so that a service that is slow as a whole does not keep
    /// writing traces. Nothing is written while another window is open, which has the request unless it was opened
    /// later. The trace has the spans of that request and of all others of that time, as far back as the flight
    /// recorder reaches. [`RequestsOfKind::slowest`](super::RequestsOfKind::slowest) has the files and the span of each
    /// of the slowest requests, to find it there.
    pub fn write_slower_than(mut self, limit: Duration, folder: impl Into<PathBuf>) -> Self {
        self.slow = Some((limit, folder.into()));
        self
    }

    /// The name of the spans.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Checks the kinds of a profiler.
    pub(crate) fn check_all(kinds: &[Self]) -> Result<(), String> {
        for (index, kind) in kinds.iter().enumerate() {
            let problem = match kind {
                Self { name, .. } if name.is_empty() => "the name of the spans is empty".to_owned(),
                Self { name, .. } if kinds[..index].iter().any(|earlier| earlier.name == *name) => {
                    format!("`{name}` is named twice")
                }
                Self { name, fields, .. } if fields.len() > Self::MOST_FIELDS => {
                    format!("`{name}` is broken down by {} fields, more than {}", fields.len(), Self::MOST_FIELDS)
                }
                Self { name, most_groups, .. } if !(1..=Self::LIMIT_OF_GROUPS).contains(most_groups) => {
                    format!("`{name}` has {most_groups} groups: expected 1 to {}", Self::LIMIT_OF_GROUPS)
                }
                _ => continue,
            };
            return Err(problem);
        }
        if kinds.len() > usize::from(u8::MAX) { Err("there are more than 255 kinds".to_owned()) } else { Ok(()) }
    }
}

impl<S: Into<String>> From<S> for RequestKind {
    fn from(span_name: S) -> Self {
        Self::new(span_name)
    }
}

impl fmt::Display for RequestKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.name.fmt(f)
    }
}
