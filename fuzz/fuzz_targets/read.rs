//! Reads any bytes as a file of a trace. The result must be a trace that can be analysed, or an error; and text that
//! `serde_json` does not take for JSON must be an error.
//!
//! The first byte says whether the trace is also exported, which takes most of the time.

#![no_main]

#[allow(dead_code, reason = "it is shared with the tests")]
#[path = "../../tests/support/recorded.rs"]
mod recorded;

use kernspan::{Report, Trace, analysis, report::key_averages};
use libfuzzer_sys::{Corpus, fuzz_target};
use recorded::check_exports;
use serde::de::IgnoredAny;
use std::sync::LazyLock;

static FOLDER: LazyLock<tempfile::TempDir> = LazyLock::new(|| tempfile::tempdir().expect("a temporary folder"));

fuzz_target!(|input: &[u8]| -> Corpus {
    let Some((&how, bytes)) = input.split_first() else { return Corpus::Reject };
    let traces = kernspan::read::from_bytes(bytes);
    if matches!(bytes.trim_ascii_start(), [b'{' | b'[', ..]) && serde_json::from_slice::<IgnoredAny>(bytes).is_err() {
        assert!(traces.is_err(), "this is not JSON");
    }
    for trace in traces.iter().flatten() {
        analyse(trace);
        if how >= 240 {
            check_exports(trace, FOLDER.path());
        }
    }
    Corpus::Keep
});

/// Asks for all that is made of a trace.
fn analyse(trace: &Trace) {
    let _ = (Report::of([trace]).to_string(), key_averages(trace));
    let _ = (analysis::launches(trace), analysis::stream_idle(trace), analysis::queue_lengths(trace));
    let _ = analysis::Analysis::of(trace).gpu_steps();
}
