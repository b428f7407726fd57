//! Reads traces from files: Kineto's JSON, as kernspan and PyTorch write it, and recorded windows.
//!
//! [`read`] takes a path, [`from_bytes`] what was read already. A file of [`Chrome`](crate::Chrome) gives the same
//! [`Report`](crate::Report) as the trace that it was made of. In a file of `torch.profiler`, operators, labels and
//! Python functions are spans, whose [`target`](crate::trace::Callsite::target) is the category of the event; shapes
//! and element types are fields that follow the [`convention`](crate::trace::convention), and `ProfilerStep#N` are
//! steps. [`Torch`](crate::trace::Torch) has the parts that only such files have, and counts what is left out of them.
//!
//! Events of no known kind are counted in [`Losses::unread`](crate::trace::Losses::unread).

mod assemble;
mod callsites;
mod document;
mod error;
mod event;
mod gpu;
mod growth;
mod header;
mod host;
mod inputs;
mod intake;
mod raw;
mod rows;
mod scanner;
mod span_ids;
#[cfg(test)]
mod tests;

pub use self::error::ReadError;

use self::{intake::Intake, scanner::Scanner};
use crate::trace::Trace;
use std::{
    fs::File,
    io::{self, Read},
    path::Path,
};

/// Reads the traces in a file: Kineto's JSON, plain or as `.gz`, of kernspan or of PyTorch, or a recorded window
/// ([`raw_to_dir`](crate::ProfilerBuilder::raw_to_dir)).
///
/// ```no_run
/// let traces = kernspan::read("runs/mnist/host_4711.1.pt.trace.json")?;
/// println!("{}", kernspan::Report::of(&traces));
/// # Ok::<(), kernspan::read::ReadError>(())
/// ```
///
/// # Errors
///
/// If the file cannot be opened, ends too early, or is in another format: see [`ReadError`].
pub fn read(path: impl AsRef<Path>) -> Result<Vec<Trace>, ReadError> {
    let mut file = File::open(path)?;
    if !file.metadata()?.is_file() {
        // A pipe cannot be mapped.
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        return from_bytes(&bytes);
    }
    from_bytes(&map(&file)?)
}

/// Maps a file into memory, which takes no memory of its own and no time to copy.
#[allow(unsafe_code, reason = "mapping a file is unsafe")]
fn map(file: &File) -> io::Result<memmap2::Mmap> {
    // SAFETY: the bytes are only read. If another process changes the file meanwhile, what is read is wrong, or the
    // process gets SIGBUS if the file is made shorter. Files of traces appear whole, by renaming, and are not changed.
    unsafe { memmap2::Mmap::map(file) }
}

/// Reads the traces in a file that is in memory already: see [`read`].
///
/// ```
/// let json = br#"{"traceEvents": [
///     {"ph": "X", "cat": "cpu_op", "name": "forward", "pid": 1, "tid": 1, "ts": 10.5, "dur": 2.25}
/// ]}"#;
/// let traces = kernspan::read::from_bytes(json)?;
/// let forward = traces[0].spans().next().unwrap();
/// assert_eq!((forward.name(), forward.duration().as_nanos()), ("forward", 2250));
/// # Ok::<(), kernspan::read::ReadError>(())
/// ```
///
/// # Errors
///
/// If the bytes end too early, or are in another format: see [`ReadError`].
pub fn from_bytes(bytes: &[u8]) -> Result<Vec<Trace>, ReadError> {
    #[cfg(feature = "gzip")]
    if bytes.starts_with(&[0x1f, 0x8b]) {
        let mut plain = Vec::new();
        flate2::read::MultiGzDecoder::new(bytes).take(ReadError::MAX_BYTES + 1).read_to_end(&mut plain)?;
        return match plain.len() as u64 > ReadError::MAX_BYTES {
            true => Err(ReadError::TooLarge),
            false => from_plain(&plain),
        };
    }
    from_plain(bytes)
}

fn from_plain(bytes: &[u8]) -> Result<Vec<Trace>, ReadError> {
    match bytes.iter().find(|byte| !byte.is_ascii_whitespace()) {
        Some(b'{' | b'[') => from_json(bytes).map(|trace| vec![trace]),
        None => Err(ReadError::UnknownFormat { seen: "an empty file" }),
        Some(_) => other_format(bytes),
    }
}

#[cfg(all(feature = "cuda", target_os = "linux"))]
fn other_format(bytes: &[u8]) -> Result<Vec<Trace>, ReadError> {
    let unknown = |_| ReadError::UnknownFormat { seen: "neither" };
    crate::replay::replay(bytes).map(|trace| vec![trace]).map_err(unknown)
}

#[cfg(not(all(feature = "cuda", target_os = "linux")))]
fn other_format(_: &[u8]) -> Result<Vec<Trace>, ReadError> {
    Err(ReadError::UnknownFormat { seen: "no JSON, and this build reads no recorded windows (feature `cuda`)" })
}

fn from_json(bytes: &[u8]) -> Result<Trace, ReadError> {
    // Checked once, which is quicker than for each string.
    let text = std::str::from_utf8(bytes).map_err(|error| ReadError::NotUtf8 { offset: error.valid_up_to() })?;
    let mut intake = Intake::default();
    let mut scanner = Scanner::new(text);
    intake.read(&mut scanner).map_err(|wrong| scanner.error(wrong))?;
    match intake.known == 0 && intake.unread > 0 {
        true => Err(ReadError::UnknownFormat { seen: "JSON without trace events" }),
        false => Ok(intake.into_trace()),
    }
}
