//! Hardware counters are the same after they were written and read.

use super::{check, read_back, written};
use crate::{
    read::from_bytes,
    trace::{DeviceId, GpuCounters, GpuMetric, MetricMeaning, Trace, sample::at, sample::gpu_trace},
};
use proptest::prelude::*;
use std::time::Duration;

fn with_counters(values: Vec<f64>) -> Trace {
    let metrics = [("sm__cycles_active.avg", MetricMeaning::SmActive), ("my \"own\"\n", MetricMeaning::Custom)];
    let metrics = metrics.map(|(name, meaning)| GpuMetric { name: name.to_owned(), meaning });
    let mut trace = gpu_trace();
    trace.gpu_counters.push(GpuCounters {
        device: DeviceId::new(0),
        interval: Duration::from_micros(100),
        metrics: metrics.into(),
        times: (0..values.len() as u64 / 2).map(|index| (at(100 * index), at(100 * index + 99))).collect(),
        values,
        lost: 7,
        problem: Some("the interval was widened".to_owned()),
    });
    trace.losses.gpu_counter_samples = 7;
    trace
}

#[test]
fn counters_are_read_back_and_are_no_counters_of_the_host() {
    let trace = with_counters(vec![1.0, 2.5, 99.999, 1e12, 0.0, 1.0 / 3.0]);
    let back = read_back(&trace);
    assert_eq!(back.gpu_counters(), trace.gpu_counters());
    assert_eq!((back.losses().gpu_counter_samples, back.losses()), (7, trace.losses()));
    assert_eq!(back.counters(), trace.counters());
    check("counters", &trace);
    assert!(read_back(&gpu_trace()).gpu_counters().is_empty());
}

#[test]
fn counters_that_do_not_fit_together_are_counted_as_unread() {
    let text = String::from_utf8(written(&with_counters(vec![1.0, 2.0]), |chrome| chrome)).unwrap();
    let wrong =
        text.replace("\"values\": [1.0,2.0]", "\"values\": [1.0]").replace("\"values\":[1.0,2.0]", "\"values\":[1.0]");
    assert_ne!(text, wrong);
    let trace = from_bytes(wrong.as_bytes()).unwrap().remove(0);
    assert_eq!((trace.gpu_counters().len(), trace.losses().unread), (0, 1));
}

proptest! {
    #[test]
    fn all_values_are_exact(values in prop::collection::vec(0.0_f64..1e15, 0..40)) {
        let values: Vec<_> = values.iter().copied().take(values.len() / 2 * 2).collect();
        let trace = with_counters(values);
        let back = read_back(&trace);
        prop_assert_eq!(back.gpu_counters(), trace.gpu_counters());
    }
}
