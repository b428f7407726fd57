//! Reads traces from files: Kineto's JSON, as kernspan and PyTorch write it, and recorded windows.
//!
//! [`read`] takes a path, [`from_bytes`] takes bytes in memory; [`origin`] reads only where a file comes from.
//! A [`Chrome`](crate::Chrome) file gives the same [`Report`](crate::Report) as the trace it was written from. In a
//! `torch.profiler` file, operators, labels and Python functions become spans, whose
//! [`target`](crate::trace::Callsite::target) is the category of the event. Shapes and element types become fields that
//! follow the [`convention`](crate::trace::convention), and `ProfilerStep#N` become steps.
//! [`Torch`](crate::trace::Torch) contains the parts that only such files have, and counts what is left out of them.
//!
//! Events of unknown kind are counted in [`Losses::unread`](crate::trace::Losses::unread).

mod assemble;
mod callsites;
mod counters;
mod error;
mod event;
mod gpu;
mod growth;
mod header;
mod host;
mod inputs;
mod intake;
mod origin;
mod raw;
mod rows;
mod samples;
mod scanner;
mod shapes;
mod span_ids;
#[cfg(test)]
mod tests;
mod text;

pub use self::{
    error::ReadError,
    origin::{Origin, origin},
};

use self::{
    intake::Intake,
    text::{BLOCK, Blocks, ReaderBlocks, Text, ThreadBlocks},
};
use crate::trace::Trace;
use std::{
    fs::File,
    io::{self, Cursor, Read},
    path::Path,
    thread,
};

/// Reads the traces in a file: Kineto's JSON, plain or as `.gz`, from kernspan or PyTorch, or a recorded window
/// ([`raw_to_dir`](crate::ProfilerBuilder::raw_to_dir)).
///
/// JSON is read in blocks, so memory is needed only for the trace, however large the text is. Meanwhile, a second
/// thread reads, decompresses and checks the next blocks.
///
/// ```no_run
/// let traces = kernspan::read("runs/mnist/host_4711.1.pt.trace.json")?;
/// println!("{}", kernspan::Report::of(&traces));
/// # Ok::<(), kernspan::read::ReadError>(())
/// ```
///
/// # Errors
///
/// If the file cannot be opened, is truncated, or is in another format: see [`ReadError`].
pub fn read(path: impl AsRef<Path>) -> Result<Vec<Trace>, ReadError> {
    from_reader(File::open(path)?)
}

/// Reads the traces in a file that is already in memory: see [`read`].
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
/// If the bytes are truncated or in another format: see [`ReadError`].
pub fn from_bytes(bytes: &[u8]) -> Result<Vec<Trace>, ReadError> {
    from_reader(bytes)
}

/// Reads the traces from any reader, such as standard input: see [`read`].
///
/// ```no_run
/// let traces = kernspan::read::from_reader(std::io::stdin())?;
/// # Ok::<(), kernspan::read::ReadError>(())
/// ```
///
/// # Errors
///
/// If nothing can be read, or the file is truncated or in another format: see [`ReadError`].
pub fn from_reader(mut reader: impl Read + Send) -> Result<Vec<Trace>, ReadError> {
    let start = first_block(&mut reader)?;
    #[cfg(feature = "gzip")]
    if start.starts_with(&[0x1f, 0x8b]) {
        let mut plain = flate2::read::MultiGzDecoder::new(Cursor::new(start).chain(reader));
        let start = first_block(&mut plain)?;
        return from_plain(start, plain, ReadError::MAX_BYTES);
    }
    from_plain(start, reader, u64::MAX)
}

fn first_block(reader: &mut impl Read) -> io::Result<Vec<u8>> {
    let mut block = Vec::with_capacity(BLOCK);
    reader.take(BLOCK as u64).read_to_end(&mut block)?;
    Ok(block)
}

/// Reads the traces in a file whose first block has been read. It has at most this many bytes.
fn from_plain(start: Vec<u8>, rest: impl Read + Send, most: u64) -> Result<Vec<Trace>, ReadError> {
    let has_more = start.len() == BLOCK;
    let first = start.iter().copied().find(|byte| !byte.is_ascii_whitespace());
    let all = Cursor::new(start).chain(rest);
    match first {
        Some(b'{' | b'[') if !has_more => from_json(&mut ReaderBlocks::new(all, BLOCK, most)),
        // A document may begin with any amount of white space.
        None | Some(b'{' | b'[') if has_more => thread::scope(|scope| {
            let mut blocks = ThreadBlocks::start(scope, ReaderBlocks::new(all, BLOCK, most))?;
            from_json(&mut blocks)
        }),
        None => Err(ReadError::UnknownFormat { seen: "an empty file" }),
        Some(_) => other_format(all, most),
    }
}

#[cfg(all(feature = "cuda", target_os = "linux"))]
fn other_format(file: impl Read, most: u64) -> Result<Vec<Trace>, ReadError> {
    let mut bytes = Vec::new();
    file.take(most.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most {
        return Err(ReadError::TooLarge);
    }
    let unknown = |_| ReadError::UnknownFormat { seen: "neither" };
    crate::replay::replay(&*bytes).map(|trace| vec![trace]).map_err(unknown)
}

#[cfg(not(all(feature = "cuda", target_os = "linux")))]
fn other_format(_: impl Read, _: u64) -> Result<Vec<Trace>, ReadError> {
    Err(ReadError::UnknownFormat { seen: "no JSON, and this build reads no recorded windows (feature `cuda`)" })
}

fn from_json(blocks: &mut dyn Blocks) -> Result<Vec<Trace>, ReadError> {
    let mut intake = Intake::default();
    intake.read(&mut Text::new(blocks))?;
    match intake.known == 0 && intake.unread > 0 {
        true => Err(ReadError::UnknownFormat { seen: "JSON without trace events" }),
        false => Ok(vec![intake.into_trace()]),
    }
}
