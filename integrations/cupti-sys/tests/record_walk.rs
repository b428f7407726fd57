//! `Cupti::records` with NVIDIA's own libraries, which need no driver for that, on buffers that C code fills with the
//! structs of each release's header.

#![cfg(all(target_os = "linux", target_arch = "x86_64"))]

#[path = "support/guarded_bytes.rs"]
mod guarded_bytes;
mod support;

use cupti_sys::{Cupti, kind};
use guarded_bytes::GuardedBytes;
use libloading::Library;
use std::{env, ops::Range, path::PathBuf, process::Command};
use support::{Class, RECORDS, Record, Release, bytes_and_class, c_fields, releases};

/// Releases whose libraries step through buffers without a driver. That of 13.4 does not, and that of 13.2 crashes.
const WITHOUT_DRIVER: [&str; 3] = ["12.0", "12.9", "13.0"];

/// A loaded libcupti, and the C code that fills records of its release.
struct LoadedRelease {
    name: String,
    path: PathBuf,
    cupti: Cupti,
    filler: Library,
}

/// Runs the test of this name for each release, each in a process of its own, because a process can have one libcupti.
fn for_each_release(test: &str, check: impl Fn(&LoadedRelease)) {
    let variables = ["CUPTI_SYS_TEST_RELEASE", "CUPTI_SYS_TEST_LIBRARY", "CUPTI_SYS_TEST_FILLER"];
    if let [Ok(name), Ok(path), Ok(filler)] = variables.map(env::var) {
        let path = PathBuf::from(path);
        // SAFETY: only `records` is called; the filler has only functions of ours.
        let (cupti, filler) =
            unsafe { (Cupti::load_without_driver(path.clone()).unwrap(), Library::new(filler).unwrap()) };
        return check(&LoadedRelease { name, path, cupti, filler });
    }
    for release in releases().filter(|release| WITHOUT_DRIVER.contains(&release.name)) {
        let folder = tempfile::tempdir().unwrap();
        let filler = folder.path().join("filler.so");
        release.compile(&filler_source(&release), &["-shared", "-fPIC", "-o", filler.to_str().unwrap()]).unwrap();
        let values = [release.name.into(), release.library().into_os_string(), filler.into_os_string()];
        let output = Command::new(env::current_exe().unwrap())
            .args([test, "--exact", "--nocapture"])
            .envs(variables.into_iter().zip(values))
            .output()
            .unwrap();
        let status = output.status;
        let output = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
        assert!(status.success(), "CUDA {}: {}\n{output}", release.name, status);
        assert!(output.contains("1 passed"), "{test} is no test: {output}");
    }
}

/// Returns C source with functions that return the size of each record and set its fields.
fn filler_source(release: &Release) -> String {
    let mut source = String::new();
    for (index, record) in RECORDS.iter().enumerate() {
        let c_name = release.newest(record.layout.c_names[0]);
        source.push_str(&format!("size_t size_{index}(void) {{ return sizeof({c_name}); }}\n"));
        source.push_str(&format!("void fill_{index}({c_name} *record, const uint64_t *values) {{\n"));
        for (value, (field, _, _)) in record.layout.fields.iter().enumerate() {
            let field = &c_fields(record.layout.name, field)[0];
            source.push_str(&format!("record->{field} = (__typeof__(record->{field}))values[{value}];\n"));
        }
        source.push_str("}\n");
    }
    source
}

/// A generator of random numbers, the same in every run (splitmix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    fn bytes(&mut self, length: usize) -> Vec<u8> {
        (0..length).map(|_| self.next() as u8).collect()
    }
}

/// A record that was written into a buffer.
struct Written {
    range: Range<usize>,
    record: &'static Record,
    /// The expected debug output of the record when it is read.
    text: String,
}

impl LoadedRelease {
    /// Returns a buffer of records of random kinds with random values, and a description of each record.
    fn buffer(&self, random: &mut Random, records: usize) -> (Vec<u8>, Vec<Written>) {
        let (mut buffer, mut written) = (Vec::new(), Vec::new());
        for _ in 0..records {
            let index = random.below(RECORDS.len());
            let record = &RECORDS[index];
            let kind = record.kinds[random.below(record.kinds.len())];
            // Padding between and after the fields is random, too.
            let start = buffer.len();
            buffer.extend(random.bytes(self.size(index)));
            let mut values: Vec<_> = record.layout.fields.iter().map(|_| random.next()).collect();
            values[0] = kind.into();
            self.fill(index, &mut buffer[start..], &values);
            written.push(Written { range: start..buffer.len(), record, text: text(record, &values) });
        }
        (buffer, written)
    }

    fn size(&self, record: usize) -> usize {
        // SAFETY: the filler defines the function with this type.
        unsafe { self.filler.get::<extern "C" fn() -> usize>(format!("size_{record}")).unwrap()() }
    }

    fn fill(&self, record: usize, bytes: &mut [u8], values: &[u64]) {
        // The record is filled in an array of words, which is aligned.
        let mut words = vec![0_u64; bytes.len() / 8];
        // SAFETY: words may be viewed as bytes.
        let aligned = unsafe { words.align_to_mut::<u8>().1 };
        aligned.copy_from_slice(bytes);
        // SAFETY: the filler defines the function with this type; there are as many bytes as the record has, and as
        // many values as it has fields.
        unsafe {
            let fill = self.filler.get::<extern "C" fn(*mut u8, *const u64)>(format!("fill_{record}")).unwrap();
            fill(aligned.as_mut_ptr(), values.as_ptr());
        }
        bytes.copy_from_slice(aligned);
    }

    /// Returns the byte ranges in which `Cupti::records` finds records. The bytes end at a guard page, so that a read
    /// beyond them is noticed.
    fn walk(&self, bytes: &[u8]) -> Vec<Range<usize>> {
        let buffer = GuardedBytes::new(bytes);
        // SAFETY: CUPTI did not fill the buffer, but looks only at kinds and sizes, which is the subject of the test.
        let mut records = unsafe { self.cupti.records(&buffer) };
        let slices: Vec<_> = records.by_ref().take(bytes.len() + 1).collect();
        assert!(records.next().is_none(), "it ends, and stays ended");
        slices
            .iter()
            .map(|slice| slice.as_ptr().addr() - buffer.as_ptr().addr())
            .zip(&slices)
            .map(|(start, slice)| {
                assert!(start + slice.len() <= buffer.len());
                start..start + slice.len()
            })
            .collect()
    }
}

/// Returns the debug output of a record with these values.
fn text(record: &Record, values: &[u64]) -> String {
    let fields = record.layout.fields.iter().zip(values).map(|((field, _, rust_type), &value)| {
        let field = field.trim_start_matches("r#");
        match bytes_and_class(rust_type) {
            (_, Class::Pointer) => format!("{field}: {value:#x}"),
            (1, _) => format!("{field}: {}", value as u8),
            (2, _) => format!("{field}: {}", value as u16),
            (4, Class::Unsigned) => format!("{field}: {}", value as u32),
            (4, Class::Signed) => format!("{field}: {}", value as i32),
            (_, Class::Unsigned) => format!("{field}: {value}"),
            (_, Class::Signed) => format!("{field}: {}", value as i64),
        }
    });
    format!("{} {{ {} }}", record.layout.name, fields.collect::<Vec<_>>().join(", "))
}

/// Returns the byte ranges of records, the last one extended to `end`.
fn ranges(written: &[Written], end: usize) -> Vec<Range<usize>> {
    let mut ranges: Vec<_> = written.iter().map(|written| written.range.clone()).collect();
    if let Some(last) = ranges.last_mut() {
        last.end = end;
    }
    ranges
}

#[test]
fn every_record_comes_back_whole_and_with_what_was_put_in() {
    for_each_release("every_record_comes_back_whole_and_with_what_was_put_in", |release| {
        let mut random = Random(1);
        for _ in 0..30 {
            let records = 1 + random.below(500);
            let (buffer, written) = release.buffer(&mut random, records);
            assert_eq!(release.walk(&buffer), ranges(&written, buffer.len()), "{}", release.name);
            for Written { range, record, text } in written {
                assert_eq!((record.read)(&buffer[range]).as_ref(), Some(&text), "{}", release.name);
            }
        }
    });
}

#[test]
fn a_buffer_cut_anywhere_has_the_records_before_the_cut() {
    for_each_release("a_buffer_cut_anywhere_has_the_records_before_the_cut", |release| {
        let (buffer, written) = release.buffer(&mut Random(2), 25);
        for cut in 0..=buffer.len() {
            let whole = written.iter().take_while(|written| written.range.end <= cut).count();
            assert_eq!(
                release.walk(&buffer[..cut]),
                ranges(&written[..whole], cut / 8 * 8),
                "{}: cut at {cut}",
                release.name
            );
        }
    });
}

#[test]
fn an_empty_buffer_has_no_records() {
    for_each_release("an_empty_buffer_has_no_records", |release| {
        assert!(release.walk(&[]).is_empty());
        // SAFETY: there is nothing to read.
        assert_eq!(unsafe { release.cupti.records(&[]) }.count(), 0);
        assert!(release.walk(&[0; 4096]).is_empty());
    });
}

#[test]
fn a_kind_that_the_library_does_not_know_ends_the_walk() {
    for_each_release("a_kind_that_the_library_does_not_know_ends_the_walk", |release| {
        let (buffer, written) = release.buffer(&mut Random(3), 40);
        for unknown in [0, 99, 1000, 0x7fff_ffff, 0x8000_0000, u32::MAX] {
            for (before, at) in written.iter().enumerate() {
                let mut buffer = buffer.clone();
                buffer[at.range.start..][..4].copy_from_slice(&unknown.to_ne_bytes());
                assert_eq!(
                    release.walk(&buffer),
                    ranges(&written[..before], buffer.len()),
                    "{}: {unknown}",
                    release.name
                );
            }
        }
    });
}

#[test]
fn whatever_is_in_a_buffer_the_walk_goes_forward_inside_it_and_ends() {
    for_each_release("whatever_is_in_a_buffer_the_walk_goes_forward_inside_it_and_ends", |release| {
        let mut random = Random(4);
        for round in 0..5000 {
            let length = random.below(1000);
            let mut buffer = random.bytes(length);
            // Small numbers are valid kinds, so that the walk finds records in half of the rounds.
            for word in buffer.chunks_exact_mut(4).filter(|_| round % 2 == 0) {
                word.copy_from_slice(&(u32::from(word[0]) % 64).to_ne_bytes());
            }
            let ranges = release.walk(&buffer);
            assert!(ranges.first().is_none_or(|first| first.start == 0));
            assert!(ranges.windows(2).all(|pair| pair[0].end == pair[1].start));
            assert!(ranges.iter().all(|range| !range.is_empty()));
        }
    });
}

#[test]
fn the_library_has_every_function() {
    for_each_release("the_library_has_every_function", |release| {
        // SAFETY: the library is loaded already, and its symbols are only looked up.
        let missing = unsafe {
            let library = Library::new(&release.path).unwrap();
            let functions = Cupti::FUNCTIONS.iter().map(|(name, _)| *name);
            functions.filter(|name| library.get::<extern "C" fn()>(*name).is_err()).collect::<Vec<_>>()
        };
        // PM sampling and the functions that it takes came with 12.6.
        let is_later = |name: &&str| name.starts_with("cuptiPmSampling") || name.starts_with("cuptiProfilerHost");
        let (later, missing): (Vec<_>, Vec<_>) = missing.into_iter().partition(is_later);
        let all_later = Cupti::FUNCTIONS.iter().map(|(name, _)| *name).filter(is_later).count();
        match release.name.as_str() {
            "12.0" => {
                assert_eq!(missing, ["cuptiActivityEnableDriverApi", "cuptiActivityEnableRuntimeApi"]);
                assert_eq!(later.len(), all_later);
            }
            _ => assert!(missing.is_empty() && later.is_empty(), "{}: {missing:?}, {later:?}", release.name),
        }
    });
}

#[test]
fn there_is_a_record_for_every_kind_that_has_a_struct() {
    let mut kinds: Vec<_> = RECORDS.iter().flat_map(|record| record.kinds).copied().collect();
    kinds.sort_unstable();
    let all = [
        kind::MEMCPY,
        kind::MEMSET,
        kind::DRIVER,
        kind::RUNTIME,
        kind::CONCURRENT_KERNEL,
        kind::OVERHEAD,
        kind::MEMCPY2,
        kind::SYNCHRONIZATION,
    ];
    assert_eq!(kinds, all);
}
