//! The hardware counters of GPUs in a document, as kernspan writes them.

use super::{header::Header, raw::Raw};
use crate::trace::{DeviceId, GpuCounters, GpuMetric, MetricMeaning, Timestamp, Trace};
use std::{borrow::Cow, time::Duration};

/// Adds the hardware counters, if the document has any. A GPU whose counters are not valid is counted as unread.
pub(super) fn add_counters(trace: &mut Trace, header: &Header) {
    for raw in header.get("kernspan_counters").list().unwrap_or_default() {
        match counters(raw) {
            Some(counters) => trace.gpu_counters.push(counters),
            None => trace.losses.unread += 1,
        }
    }
}

fn counters(raw: Raw<'_>) -> Option<GpuCounters> {
    let members = raw.members()?;
    let member = |key: &str| members.iter().find(|(name, _)| name == key).map(|(_, raw)| *raw).unwrap_or_default();
    let metrics: Vec<_> = member("metrics").list()?.into_iter().map(metric).collect::<Option<_>>()?;
    let moments: Vec<_> = member("times").list()?.into_iter().map(Raw::u64).collect::<Option<_>>()?;
    let values: Vec<_> = member("values").list()?.into_iter().map(Raw::f64).collect::<Option<_>>()?;
    let times: Vec<_> = moments
        .chunks_exact(2)
        .map(|pair| (Timestamp::from_unix_nanos(pair[0]), Timestamp::from_unix_nanos(pair[1])))
        .collect();
    let counters = GpuCounters {
        device: DeviceId::new(member("device").u32().unwrap_or(0)),
        interval: Duration::from_nanos(member("interval").u64().unwrap_or(0)),
        metrics,
        times,
        values,
        lost: member("lost").u64().unwrap_or(0),
        problem: member("problem").text().map(Cow::into_owned),
    };
    (2 * counters.times.len() == moments.len() && counters.is_consistent()).then_some(counters)
}

fn metric(raw: Raw<'_>) -> Option<GpuMetric> {
    let members = raw.members()?;
    let text = |key: &str| members.iter().find(|(name, _)| name == key).and_then(|(_, raw)| raw.text());
    Some(GpuMetric { name: text("name")?.into_owned(), meaning: MetricMeaning::from_name(&text("meaning")?) })
}
