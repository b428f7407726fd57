//! Tests with corrupted records and files: each gives a valid trace or an error, in a short time. The corruptions are
//! the same in every run; `fuzz/` looks for new ones.

#[path = "../support/recorded.rs"]
#[allow(unreachable_pub, reason = "shared with the fuzz target")]
mod recorded;

use kernspan::{Trace, replay};
use recorded::{Recorded, check, check_exports, join, message};
use std::array;

const FIXTURES: [&[u8]; 3] = [
    include_bytes!("../fixtures/gpu/training.kernspan"),
    include_bytes!("../fixtures/gpu/calls.kernspan"),
    include_bytes!("../fixtures/gpu/candle.kernspan"),
];

/// A window with samples of hardware counters.
const COUNTERS: &[u8] = include_bytes!("../fixtures/gpu/counters.kernspan");

/// A generator of random numbers, which are the same in every run.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() % end.max(1) as u64) as usize
    }

    /// Returns a number that is likely to cause overflows, or any number.
    fn absurd(&mut self) -> u64 {
        let edges =
            [0, 1, 0x7fff_ffff, 0x8000_0000, 0xffff_ffff, 1 << 32, i64::MAX as u64, 1 << 63, u64::MAX - 1, u64::MAX];
        if self.below(4) == 0 { self.next() } else { edges[self.below(edges.len())] }
    }
}

/// Returns one of the records, to be corrupted.
fn any<'a>(records: &'a mut [Vec<u8>], random: &mut Random) -> &'a mut Vec<u8> {
    let index = random.below(records.len());
    &mut records[index]
}

/// Corrupts one or all of the records.
fn corrupt(records: &mut Vec<Vec<u8>>, random: &mut Random) {
    match random.below(7) {
        // A bit flips.
        0 => {
            let record = any(records, random);
            let offset = random.below(record.len());
            record.iter_mut().skip(offset).take(1).for_each(|byte| *byte ^= 1 << random.below(8));
        }
        // A field has an absurd value: a time, a size, an id.
        1 | 2 => {
            let record = any(records, random);
            let width = [2, 4, 8][random.below(3)];
            let offset = random.below(record.len() / width) * width;
            let value = random.absurd().to_le_bytes();
            record.iter_mut().skip(offset).take(width).zip(value).for_each(|(byte, absurd)| *byte = absurd);
        }
        // A record is cut off.
        3 => {
            let record = any(records, random);
            record.truncate(random.below(record.len()));
        }
        // A record comes again, out of order.
        4 => {
            let record = any(records, random).clone();
            records.insert(random.below(records.len()), record);
        }
        // A record has the kind of another.
        5 => {
            let kind = any(records, random).iter().take(4).copied().collect::<Vec<_>>();
            any(records, random).iter_mut().zip(kind).for_each(|(byte, other)| *byte = other);
        }
        // All are in another order.
        _ => (1..records.len()).rev().for_each(|last| records.swap(last, random.below(last + 1))),
    }
}

/// Returns the trace of this file, which must be valid; `None` if the file cannot be read.
fn replayed(file: &[u8]) -> Option<Trace> {
    let trace = replay(file).ok()?;
    check(&trace);
    Some(trace)
}

#[test]
fn corrupted_records_give_a_valid_trace() {
    let folder = tempfile::tempdir().unwrap();
    let mut unreadable = 0;
    for (seed, fixture) in FIXTURES.into_iter().enumerate() {
        let (recorded, mut random) = (Recorded::new(fixture), Random(seed as u64));
        let whole = replayed(&recorded.with(&recorded.records)).unwrap();
        assert!(whole.losses().is_empty() && whole.work().len() > 50);
        for round in 0..600 {
            let mut records = recorded.records.clone();
            (0..=random.below(20)).for_each(|_| corrupt(&mut records, &mut random));
            let trace = replayed(&recorded.with(&records)).unwrap();
            unreadable += trace.losses().gpu_unreadable;
            if round % 20 == 0 {
                check_exports(&trace, folder.path());
            }
        }
    }
    assert!(unreadable > 1000, "{unreadable}");
}

#[test]
fn corrupted_files_give_a_trace_or_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let mut random = Random(7);
    let (mut traces, mut errors) = (0, 0);
    // The window with counters is ten times as large as the others.
    for (fixture, rounds) in FIXTURES.map(|fixture| (fixture, 750)).into_iter().chain([(COUNTERS, 75)]) {
        let message = message(fixture);
        for round in 0..rounds {
            let mut file = message.clone();
            for _ in 0..=random.below(4) {
                let offset = random.below(file.len());
                match random.below(4) {
                    0 => file.truncate(offset),
                    1 => drop(file.drain(offset..(offset + random.below(64)).min(file.len()))),
                    _ => file.iter_mut().skip(offset).take(1).for_each(|byte| *byte = random.absurd() as u8),
                }
            }
            match replayed(&file) {
                Some(trace) if round % 20 == 0 => check_exports(&trace, folder.path()),
                Some(_) => traces += 1,
                None => errors += 1,
            }
        }
        // Compressed files that are cut off are errors, too.
        for cut in 0..fixture.len().min(500) {
            assert!(replay(&fixture[..cut]).is_err() || cut == 0);
        }
    }
    assert!(traces > 100 && errors > 100, "{traces} traces, {errors} errors");
}

#[test]
fn records_that_cannot_be_read_are_counted() {
    let recorded = Recorded::new(FIXTURES[0]);
    let lost = |bytes: &[u8]| replayed(&recorded.with_bytes(bytes)).unwrap().losses().gpu_unreadable;
    let whole = join(&recorded.records);
    assert_eq!(lost(&whole), 0);
    assert_eq!(lost(&[]), 0);
    // Records that are too short for a length or a kind, that are cut off, or whose length is absurd.
    assert_eq!(lost(&[1, 0, 0]), 1);
    assert_eq!(lost(&join([[10_u8, 0]])), 1);
    assert_eq!(lost(&whole[..whole.len() - 1]), 1);
    assert_eq!(lost(&[&u32::MAX.to_le_bytes(), &whole[..]].concat()), 1);
    assert_eq!(lost(&join([10_u32.to_le_bytes(), 1_u32.to_le_bytes(), 999_u32.to_le_bytes()])), 2);
}

/// A kernel's record, with the fields that are the same in all releases of CUPTI.
#[derive(Clone)]
struct Kernel([u8; 208]);

impl Kernel {
    fn new(context: u32, stream: u32, start: u64, end: u64, correlation: u32) -> Self {
        let mut kernel = Self([0; 208]);
        kernel.put(0, 10_u32.to_ne_bytes());
        kernel.put(16, start.to_ne_bytes());
        kernel.put(24, end.to_ne_bytes());
        kernel.put(44, context.to_ne_bytes());
        kernel.put(48, stream.to_ne_bytes());
        kernel.put(92, correlation.to_ne_bytes());
        kernel
    }

    fn put<const N: usize>(&mut self, offset: usize, bytes: [u8; N]) {
        self.0[offset..offset + N].copy_from_slice(&bytes);
    }
}

/// Returns the trace of a window with these kernels only.
fn trace_of(kernels: impl IntoIterator<Item = Kernel>) -> Trace {
    let recorded = Recorded::new(FIXTURES[0]);
    replayed(&recorded.with(kernels.into_iter().map(|kernel| kernel.0))).unwrap()
}

/// Returns the start and end of the window.
fn window() -> (u64, u64) {
    let trace = replay(FIXTURES[0]).unwrap();
    (trace.start().as_unix_nanos(), trace.end().as_unix_nanos())
}

/// Returns the correlation id of a call of the window, so that its records belong to the window at any time.
fn some_call() -> u32 {
    replay(FIXTURES[0]).unwrap().api_calls().next().unwrap().correlation()
}

#[test]
fn times_at_the_end_of_time_do_no_harm() {
    let (call, folder) = (some_call(), tempfile::tempdir().unwrap());
    let long = Kernel::new(1, 7, 1, u64::MAX, call);
    let mut queued = Kernel::new(1, 7, u64::MAX, u64::MAX, call);
    queued.put(120, u64::MAX.to_ne_bytes());
    let trace = trace_of([long.clone(), long.clone(), long, queued.clone(), queued]);
    assert_eq!((trace.work().len(), trace.streams().len()), (5, 3));
    check_exports(&trace, folder.path());
}

#[test]
fn launches_of_any_size_do_no_harm() {
    let folder = tempfile::tempdir().unwrap();
    let kernels = (0..64).map(|bits: u32| {
        let mut kernel = Kernel::new(1, 7, 1, 2, some_call());
        kernel.put(6, u16::MAX.to_ne_bytes());
        for field in 0..8 {
            // Grid, block, both kinds of shared memory.
            let value = if bits & 1 << (field % 6) == 0 { i32::MAX } else { [-1, 1, 1024][field % 3] };
            kernel.put(52 + 4 * field, value.to_ne_bytes());
        }
        kernel
    });
    check_exports(&trace_of(kernels), folder.path());
}

#[test]
fn many_overlapping_kernels_are_put_on_rows_quickly() {
    const KERNELS: u32 = 4_000;
    let ((start, end), folder) = (window(), tempfile::tempdir().unwrap());
    let call = some_call();
    // Streams of different contexts have the same number, as in CUDA.
    let kernels = |context| (0..KERNELS / 2).map(move |nth| Kernel::new(context, 7, start + u64::from(nth), end, call));
    let trace = trace_of(kernels(1).chain(kernels(2)));
    assert_eq!(trace.streams().len(), trace.work().len());
    assert!(trace.streams().len() > KERNELS as usize / 4, "{}", trace.streams().len());
    check_exports(&trace, folder.path());
}

#[test]
fn a_stream_for_each_kernel_is_exported_quickly() {
    let ((start, end), folder) = (window(), tempfile::tempdir().unwrap());
    let call = some_call();
    let trace = trace_of((0..10_000).map(|nth| Kernel::new(1, u32::MAX - nth, start, end, call)));
    assert_eq!(trace.streams().len(), 10_000);
    check_exports(&trace, folder.path());
}

#[test]
fn waits_that_cross_are_exported_quickly() {
    let ((start, _), folder) = (window(), tempfile::tempdir().unwrap());
    let call = some_call();
    let waits = (0..3_000_u64).map(|nth| {
        let words: [u32; 2] = [38, 3];
        let times = [start + nth, start + 1_000_000 + nth];
        let ids: [u32; 6] = [call, 1, 7, u32::MAX, 0, 0];
        let words = words.map(u32::to_ne_bytes).concat();
        [words, times.map(u64::to_ne_bytes).concat(), ids.map(u32::to_ne_bytes).concat()].concat()
    });
    let trace = replayed(&Recorded::new(FIXTURES[0]).with(waits)).unwrap();
    assert_eq!(trace.waits().len(), 3_000);
    check_exports(&trace, folder.path());
}

#[test]
fn a_file_may_have_impossible_threads_and_devices() {
    // A track with the largest thread id and overlap, and a device 1 with the largest numbers.
    let [largest, half] = [[0xff, 0xff, 0xff, 0xff, 0x0f], [0xff, 0xff, 0xff, 0xff, 0x07]];
    let thread = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f];
    let track = [&[0x08][..], &thread, &[0x18], &largest].concat();
    let numbers: [[u8; 5]; 13] = array::from_fn(|number| if number == 3 { half } else { largest });
    let device = [&[0x08, 1, 0x2a, 13 * 5][..], &numbers.concat()].concat();
    let folder = tempfile::tempdir().unwrap();
    let mut kernel = Kernel::new(1, 7, 1, 2, some_call());
    kernel.put(6, u16::MAX.to_ne_bytes());
    kernel.put(40, 1_u32.to_ne_bytes());
    (52..76).step_by(4).for_each(|size| kernel.put(size, 1_u32.to_ne_bytes()));
    let mut file = Recorded::new(FIXTURES[0]).with([kernel.0]);
    for (field, message) in [(10_u8, track), (8, device)] {
        file.push(field << 3 | 2);
        file.push(message.len() as u8);
        file.extend(message);
    }
    check_exports(&replayed(&file).unwrap(), folder.path());
}

#[test]
fn a_file_may_have_operations_in_any_batch() {
    // An operation with a number of FLOPs, and a field whose name does not exist.
    let largest = [0xff, 0xff, 0xff, 0xff, 0x0f];
    let operation =
        [&b"\x0a\x03add\x12\x08op.flops\x1a\x04\x08\x00\x20\x40\x1a\x08\x08"[..], &largest, &[0x20, 7]].concat();
    // The operation is reported for the first span, in the batch with the largest number. The only call of the kernel
    // is in that batch, too.
    let reported = [&[0x22, 2, 0x08, 0, 0x28][..], &largest].concat();
    let call = [&[0x28, 0xb9, 0x60, 0x40][..], &largest].concat();
    let (start, _) = window();
    let kernel = Kernel::new(1, 7, start, start + 10, 12_345);
    let mut file = Recorded::new(FIXTURES[0]).with([kernel.0]);
    for (field, message) in [(19_u32, &operation), (20, &reported), (20, &reported), (13, &call)] {
        let key = field << 3 | 2;
        file.extend(if key < 0x80 { vec![key as u8] } else { vec![key as u8 | 0x80, (key >> 7) as u8] });
        file.push(message.len() as u8);
        file.extend(message);
    }
    let trace = replayed(&file).unwrap();
    let [work] = trace.work().collect::<Vec<_>>()[..] else { panic!("{} pieces of work", trace.work().len()) };
    assert_eq!((work.operations().len(), work.spans().count()), (2, 1));
    let first = work.operations().next().unwrap();
    assert_eq!((first.name(), first.fields().iter().count(), first.fields().op().flops()), ("add", 1, Some(64)));
    check_exports(&trace, tempfile::tempdir().unwrap().path());
    // A use of an operation that does not exist.
    file.extend([0xa2, 0x01, 2, 0x08, 1]);
    assert!(replay(&*file).is_err());
}
