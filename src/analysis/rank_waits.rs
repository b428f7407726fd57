//! Which rank the others wait for, without synchronised clocks: the result of
//! [`RankComparison`](super::RankComparison).

use super::lateness::LateWhen;
use crate::units;
use std::{fmt, time::Duration};

/// The ranks of a run, and how long each of them waits for others and they for it.
#[derive(Clone, Debug, Default)]
pub struct RankWaits {
    pub(super) ranks: Vec<RankWait>,
    pub(super) late: Vec<LateRank>,
    pub(super) warnings: Vec<String>,
}

/// One rank of [`RankWaits`]. Times are means of a step.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct RankWait {
    /// The rank.
    pub rank: u32,
    /// The host it runs on.
    pub host: String,
    /// The number of whole steps.
    pub steps: u64,
    /// The time of a step.
    pub step: Duration,
    /// The number of collectives in all steps.
    pub collectives: u64,
    /// The time that it waits in collectives for the last rank to arrive.
    pub waits: Duration,
    /// The time that the others wait for it where it is the last: the median of them.
    pub waited_for: Duration,
    /// The number of collectives at which it arrives last.
    pub last: u64,
}

/// A rank that the others wait for. `Display` writes one or two sentences.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct LateRank {
    /// The rank.
    pub rank: u32,
    /// The time of a step that the others wait for it: the median of them.
    pub waited_for: Duration,
    /// The same, of the one that waits the least in each collective: what is certain to be lost.
    pub least: Duration,
    /// The time of a step.
    pub step: Duration,
    /// The numbers of the steps in which the others wait for it, and how many steps there are.
    pub steps: (Vec<u64>, u64),
    /// In which steps that is.
    pub when: LateWhen,
    /// What it does longer than the others, if there is something that explains it.
    pub cause: Option<LateCause>,
    /// The most time of a step that fixing it saves, as simulated; `None` if the source has no timelines, as tables.
    pub saves_up_to: Option<Duration>,
}

/// What a late rank does longer than others.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct LateCause {
    /// The span, and those around it, outermost first.
    pub path: Vec<String>,
    /// The place of the span in the source, if known.
    pub location: Option<String>,
    /// Whether it is work on the GPU, rather than on the host.
    pub on_gpu: bool,
    /// Its time in a step on this rank.
    pub time: Duration,
    /// The median of that on the other ranks.
    pub others: Duration,
}

impl RankWaits {
    /// The ranks, in order.
    pub fn ranks(&self) -> &[RankWait] {
        &self.ranks
    }

    /// The ranks that the others wait for, the latest first.
    pub fn late(&self) -> &[LateRank] {
        &self.late
    }

    /// What does not fit together: steps or collectives that some ranks lack.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }
}

impl fmt::Display for LateRank {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (waited, step) = (units::time(self.waited_for), units::time(self.step));
        let (late, all) = (self.steps.0.len() as u64, self.steps.1);
        write!(f, "rank {} is late: the others wait for it for {waited} of a step of {step}", self.rank)?;
        if late * 2 <= all {
            let steps: Vec<_> = self.steps.0.iter().take(5).map(ToString::to_string).collect();
            let more = if late > 5 { ", …" } else { "" };
            write!(f, ", in {late} of {all} steps ({}{more})", steps.join(", "))?;
        }
        match &self.cause {
            None => f.write_str("; no span of it takes that much longer")?,
            Some(cause) => {
                let name = cause.path.last().map_or("", String::as_str);
                let place = if cause.on_gpu { "on the GPU" } else { "on the host" };
                let (time, others) = (units::time(cause.time), units::time(cause.others));
                write!(f, ". `{name}` takes {time} of a step {place}, and {others} on the others")?;
                cause.location.as_ref().map_or(Ok(()), |location| write!(f, " ({location})"))?;
            }
        }
        if !matches!(self.when, LateWhen::Always | LateWhen::Sometimes) {
            write!(f, ". It is late {}", self.when)?;
        }
        match self.saves_up_to.filter(|saved| !saved.is_zero()) {
            Some(saved) => write!(f, ". Fixing it saves up to {} of a step", units::time(saved)),
            None => Ok(()),
        }
    }
}
