//! The files of ranks that `kernspan-nccl` writes.

use crate::fault::{Fault, reason_of, say};
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, fs, path::Path};

/// A rank's file. Members that it lacks are empty.
#[derive(Debug, Deserialize)]
pub(super) struct RingFile {
    pub(super) format: String,
    pub(super) version: u32,
    /// Why it was written: `end` by a rank that has ended.
    #[serde(default)]
    pub(super) reason: String,
    pub(super) written: u64,
    #[serde(default)]
    pub(super) host: String,
    pub(super) rank: u32,
    pub(super) world_size: u32,
    #[serde(default)]
    pub(super) step: u64,
    #[serde(default)]
    pub(super) channels: bool,
    #[serde(default)]
    pub(super) threads: Vec<Thread>,
    pub(super) communicators: Vec<Group>,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
pub(super) struct Thread {
    pub(super) thread: String,
    pub(super) spans: Vec<Frame>,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
pub(super) struct Frame {
    pub(super) name: String,
    pub(super) file: Option<String>,
    pub(super) line: Option<u32>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Group {
    pub(super) communicator: String,
    #[serde(default)]
    pub(super) name: String,
    pub(super) rank: u32,
    pub(super) ranks: u32,
    pub(super) closed: Option<u64>,
    pub(super) total: u64,
    pub(super) calls: Vec<Call>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Call {
    pub(super) kind: String,
    pub(super) function: String,
    pub(super) sequence: Option<u64>,
    pub(super) peer: Option<u32>,
    pub(super) entered: u64,
    pub(super) launched: Option<u64>,
    pub(super) started: Option<u64>,
    pub(super) finished: Option<u64>,
    #[serde(default)]
    pub(super) spans: Vec<Frame>,
}

/// Reads the files of a folder. Reports on standard error which could not be read, and why.
pub(super) fn read(folder: &Path) -> Result<(Vec<RingFile>, bool), Fault> {
    let failed = |error| Fault::Failed(format!("cannot read {}: {}", folder.display(), reason_of(&error)));
    let mut paths: Vec<_> =
        fs::read_dir(folder).map_err(failed)?.filter_map(|entry| Some(entry.ok()?.path())).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "nccl"));
    paths.sort();
    let mut files: BTreeMap<u32, RingFile> = BTreeMap::new();
    let mut is_complete = true;
    for path in paths {
        let text = fs::read(&path).map_err(|error| reason_of(&error));
        match text.and_then(|text| parse(&text)) {
            Ok(file) => {
                if let Some(other) = files.insert(file.rank, file) {
                    say(&format!("{}: rank {} has several files; the last is used", path.display(), other.rank));
                    is_complete = false;
                }
            }
            Err(problem) => {
                say(&format!("cannot read {}: {problem}", path.display()));
                is_complete = false;
            }
        }
    }
    if files.is_empty() {
        let message = format!(
            "no files of ranks in {}: programs write rankN.nccl there with `kernspan_nccl::Nccl::hangs_to_dir`",
            folder.display()
        );
        return Err(Fault::Failed(message));
    }
    Ok((files.into_values().collect(), is_complete))
}

fn parse(text: &[u8]) -> Result<RingFile, String> {
    let file: RingFile = serde_json::from_slice(text).map_err(|error| match error.is_eof() {
        true => "it ends too early".to_owned(),
        false => format!("it is not a file of kernspan-nccl: {error}"),
    })?;
    match (file.format.as_str(), file.version) {
        ("kernspan-nccl", 1) => Ok(file),
        ("kernspan-nccl", version) => Err(format!("its format has version {version}; this program knows version 1")),
        (other, _) => Err(format!("its format is {other:?} rather than \"kernspan-nccl\"")),
    }
}
