//! Stages of the input pipeline.

use super::{Callsite, Span, Value, convention};
use std::{fmt, sync::OnceLock};

/// A stage of the input pipeline, such as reading or preprocessing: see [`convention::INPUT`].
///
/// ```
/// use kernspan::{Collected, Profiler, trace::InputStage};
/// use tracing_subscriber::prelude::*;
///
/// let collected = Collected::new();
/// let (layer, profiler) = Profiler::builder().export(collected.clone()).build()?;
/// tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
///     tracing::info_span!("decode", op.input = "preprocess").in_scope(|| ());
/// });
/// profiler.finish()?;
/// let trace = collected.only();
/// assert_eq!(trace.spans().next().unwrap().input_stage(), Some(InputStage::Preprocess));
/// # Ok::<(), kernspan::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum InputStage {
    /// The whole pipeline: the program waits for the next batch, however that is produced.
    Load,
    /// Reads files or from the network.
    Read,
    /// Turns the data read into model input.
    Preprocess,
    /// Puts a batch where the device takes it from.
    Enqueue,
}

/// Names of spans that load data, in lower case and without separators, so that `next_batch`, `NextBatch` and
/// `next-batch` are the same. Ambiguous names are not included: a span called `load` or `read` may load a model.
const LOADS: [&str; 35] = [
    "augment",
    "augmentation",
    "batchload",
    "batchloading",
    "buildbatch",
    "collate",
    "collatefn",
    "data",
    "dataload",
    "dataloader",
    "dataloadernext",
    "dataloading",
    "decodeimages",
    "fetchbatch",
    "fetchdata",
    "getbatch",
    "getdata",
    "inputpipeline",
    "loadbatch",
    "loaddata",
    "loadimages",
    "makebatch",
    "nextbatch",
    "prefetch",
    "preparebatch",
    "preparedata",
    "preprocess",
    "preprocessing",
    "readbatch",
    "readdata",
    "recvbatch",
    "receivebatch",
    "samplebatch",
    "traindataloadernext",
    "waitforbatch",
];

/// Names that load data in a module or on a type of [`SOURCES`], such as `next` in the module `train::data_loader`.
const METHODS: [&str; 6] = ["fetch", "get", "load", "next", "read", "recv"];

/// Names of modules and types that data comes from.
const SOURCES: [&str; 6] = ["batches", "data", "dataiter", "dataloader", "dataset", "loader"];

/// Prefixes of the names that PyTorch gives to the time in its data loaders and in torchdata pipes.
const TORCH: [&str; 2] = ["enumerate(DataLoader)#", "enumerate(DataPipe)#"];

impl InputStage {
    /// The name of spans that are [`Load`](Self::Load) without the field `op.input`, used by the integrations. Other
    /// names are recognised as well: see [`convention`].
    pub const DATA: &'static str = "data";

    /// The value of the field `op.input`: `load`, `read`, `preprocess` or `enqueue`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Load => "load",
            Self::Read => "read",
            Self::Preprocess => "preprocess",
            Self::Enqueue => "enqueue",
        }
    }

    pub(super) fn of(span: Span<'_>) -> Option<Self> {
        match span.field(convention::INPUT).and_then(Value::as_str) {
            Some("read") => Some(Self::Read),
            Some("preprocess") => Some(Self::Preprocess),
            Some("enqueue") => Some(Self::Enqueue),
            Some("load") => Some(Self::Load),
            Some(_) => None,
            None => span.callsite().loads.get(span.callsite()).then_some(Self::Load),
        }
    }
}

/// Whether the spans of a callsite load data, by its name and target. It is computed once, since analyses ask for each
/// span, and there may be millions.
#[derive(Default)]
pub(crate) struct LoadsData(OnceLock<bool>);

impl LoadsData {
    fn get(&self, callsite: &Callsite) -> bool {
        *self.0.get_or_init(|| is_load(callsite.name(), callsite.target()))
    }
}

impl Clone for LoadsData {
    /// Returns an uncomputed one, since the copy of a callsite may get another name.
    fn clone(&self) -> Self {
        Self::default()
    }
}

impl PartialEq for LoadsData {
    /// Callsites that are otherwise equal are equal.
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for LoadsData {}

impl fmt::Debug for LoadsData {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LoadsData")
    }
}

/// Whether a span of this name and target loads data.
fn is_load(name: &str, target: &str) -> bool {
    let mut parts = name.rsplit(['.', ':', '/']).filter(|part| !part.is_empty());
    let Some(last) = parts.next() else { return false };
    let source = parts.next().or_else(|| target.rsplit("::").next()).unwrap_or_default();
    let is_in = |words: &[&str], text: &str| words.iter().any(|word| is_word(word, text));
    TORCH.iter().any(|start| name.starts_with(start))
        || is_in(&LOADS, last)
        || (is_in(&METHODS, last) && is_in(&SOURCES, source))
}

/// Whether a text equals a word, ignoring capitals and separators.
fn is_word(word: &str, text: &str) -> bool {
    let letters = text.bytes().filter(|byte| !matches!(byte, b'_' | b'-' | b' '));
    word.bytes().eq(letters.map(|byte| byte.to_ascii_lowercase()))
}

#[cfg(test)]
mod tests {
    use super::{InputStage, is_load};
    use crate::trace::sample::{set_fields, spans_trace};

    #[test]
    fn spans_that_load_data_are_recognised_by_their_names() {
        let loads = ["data", "next_batch", "NextBatch", "load-batch", "DataLoader", "dataloader.next", "Dataset::get"];
        assert!(loads.iter().all(|name| is_load(name, "train")));
        for name in ["enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", "enumerate(DataPipe)#Mapper"] {
            assert!(is_load(name, ""), "{name}");
        }
        assert!(is_load("[pl][profile][_TrainingEpochLoop].train_dataloader_next", ""), "of Lightning");
        assert!(is_load("next", "train::data_loader") && is_load("next", "loader"));
        let others =
            ["next", "load", "load_model", "metadata", "batch_norm", "next_batch_size", "", "::", "get_batches"];
        assert!(others.iter().all(|name| !is_load(name, "train")));
        assert!(!is_load("next", "train::tokens") && !is_load("checkpoint::load", "train::data"));
    }

    #[test]
    fn the_field_decides_before_the_name() {
        let mut trace = spans_trace(&[("next_batch", None, 0, 10), ("step", None, 10, 20)]);
        let stage = |trace: &crate::Trace, span: usize| trace.spans().nth(span).unwrap().input_stage();
        assert_eq!((stage(&trace, 0), stage(&trace, 1)), (Some(InputStage::Load), None));
        set_fields(&mut trace, 0, &[("op.input", "none")]);
        set_fields(&mut trace, 1, &[("op.input", "read")]);
        assert_eq!((stage(&trace, 0), stage(&trace, 1)), (None, Some(InputStage::Read)));
    }
}
