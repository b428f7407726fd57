//! Tags, the names of scalars and texts in TensorBoard.

use super::crc::crc32c;
use crate::trace::{GpuMetric, MetricMeaning};
use std::borrow::Cow;

pub(super) const STEP_TIME: &str = "step/time_ms";
pub(super) const STEPS_PER_SECOND: &str = "step/per_second";
pub(super) const SAMPLES_PER_SECOND: &str = "step/samples_per_second";
pub(super) const LOST: &str = "profiler/lost";
pub(super) const CONFIGURATION: &str = "kernspan/configuration";
pub(super) const GPU: &str = "kernspan/gpu";
pub(super) const FINDINGS: &str = "kernspan/findings";

/// The tags that TensorBoard's table of hyperparameters looks for.
pub(super) const HPARAMS_START: &str = "_hparams_/session_start_info";
pub(super) const HPARAMS_END: &str = "_hparams_/session_end_info";

/// The maximum length of a tag in bytes. TensorBoard accepts any length, but shows tags on one line and puts them into
/// URLs.
const MAX_LEN: usize = 256;

/// Returns the tag of a user's counter: its [readable](readable) name.
///
/// A name that equals one of our own tags gets the prefix `counter/`, since TensorBoard expects all values of a tag to
/// be of one kind.
pub(super) fn of_counter(name: &str) -> String {
    let ours = [
        STEP_TIME,
        STEPS_PER_SECOND,
        SAMPLES_PER_SECOND,
        LOST,
        CONFIGURATION,
        GPU,
        FINDINGS,
        HPARAMS_START,
        HPARAMS_END,
    ];
    let of_metrics = METRICS.iter().map(|(_, name)| *name);
    let mut of_gpu = [BUSY, KERNELS, COPIED, PEAK_MEMORY, MFU].into_iter().chain(of_metrics);
    let tag = readable(name);
    let device = |tag: &str| {
        tag.strip_prefix("gpu").map(|rest| rest.trim_start_matches(|c: char| c.is_ascii_digit()).to_owned())
    };
    let is_ours =
        ours.contains(&&*tag) || device(&tag).is_some_and(|rest| of_gpu.any(|of_gpu| rest == format!("/{of_gpu}")));
    if is_ours || tag.is_empty() { format!("counter/{tag}") } else { tag }
}

/// Returns a name with `_` for control characters. One that is too long is truncated, and ends in a checksum that
/// distinguishes it from others.
fn readable(name: &str) -> String {
    let mut tag: String = name.chars().map(|c| if c.is_control() { '_' } else { c }).collect();
    if tag.len() > MAX_LEN {
        let rest = format!("…{:08x}", crc32c(name.as_bytes()));
        let end = (0..=MAX_LEN - rest.len()).rev().find(|&end| tag.is_char_boundary(end)).unwrap_or(0);
        tag.truncate(end);
        tag.push_str(&rest);
    }
    tag
}

pub(super) const BUSY: &str = "busy_percent";
pub(super) const KERNELS: &str = "kernels";
pub(super) const COPIED: &str = "copied_bytes";
pub(super) const PEAK_MEMORY: &str = "peak_memory_bytes";
pub(super) const MFU: &str = "mfu_percent";

/// The names of hardware counters.
const METRICS: [(MetricMeaning, &str); 8] = [
    (MetricMeaning::SmActive, "sm_active_percent"),
    (MetricMeaning::TensorActive, "tensor_active_percent"),
    (MetricMeaning::DramActive, "dram_active_percent"),
    (MetricMeaning::DramRead, "dram_read_bytes_per_second"),
    (MetricMeaning::DramWrite, "dram_write_bytes_per_second"),
    (MetricMeaning::PcieReceived, "pcie_received_bytes_per_second"),
    (MetricMeaning::PcieSent, "pcie_sent_bytes_per_second"),
    (MetricMeaning::SmClock, "sm_clock_hertz"),
];

/// Returns the name of a hardware counter: that of NVIDIA if the program named the metric.
pub(super) fn of_metric(metric: &GpuMetric) -> Cow<'static, str> {
    let known = METRICS.iter().find(|(meaning, _)| *meaning == metric.meaning());
    known.map_or_else(|| readable(metric.name()).into(), |&(_, name)| name.into())
}

/// Returns the tag of a GPU's scalar. The first GPU has no number, since most processes have only one.
pub(super) fn of_gpu(device: u32, name: &str) -> String {
    if device == 0 { format!("gpu/{name}") } else { format!("gpu{device}/{name}") }
}

#[cfg(test)]
mod tests {
    use super::{MAX_LEN, of_counter, of_gpu};

    #[test]
    fn names_are_kept_as_they_are_if_they_can_be() {
        for name in ["loss", "train/loss", "model::loss", "Verlust ☃", "a b", "gpu/temperature", "step"] {
            assert_eq!(of_counter(name), name);
        }
    }

    #[test]
    fn control_characters_are_replaced() {
        assert_eq!(of_counter("a\0b\nc\u{7f}d\u{85}e"), "a_b_c_d_e");
    }

    #[test]
    fn long_names_are_cut_between_characters_and_still_differ() {
        let [one, other] = ["a", "b"].map(|end| of_counter(&("é☃".repeat(2_000) + end)));
        assert!(one.len() <= MAX_LEN && one.len() > MAX_LEN - 4 && one.starts_with("é☃é☃"), "{one}");
        assert_ne!(one, other);
        assert_eq!(of_counter(&"x".repeat(MAX_LEN)), "x".repeat(MAX_LEN));
    }

    #[test]
    fn nothing_of_ours_is_mistaken_for_a_counter() {
        let gpu = [of_gpu(0, super::BUSY), of_gpu(12, super::MFU), of_gpu(1, "sm_clock_hertz")];
        for name in ["", "step/time_ms", "kernspan/gpu", super::HPARAMS_START, &gpu[0], &gpu[1], &gpu[2]] {
            assert_eq!(of_counter(name), format!("counter/{name}"));
        }
    }
}
