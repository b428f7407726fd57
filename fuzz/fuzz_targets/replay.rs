//! Reads any bytes as a recorded file, or as CUPTI's records in one. The result must be a valid trace or an error.
//!
//! The first byte says which of the two, and whether the trace is also exported, which takes most of the time.

#![no_main]

#[allow(dead_code, reason = "it is shared with the tests")]
#[path = "../../tests/support/recorded.rs"]
mod recorded;

use libfuzzer_sys::{Corpus, fuzz_target};
use recorded::{Recorded, check, check_exports};
use std::{borrow::Cow, sync::LazyLock};

static RECORDED: LazyLock<[Recorded; 2]> = LazyLock::new(|| {
    let fixtures: [&[u8]; 2] = [
        include_bytes!("../../tests/fixtures/gpu/training.kernspan"),
        include_bytes!("../../tests/fixtures/gpu/calls.kernspan"),
    ];
    fixtures.map(Recorded::new)
});

static FOLDER: LazyLock<tempfile::TempDir> = LazyLock::new(|| tempfile::tempdir().expect("a temporary folder"));

fuzz_target!(|input: &[u8]| -> Corpus {
    let Some((&how, bytes)) = input.split_first() else { return Corpus::Reject };
    let file = match how % 4 {
        0 | 1 => Cow::Owned(RECORDED[usize::from(how % 4)].with_bytes(bytes)),
        _ => Cow::Borrowed(bytes),
    };
    let Ok(trace) = kernspan::replay(&*file) else { return Corpus::Keep };
    check(&trace);
    if how >= 240 {
        check_exports(&trace, FOLDER.path());
    }
    Corpus::Keep
});
