//! What was lost of a run, in sentences for the top of its page.

use crate::{export::json::Object, report::units, trace::Losses};

/// The numbers of records that were kept, which losses are compared with.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Kept {
    /// Spans, events, operations and API calls.
    pub(super) host: u64,
    /// Kernels, copies and fills.
    pub(super) gpu: u64,
}

/// A cause of losses: its count, what happened, and what helps.
type Cause = (u64, &'static str, &'static str);

/// Returns a sentence for each kind of data that is incomplete: how much of it is missing, why, and what helps.
pub(super) fn sentences(losses: &Losses, kept: Kept) -> Vec<String> {
    let memory = "the memory limit was reached";
    let host: [Cause; 4] = [
        (losses.over_memory, memory, "Raise `memory_limit_bytes`, or record fewer steps."),
        (losses.lane_full, "queues of threads were full", "Raise `lane_capacity`."),
        (losses.late, "threads wrote them after their window had closed", ""),
        (losses.unreachable, "their threads were ending", ""),
    ];
    let gpu: [Cause; 4] = [
        (losses.gpu_over_memory, memory, "Raise `memory_limit_bytes`, or record fewer steps."),
        (losses.gpu_dropped, "CUPTI dropped them", ""),
        (losses.gpu_unfinished, "they never came back from the GPU", ""),
        (losses.gpu_unreadable, "they make no sense", ""),
    ];
    let fields: [Cause; 1] =
        [(losses.fields, "too many spans with fields were alive, or fields came too late", "Raise `live_spans`.")];
    let unread: [Cause; 1] = [(losses.unread, "they are of no known kind, or have no time", "")];
    let of = |count: u64, kept: u64, what: &str| {
        let share = 100.0 * count as f64 / count.saturating_add(kept).max(1) as f64;
        let share = if share < 0.01 { "Less than 0.01%".to_owned() } else { units::percent(share) };
        format!("{share} of {what} were not recorded")
    };
    [
        sentence(&host, |count| of(count, kept.host, "the program's spans, events and calls")),
        sentence(&gpu, |count| of(count, kept.gpu, "the GPU's kernels, copies and fills")),
        sentence(&fields, |count| format!("{} spans have no fields", thousands(count))),
        sentence(&unread, |count| format!("{} events of the file were not read", thousands(count))),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// Returns the sentence of these causes, if there are any losses.
fn sentence(causes: &[Cause], what: impl FnOnce(u64) -> String) -> Option<String> {
    let causes: Vec<_> = causes.iter().filter(|(count, ..)| *count > 0).collect();
    let total = causes.iter().fold(0_u64, |sum, (count, ..)| sum.saturating_add(*count));
    let reasons: Vec<_> = causes.iter().map(|(count, why, _)| format!("{why} ({})", thousands(*count))).collect();
    let mut remedies: Vec<_> = causes.iter().map(|(.., remedy)| *remedy).filter(|remedy| !remedy.is_empty()).collect();
    remedies.insert(0, "");
    (total > 0).then(|| format!("{}: {}.{}", what(total), reasons.join(", and "), remedies.join(" ")))
}

/// Writes the sentences, if there are any. The page marks the sections that rest on incomplete data.
pub(super) fn write(losses: &Losses, kept: Kept, document: &mut Object<'_>) {
    let sentences = sentences(losses, kept);
    if !sentences.is_empty() {
        document.array("losses", |array| sentences.iter().for_each(|line| array.string(line)));
    }
}

/// Returns a number with a comma after each thousand.
fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let groups: Vec<_> = digits.as_bytes().rchunks(3).rev().map(String::from_utf8_lossy).collect();
    groups.join(",")
}

#[cfg(test)]
mod tests {
    use super::{Kept, sentences};
    use crate::trace::Losses;

    #[test]
    fn losses_are_said_with_their_share_their_causes_and_what_helps() {
        let kept = Kept { host: 1_343_341, gpu: 10 };
        assert_eq!(sentences(&Losses::default(), kept), [""; 0]);
        let losses = Losses { over_memory: 591_831, lane_full: 11_699, gpu_dropped: 30, ..Losses::default() };
        assert_eq!(
            sentences(&losses, kept),
            [
                "31.00% of the program's spans, events and calls were not recorded: the memory limit was reached \
                 (591,831), and queues of threads were full (11,699). Raise `memory_limit_bytes`, or record fewer \
                 steps. Raise `lane_capacity`.",
                "75.00% of the GPU's kernels, copies and fills were not recorded: CUPTI dropped them (30).",
            ]
        );
        let one = Losses { late: 1, fields: 2, ..Losses::default() };
        assert_eq!(
            sentences(&one, kept),
            [
                "Less than 0.01% of the program's spans, events and calls were not recorded: threads wrote them after \
                 their window had closed (1).",
                "2 spans have no fields: too many spans with fields were alive, or fields came too late (2). Raise \
                 `live_spans`.",
            ]
        );
    }
}
