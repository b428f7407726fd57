//! Where a file comes from, by its beginning alone.

use super::{
    BLOCK, ReadError, first_block,
    intake::Intake,
    text::{ReaderBlocks, Text},
};
use crate::{
    export::Utc,
    trace::{Metadata, Timestamp},
};
use std::{
    fs::File,
    io::{Cursor, Read},
    path::Path,
};

/// Where a file comes from: what tells the runs in a folder apart.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Origin {
    /// The process that recorded it. Its id is 0, and its host is empty, if the file does not say.
    pub metadata: Metadata,
    /// The number of the window. Files of PyTorch have none.
    pub window: Option<u32>,
    /// The start of the window. Files of PyTorch do not say, so it is that of the earliest event at their beginning.
    pub start: Timestamp,
    /// The number and the start of the first step, if one is at the beginning of the file.
    pub step: Option<(u64, Timestamp)>,
    /// Whether `kernspan merge` made it of other files.
    pub is_merged: bool,
}

impl Origin {
    /// Returns the start as a date and a time of day: `2026-11-19 14:03:12 UTC`.
    pub fn started(&self) -> String {
        Utc::from(self.start).to_string()
    }
}

/// Reads where a file comes from. Of JSON, this reads no more than the header and the first events; a recorded window
/// is decompressed, but not decoded.
///
/// ```no_run
/// let origin = kernspan::read::origin("runs/mnist/host_4711.1.pt.trace.json")?;
/// println!("process {} recorded it at {}", origin.metadata.pid, origin.started());
/// # Ok::<(), kernspan::read::ReadError>(())
/// ```
///
/// # Errors
///
/// If the beginning cannot be read. The rest may still be truncated or corrupted.
pub fn origin(path: impl AsRef<Path>) -> Result<Origin, ReadError> {
    let mut file = File::open(path)?;
    let start = first_block(&mut file)?;
    #[cfg(feature = "gzip")]
    if start.starts_with(&[0x1f, 0x8b]) {
        let mut plain = flate2::read::MultiGzDecoder::new(Cursor::new(start).chain(file));
        let start = first_block(&mut plain)?;
        return of_plain(start, plain);
    }
    of_plain(start, file)
}

fn of_plain(start: Vec<u8>, rest: impl Read) -> Result<Origin, ReadError> {
    let is_json = matches!(start.iter().find(|byte| !byte.is_ascii_whitespace()), None | Some(b'{' | b'['));
    let all = Cursor::new(start).chain(rest).take(ReadError::MAX_BYTES);
    if !is_json {
        return of_window(all);
    }
    let mut intake = Intake { only_origin: true, ..Intake::default() };
    intake.read(&mut Text::new(&mut ReaderBlocks::new(all, BLOCK, u64::MAX)))?;
    if intake.known == 0 {
        return Err(ReadError::UnknownFormat { seen: "JSON without trace events" });
    }
    let (first_process, is_torch) = (intake.rows.first_process(), intake.header.is_torch());
    let is_merged = !intake.header.get("kernspan_merged").0.is_empty();
    let trace = intake.into_trace();
    let mut metadata = trace.metadata().clone();
    if metadata.pid == 0 {
        metadata.pid = first_process.unwrap_or(0);
    }
    let window = (!is_torch).then(|| trace.window());
    let step = trace.steps().first().map(|step| (step.number(), step.start()));
    Ok(Origin { metadata, window, start: trace.start(), step, is_merged })
}

#[cfg(all(feature = "cuda", target_os = "linux"))]
fn of_window(file: impl Read) -> Result<Origin, ReadError> {
    let unknown = |_| ReadError::UnknownFormat { seen: "neither" };
    let (metadata, window, start) = crate::replay::origin(file).map_err(unknown)?;
    Ok(Origin { metadata, window: Some(window), start, step: None, is_merged: false })
}

#[cfg(not(all(feature = "cuda", target_os = "linux")))]
fn of_window(_: impl Read) -> Result<Origin, ReadError> {
    Err(ReadError::UnknownFormat { seen: "no JSON, and this build reads no recorded windows (feature `cuda`)" })
}

#[cfg(test)]
mod tests {
    use super::{Origin, origin};
    use crate::{
        Chrome, Exporter,
        analysis::Analysis,
        read::read,
        trace::{Metadata, Trace, sample},
    };
    use std::{
        fs,
        path::{Path, PathBuf},
        sync::Arc,
    };

    fn fixture(path: &str) -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(path)
    }

    #[test]
    fn the_beginning_of_a_file_names_its_process_and_its_run() {
        let folder = tempfile::tempdir().unwrap();
        for run in [None, Some("42 1".to_owned())] {
            let mut trace = sample::awkward_trace();
            trace.metadata = Arc::new(Metadata { run, ..(*trace.metadata).clone() });
            let files = Chrome::to_dir(folder.path()).export(&Analysis::of(&trace)).unwrap();
            let found = origin(&files[0]).unwrap();
            assert_eq!(found.metadata, *trace.metadata());
            assert_eq!((found.window, found.start, found.is_merged), (Some(trace.window()), trace.start(), false));
            assert_eq!(read(&files[0]).unwrap()[0].metadata(), trace.metadata());
        }
    }

    #[test]
    fn it_is_that_of_the_whole_file() {
        let is_same = |trace: &Trace, found: &Origin| {
            let of_file = trace.metadata();
            let key = |it: &Metadata| (it.host.clone(), it.pid, it.rank, it.world_size);
            assert_eq!(key(&found.metadata), key(of_file));
            assert_eq!(found.window.is_none(), trace.torch().is_some());
            let step = trace.steps().first().map(|step| (step.number(), step.start()));
            assert!(found.step == step || trace.torch().is_none(), "{:?}, not {step:?}", found.step);
        };
        for file in ["torch/transformer.pt.trace.json.gz", "ranks/late/rank2.json.gz", "gpu/candle.kernspan"] {
            let path = fixture(file);
            is_same(&read(&path).unwrap()[0], &origin(&path).unwrap());
        }
    }

    #[test]
    fn only_the_beginning_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let cut = folder.path().join("cut.json.gz");
        let whole = fixture("ranks/late/rank2.json.gz");
        let bytes = fs::read(&whole).unwrap();
        fs::write(&cut, &bytes[..bytes.len() / 2]).unwrap();
        assert!(read(&cut).is_err());
        assert_eq!(origin(&cut).unwrap(), origin(&whole).unwrap());
        for nothing in ["", "{", "[]", r#"{"weights": [1, 2]}"#, r#"[{"key": "aten::mm"}]"#, "\u{8}\u{2}nothing"] {
            let path = folder.path().join("nothing.json");
            fs::write(&path, nothing).unwrap();
            assert!(origin(&path).is_err(), "{nothing}");
        }
    }
}
