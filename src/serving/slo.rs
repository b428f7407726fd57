//! Service level objectives: which share of requests is to be good, and what happens if it is not.

use super::{RequestKind, ServiceLevel};
use crate::{request::RecordRequest, units};
use std::{fmt, str::FromStr, sync::Arc, time::Duration};

/// A service level objective (SLO): the share of requests that are to be good.
///
/// The requests that may be bad within the [window](Self::window) are the error budget. The burn rate says how fast it
/// is spent: at 1, it lasts exactly as long as the window. An alert is raised by the rule of two windows: the burn rate
/// is too high over a long time, so that a short burst does not raise it, and also over the last twelfth of that time,
/// so that it ends soon after the problem does. There are three such [rules](Self::RULES).
///
/// ```
/// use kernspan::{FlightRecorder, Profiler, control::RecordRequest, serving::Slo};
/// use std::time::Duration;
///
/// # let folder = tempfile::tempdir().unwrap();
/// # let folder = folder.path();
/// let slo = Slo::latency("request", 99.0, Duration::from_millis(200))
///     .on_alert(|level| eprintln!("{level}"))
///     .record(RecordRequest::recent().into_dir(folder.join("slow")));
/// let (layer, profiler) = Profiler::builder()
///     .request_on("request")
///     .slo(slo)
///     .flight_recorder(FlightRecorder::duration(Duration::from_secs(2)))
///     .build()?;
/// # drop(layer);
/// # profiler.finish()?;
/// # Ok::<(), kernspan::Error>(())
/// ```
#[derive(Clone)]
#[must_use = "an objective does nothing until it is given to `ProfilerBuilder::slo`"]
pub struct Slo {
    pub(super) kind: String,
    pub(super) percent: f64,
    /// The longest time of a good request.
    pub(super) limit: Option<Duration>,
    pub(super) window: Duration,
    pub(super) hooks: Vec<AlertHook>,
    pub(super) recording: Option<RecordRequest>,
}

/// A function that is called with an alert.
pub(super) type AlertHook = Arc<dyn Fn(&ServiceLevel) + Send + Sync>;

/// A rule for alerts: the burn rate over a long and over a short time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct BurnRule {
    /// The long time, as the part of the window that it is.
    pub(super) part: u32,
    /// The burn rate above which there is an alert.
    pub(super) most: f64,
}

impl Slo {
    /// The default of [`window`](Self::window): 30 days.
    pub const WINDOW: Duration = Duration::from_secs(30 * 86_400);
    /// The shortest window.
    pub const SHORTEST_WINDOW: Duration = Duration::from_secs(60);
    /// The rules for alerts: the long time as a part of the window, and the burn rate. Of 30 days, they are an hour at
    /// 14.4 times, six hours at 6 times, and three days at 1 times: those of chapter 5 of Google's "The Site
    /// Reliability Workbook". They spend 2 %, 5 % and 10 % of the budget before they raise an alert. Time before the
    /// run counts as good.
    pub const RULES: [(u32, f64); 3] = [(720, 14.4), (120, 6.0), (10, 1.0)];
    /// The short time of a rule, as a part of its long time.
    pub const SHORT: u32 = 12;
    /// The requests within the short time without which a burn rate says nothing: one bad request of two is no alert.
    pub const LEAST_REQUESTS: u64 = 10;

    /// Asks that so many percent of the requests take at most `limit` and do not fail, from the intended start if they
    /// have one, and else from the creation of their span. A request that fails is bad, however fast.
    pub fn latency(kind: impl Into<String>, percent: f64, limit: Duration) -> Self {
        Self { limit: Some(limit), ..Self::success(kind, percent) }
    }

    /// Asks that so many percent of the requests do not fail.
    ///
    /// Objectives are also read from text:
    ///
    /// ```
    /// # use kernspan::serving::Slo;
    /// let slo: Slo = "99.9% of request without an error".parse()?;
    /// assert_eq!(slo.to_string(), "99.9 % of `request` without an error");
    /// # Ok::<(), String>(())
    /// ```
    pub fn success(kind: impl Into<String>, percent: f64) -> Self {
        let (limit, window, hooks, recording) = (None, Self::WINDOW, Vec::new(), None);
        Self { kind: kind.into(), percent, limit, window, hooks, recording }
    }

    /// Sets the time over which the objective is to be met. By default, [`Self::WINDOW`]. It slides, and begins with
    /// the run: nothing is kept from one run to the next.
    pub fn window(mut self, window: Duration) -> Self {
        self.window = window;
        self
    }

    /// Adds a function that is called when an alert begins, on a background thread. It should return soon: requests are
    /// counted meanwhile, but no other alert is raised. A panic is reported as a failure of the run.
    pub fn on_alert(mut self, hook: impl Fn(&ServiceLevel) + Send + Sync + 'static) -> Self {
        self.hooks.push(Arc::new(hook));
        self
    }

    /// Asks for a window when an alert begins: of steps or of a time to come, or of what the
    /// [flight recorder](crate::FlightRecorder) has kept, which shows what made requests slow. By default, none.
    pub fn record(mut self, request: RecordRequest) -> Self {
        self.recording = Some(request);
        self
    }

    pub(super) fn rules(&self) -> impl Iterator<Item = BurnRule> {
        Self::RULES.into_iter().map(|(part, most)| BurnRule { part, most })
    }

    /// Checks objectives for these kinds of requests.
    pub(crate) fn check_all(slos: &[Self], kinds: &[RequestKind]) -> Result<(), String> {
        for slo in slos {
            let Self { kind, percent, window, .. } = slo;
            if !kinds.iter().any(|known| known.name() == kind) {
                return Err(format!("no requests are called `{kind}`: add `.request_on(\"{kind}\")`"));
            }
            if !(*percent > 0.0 && *percent < 100.0) {
                return Err(format!("{percent} % is no objective: expected more than 0 and less than 100"));
            }
            if *window < Self::SHORTEST_WINDOW {
                return Err(format!("{window:?} is too short a window: expected {:?} or more", Self::SHORTEST_WINDOW));
            }
            slo.recording.as_ref().map_or(Ok(()), RecordRequest::check)?;
        }
        Ok(())
    }
}

impl fmt::Display for Slo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, percent, .. } = self;
        match self.limit {
            Some(limit) => write!(f, "{percent} % of `{kind}` within {}", units::time(limit)),
            None => write!(f, "{percent} % of `{kind}` without an error"),
        }
    }
}

impl FromStr for Slo {
    type Err = String;

    /// Reads `99% of request within 200ms`, or `99.9% of request without an error`.
    fn from_str(text: &str) -> Result<Self, String> {
        let parse = || {
            let (percent, rest) = text.split_once('%')?;
            let percent = percent.trim().parse().ok()?;
            let rest = rest.trim().strip_prefix("of ")?.trim();
            let name = |text: &str| text.trim().trim_matches('`').to_owned();
            if let Some(kind) = rest.strip_suffix("without an error") {
                return Some(Self::success(name(kind), percent));
            }
            let (kind, limit) = rest.rsplit_once(" within ")?;
            Some(Self::latency(name(kind), percent, units::parse_duration(limit.trim())?))
        };
        let expected = "such as \"99% of request within 200ms\" or \"99.9% of request without an error\"";
        parse().ok_or_else(|| format!("expected an objective, {expected}, found {text:?}"))
    }
}

impl fmt::Debug for Slo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Slo({self})")
    }
}
