use kernspan::Phase;
use std::{collections::BTreeMap, fmt, time::Duration};

/// Latencies by kind of forward pass and by the profiler's phase, displayed as a table.
#[derive(Debug, Default)]
pub(crate) struct Latencies(BTreeMap<(Kind, During), Row>);

/// The kind of a forward pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    Prefill,
    Decode,
}

/// Groups of phases that are expected to cost the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum During {
    NotRecorded,
    WarmUp,
    Recorded,
}

#[derive(Debug, Default)]
struct Row {
    times: Vec<Duration>,
    tokens: usize,
}

impl Latencies {
    pub(crate) fn add(&mut self, kind: Kind, phase: Phase, tokens: usize, time: Duration) {
        let during = match phase {
            Phase::Wait => During::NotRecorded,
            Phase::Warmup => During::WarmUp,
            Phase::Record | Phase::RecordAndSave => During::Recorded,
        };
        let row = self.0.entry((kind, during)).or_default();
        row.times.push(time);
        row.tokens += tokens;
    }
}

impl fmt::Display for Latencies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:22} {:>6}", "latency in ms", "times")?;
        for column in ["p50", "p90", "p99", "max", "tokens/s"] {
            write!(f, " {column:>9}")?;
        }
        for ((kind, during), row) in &self.0 {
            let kind = match kind {
                Kind::Prefill => "prefill",
                Kind::Decode => "decode",
            };
            let during = match during {
                During::NotRecorded => "not recorded",
                During::WarmUp => "warming up",
                During::Recorded => "recorded",
            };
            write!(f, "\n{:22} {:>6}", format!("{kind}, {during}"), row.times.len())?;
            let mut times = row.times.clone();
            times.sort_unstable();
            for percent in [50, 90, 99, 100] {
                write!(f, " {:9.3}", 1e3 * percentile(&times, percent).as_secs_f64())?;
            }
            write!(f, " {:9.1}", row.tokens as f64 / times.iter().sum::<Duration>().as_secs_f64())?;
        }
        Ok(())
    }
}

/// Returns the least of the sorted times that this percentage of them does not exceed.
fn percentile(times: &[Duration], percent: usize) -> Duration {
    let rank = (times.len() * percent).div_ceil(100).max(1);
    times.get(rank - 1).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::percentile;
    use std::time::Duration;

    #[test]
    fn a_percentile_is_one_of_the_times() {
        let times: Vec<_> = (1..=200).map(Duration::from_millis).collect();
        let found = [0, 50, 90, 99, 100].map(|percent| percentile(&times, percent).as_millis());
        assert_eq!(found, [1, 100, 180, 198, 200]);
        assert_eq!(percentile(&times[..1], 50), times[0]);
        assert_eq!(percentile(&[], 50), Duration::ZERO);
    }
}
