//! Files of recorded windows: the bytes that CUPTI recorded, with the spans, operations and calls around them.
//!
//! The file is a protobuf message, compressed if the feature `gzip` is on. It holds only what correlating and the
//! report need: no events, and no counters but those of the GPUs' hardware. A field of the message is never given
//! another meaning, so that old files can always be read.

mod gpu_messages;
mod span_messages;
mod window;

use self::window::Window;
#[cfg(any(feature = "read", test))]
use self::window::WindowOrigin;
use crate::{
    file::{self, FileError},
    gpu::{
        calls::{Call, Calls, Role},
        cupti::{
            decode::{Unreadable, decode},
            names,
        },
        gather::Gathered,
    },
    recording::{GpuRecord, GpuRecording, Pool, RawRecords},
    trace::{ApiCallData, Trace},
};
use prost::{Message, bytes::Bytes};
use rustc_hash::FxHashMap;
use std::{
    collections::{BTreeMap, HashMap},
    io::{self, Read, Write},
    path::{Path, PathBuf},
    sync::Arc,
};

/// Returns the records in `bytes`; the last is an error if it is cut off.
fn records(mut bytes: &[u8]) -> impl Iterator<Item = Result<&[u8], Unreadable>> {
    fn split(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
        let (length, rest) = bytes.split_first_chunk()?;
        rest.split_at_checked(u32::from_le_bytes(*length) as usize)
    }
    std::iter::from_fn(move || {
        (!bytes.is_empty()).then(|| {
            let (record, rest) = split(std::mem::take(&mut bytes)).ok_or(Unreadable)?;
            bytes = rest;
            Ok(record)
        })
    })
}

/// Writes a window's file, and returns its path.
pub(crate) fn write(
    folder: &Path,
    trace: &Trace,
    raw: &RawRecords,
    pools: &HashMap<u32, Pool>,
) -> Result<PathBuf, FileError> {
    let bytes = Window::of(trace, raw, pools).encode_to_vec();
    file::write(folder, trace, ".kernspan", |out| {
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

/// Reads a window that [`raw_to_dir`](crate::ProfilerBuilder::raw_to_dir) wrote, and returns its trace. CUPTI's records
/// are decoded and joined to the spans anew.
///
/// It needs no GPU, so it serves for tests and for bug reports. Events and the program's own counters are not in the
/// file.
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
/// If the file cannot be read, or is not a recorded window.
pub fn replay(recorded: impl Read) -> io::Result<Trace> {
    let window = Window::decode(plain(recorded)?).map_err(io::Error::other)?;
    window.into_trace().ok_or_else(|| io::Error::other("a recorded window that refers to what is not in it"))
}

/// Returns which process recorded a window, the window's number and its start, without decoding its records.
#[cfg(any(feature = "read", test))]
pub(crate) fn origin(recorded: impl Read) -> io::Result<(crate::trace::Metadata, u32, crate::trace::Timestamp)> {
    let origin = WindowOrigin::decode(plain(recorded)?).map_err(io::Error::other)?;
    let (index, start) = (origin.index, crate::trace::Timestamp::from_unix_nanos(origin.start));
    Ok((origin.into_metadata(), index, start))
}

/// Reads a file to its end, and decompresses it if need be.
fn plain(mut recorded: impl Read) -> io::Result<Bytes> {
    let mut bytes = Vec::new();
    recorded.read_to_end(&mut bytes)?;
    #[cfg(feature = "gzip")]
    if bytes.starts_with(&[0x1f, 0x8b]) {
        let mut plain = Vec::new();
        flate2::read::GzDecoder::new(&*bytes).read_to_end(&mut plain)?;
        bytes = plain;
    }
    Ok(bytes.into())
}

/// Decodes the records and takes those of the trace's window, as the reader does.
fn gather(trace: &Trace, bytes: &[u8], names: &BTreeMap<u64, String>) -> GpuRecording {
    let mut cached: FxHashMap<usize, (Arc<str>, Arc<str>)> = FxHashMap::default();
    let mut name_of = |address: usize| {
        let name = cached.entry(address).or_insert_with(|| {
            let raw = names.get(&(address as u64)).map_or("unknown", String::as_str);
            (Arc::from(names::demangle(raw)), Arc::from(raw))
        });
        name.clone()
    };
    let mut gathered = Gathered::default();
    let (mut unreadable, mut contexts) = (0, FxHashMap::default());
    for record in records(bytes) {
        match record.and_then(|record| decode(record, &mut name_of)) {
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

#[cfg(test)]
mod tests {
    use super::{replay, window::tests::with_operations};
    use crate::{
        analysis::Analysis,
        report::{Report, SortBy},
    };
    use proptest::prelude::*;
    use std::io::Read;

    /// The message of a recorded window.
    pub(super) fn message() -> Vec<u8> {
        let file: &[u8] = include_bytes!("../../tests/fixtures/gpu/training.kernspan");
        let mut message = Vec::new();
        flate2::read::GzDecoder::new(file).read_to_end(&mut message).unwrap();
        message
    }

    /// Returns every report of a window; `None` if the message is not a window.
    fn report(message: &[u8]) -> Option<String> {
        let trace = replay(message).ok()?;
        let mut report = Report::default();
        // Twice, as a run has more than one window.
        (0..2).for_each(|_| report.add(&Analysis::of(&trace)));
        let averages = report.averages().sort_by(SortBy::SelfGpu).to_string();
        Some(format!("{report}{averages}{}", report.kernels()))
    }

    #[test]
    fn the_report_of_a_recorded_window_can_be_printed() {
        assert!(report(&message()).unwrap().contains("kernels and copies"));
        assert!(report(&with_operations()).unwrap().contains("matmul"));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]

        #[test]
        fn the_report_of_any_window_can_be_printed(
            with: bool,
            spoilt in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..5),
        ) {
            let mut message = if with { with_operations() } else { message() };
            for (index, byte) in spoilt {
                let index = index.index(message.len());
                message[index] = byte;
            }
            report(&message);
        }

        #[test]
        fn the_report_of_absurd_work_can_be_printed(
            times in prop::collection::vec(prop::sample::select(&[1, 1 << 62, u64::MAX - 1, u64::MAX][..]), 0..20),
            size in prop::sample::select(&[0, 1, i32::MAX, i32::MIN][..]),
            correlation in 0_u32..2000,
        ) {
            // A second field of records, each after its length, replaces the first.
            let mut records = Vec::new();
            for (index, pair) in times.chunks_exact(2).enumerate() {
                let mut kernel = [0_u8; 208];
                let kind = if index % 2 == 0 { 10_u32 } else { 1 };
                kernel[..4].copy_from_slice(&kind.to_ne_bytes());
                (8..16).for_each(|byte| kernel[byte] = 0xff);
                kernel[16..24].copy_from_slice(&pair[0].to_ne_bytes());
                kernel[24..32].copy_from_slice(&pair[1].to_ne_bytes());
                (52..84).step_by(4).for_each(|at| kernel[at..at + 4].copy_from_slice(&size.to_ne_bytes()));
                kernel[if kind == 1 { 44 } else { 92 }..][..4].copy_from_slice(&correlation.to_ne_bytes());
                records.extend_from_slice(&208_u32.to_le_bytes());
                records.extend_from_slice(&kernel);
            }
            let mut message = message();
            message.extend([0x8a, 0x01, records.len() as u8 | 0x80, (records.len() >> 7) as u8 & 0x7f]);
            message.extend(records);
            prop_assert!(report(&message).is_some());
        }
    }
}
