//! Hardware counters of GPUs: tracks for viewers, and the exact samples in the header.

use super::{output::Output, rows::Row};
use crate::{export::json::Object, trace::Trace};
use std::io;

/// The category of the samples, by which readers know that the header has them, too.
const CATEGORY: &str = "gpu_counter";

/// Writes a track of each metric, in the process of its GPU. A sample begins where it is drawn.
pub(super) fn write_tracks(out: &mut Output<'_>) -> io::Result<()> {
    for counters in out.trace.gpu_counters() {
        let row = Row { pid: counters.device().as_u32().into(), tid: 0 };
        for (index, metric) in counters.metrics().iter().enumerate() {
            let name = format!("GPU {} {}", counters.device(), metric.label());
            for (time, values) in counters.samples() {
                let event = out.events.counter_of(CATEGORY, &name).on(row).at(time.start);
                event.args(|args| args.float("value", values[index]))?;
            }
        }
    }
    Ok(())
}

/// Adds the samples to the header, if counters were sampled.
pub(super) fn write(header: &mut Object<'_>, trace: &Trace) {
    if trace.gpu_counters().is_empty() {
        return;
    }
    header.array_of_lines("kernspan_counters", |devices| {
        for counters in trace.gpu_counters() {
            devices.object(|object| {
                object.number("device", counters.device().as_u32());
                object.number("interval", u64::try_from(counters.interval().as_nanos()).unwrap_or(u64::MAX));
                object.number("lost", counters.lost());
                counters.problem().iter().for_each(|problem| object.string("problem", problem));
                object.array("metrics", |metrics| {
                    for metric in counters.metrics() {
                        metrics.object(|object| {
                            object.string("name", metric.name());
                            object.word("meaning", metric.meaning().as_str());
                        });
                    }
                });
                object.array("times", |times| {
                    for (time, _) in counters.samples() {
                        times.number(time.start.as_unix_nanos());
                        times.number(time.end.as_unix_nanos());
                    }
                });
                object.array("values", |values| {
                    counters.samples().flat_map(|(_, values)| values).for_each(|&value| values.float(value));
                });
            });
        }
    });
}
