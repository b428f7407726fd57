use crate::ids::{Parent, TraceId};

/// Decides which traces are sent, as one of OpenTelemetry's samplers does.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Sampler {
    /// Whether the run's parent decides, if it has one.
    parent_based: bool,
    /// The ratio of traces that is sent otherwise, from 0 to 1.
    share: f64,
}

impl Default for Sampler {
    /// `parentbased_always_on`.
    fn default() -> Self {
        Self { parent_based: true, share: 1.0 }
    }
}

impl Sampler {
    /// The sampler with this name in `OTEL_TRACES_SAMPLER`; `share` is the argument of `traceidratio`.
    pub(crate) fn named(name: &str, share: f64) -> Option<Self> {
        let (name, parent_based) = name.strip_prefix("parentbased_").map_or((name, false), |name| (name, true));
        let share = match name {
            "always_on" => 1.0,
            "always_off" => 0.0,
            "traceidratio" => share,
            _ => return None,
        };
        Some(Self { parent_based, share })
    }

    /// Whether a trace is sent.
    pub(crate) fn keeps(self, trace: TraceId, parent: Option<Parent>) -> bool {
        match parent.filter(|_| self.parent_based) {
            Some(parent) => parent.sampled,
            None => trace.is_in(self.share),
        }
    }
}
