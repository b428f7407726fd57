//! The sample traces, exported to files.

pub(super) use crate::trace::sample::{awkward_trace, ranks};

use super::exporter::Exporter;
use crate::{
    analysis::Analysis,
    trace::{
        Trace,
        sample::{gpu_trace, operations_trace},
    },
};
use std::path::PathBuf;

/// Returns the sample traces, each with the bytes of the file that an exporter writes for it.
pub(super) fn exported<E: Exporter>(exporter: impl Fn(PathBuf) -> E) -> Vec<(Trace, Vec<u8>)> {
    let exported = |trace: Trace| {
        let folder = tempfile::tempdir().unwrap();
        let files = exporter(folder.path().to_owned()).export(&Analysis::of(&trace)).unwrap();
        (trace, std::fs::read(&files[0]).unwrap())
    };
    [gpu_trace(), awkward_trace(), operations_trace()].map(exported).into()
}
