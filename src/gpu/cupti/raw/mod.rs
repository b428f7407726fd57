//! What CUPTI wrote in a window, byte by byte, with the spans and calls around it: in a file, and back.
//!
//! The file is a protobuf message, compressed where the feature `gzip` is on. It has what correlating needs and no more: no
//! fields, events or counters.

mod window;

use self::window::Window;
use super::{decode::decode, names};
use crate::{
    Error,
    export::write_file,
    gpu::{
        gather::{Call, Calls, Gathered, Role},
        record::{GpuRecord, GpuRecording},
    },
    quick::QuickMap,
    trace::{ApiCallData, Trace},
};
use prost::{Message, bytes::Bytes};
use std::{
    collections::{BTreeMap, HashMap},
    io::{self, Read, Write},
    path::{Path, PathBuf},
    sync::Arc,
};

/// Records as they were, each after its length, and the names they point to.
#[derive(Clone, Debug, Default)]
pub(crate) struct RawRecords {
    bytes: Vec<u8>,
    names: BTreeMap<u64, String>,
}

impl RawRecords {
    pub(super) fn add(&mut self, record: &[u8]) {
        let length = u32::try_from(record.len()).unwrap_or(u32::MAX);
        self.bytes.extend_from_slice(&length.to_le_bytes());
        self.bytes.extend_from_slice(record);
    }

    pub(super) fn name(&mut self, address: usize, name: &str) {
        self.names.entry(address as u64).or_insert_with(|| name.to_owned());
    }
}

/// The records in `bytes`, until one is cut off.
fn records(mut bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let (length, rest) = bytes.split_first_chunk()?;
        let (record, rest) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
        bytes = rest;
        Some(record)
    })
}

/// Writes a window's file, and returns its path.
pub(crate) fn write(
    folder: &Path,
    trace: &Trace,
    raw: &RawRecords,
    in_use: &HashMap<u32, u64>,
) -> Result<PathBuf, Error> {
    let bytes = Window::of(trace, raw, in_use).encode_to_vec();
    write_file(folder, trace, ".kernspan", |out| {
        #[cfg(feature = "gzip")]
        {
            let mut out = flate2::write::GzEncoder::new(out, flate2::Compression::best());
            out.write_all(&bytes)?;
            out.finish().map(drop)
        }
        #[cfg(not(feature = "gzip"))]
        out.write_all(&bytes)
    })
}

/// Makes a trace again of a window that [`raw_to_dir`](crate::ProfilerBuilder::raw_to_dir) wrote down: what CUPTI wrote is
/// decoded and joined to the spans anew.
///
/// It needs no GPU, so it serves for tests and for reports of what went wrong. Fields, events and counters are not in the file.
///
/// ```no_run
/// let trace = kernspan::replay(std::fs::File::open("window.kernspan")?)?;
/// for work in trace.work() {
///     println!("{} {:?} in {:?}", work.name(), work.duration(), work.span().map(|span| span.name()));
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
///
/// If it cannot be read or is no such file.
pub fn replay(mut recorded: impl Read) -> io::Result<Trace> {
    let mut bytes = Vec::new();
    recorded.read_to_end(&mut bytes)?;
    #[cfg(feature = "gzip")]
    if bytes.starts_with(&[0x1f, 0x8b]) {
        let mut plain = Vec::new();
        flate2::read::GzDecoder::new(&*bytes).read_to_end(&mut plain)?;
        bytes = plain;
    }
    let window = Window::decode(Bytes::from(bytes)).map_err(io::Error::other)?;
    window.into_trace().ok_or_else(|| io::Error::other("a recorded window that refers to what is not in it"))
}

/// Decodes the records and takes those of the trace's window, as the reader does.
fn gather(trace: &Trace, bytes: &[u8], names: &BTreeMap<u64, String>) -> GpuRecording {
    let mut known: QuickMap<usize, (Arc<str>, Arc<str>)> = QuickMap::default();
    let mut name_of = |address: usize| {
        let name = known.entry(address).or_insert_with(|| {
            let raw = names.get(&(address as u64)).map_or("unknown", String::as_str);
            (Arc::from(names::demangle(raw)), Arc::from(raw))
        });
        name.clone()
    };
    let mut gathered = Gathered::default();
    let (mut unreadable, mut contexts) = (0, QuickMap::default());
    for record in records(bytes) {
        match decode(record, &mut name_of) {
            Ok(Some(record)) => {
                if let GpuRecord::Work(work) = &record {
                    contexts.insert(work.context, work.device);
                }
                gathered.add(record);
            }
            Ok(None) => {}
            Err(_) => unreadable += 1,
        }
    }
    let threads = trace.api_calls.chunk_by(|one, other| one.track == other.track).map(|calls| {
        let call = |call: &ApiCallData| Call {
            correlation: call.correlation,
            role: Role::of(&call.name),
            failed: call.result != 0,
        };
        calls.iter().map(call).collect::<Vec<_>>()
    });
    let mut recording = gathered.take(&Calls::new(trace.start..trace.end, threads));
    recording.losses.gpu_unreadable += unreadable;
    recording.contexts = contexts;
    recording
}
