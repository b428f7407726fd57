//! TensorBoard.

mod capture;
mod profile;

use self::capture::Capture;
use super::{ExportResult, Exporter};
use crate::trace::Trace;
use std::path::PathBuf;

/// TODO
#[derive(Clone, Debug)]
pub struct TensorBoard {
    folder: PathBuf,
}

impl TensorBoard {
    /// Writes into this folder, which is made if it is not there.
    pub fn to_dir(folder: impl Into<PathBuf>) -> Self {
        Self { folder: folder.into() }
    }
}

impl Exporter for TensorBoard {
    fn export(&mut self, trace: &Trace) -> ExportResult {
        Ok(vec![Capture::of(trace).write(&self.folder, &profile::encode(trace))?])
    }
}
