//! Our walk through buffers beside NVIDIA's own libraries, which need no driver for that. C fills the records, with the
//! structs of the release's header.

#![cfg(all(target_os = "linux", target_arch = "x86_64"))]

mod support;
#[path = "support/walled.rs"]
mod walled;

use cupti_sys::{Cupti, kind};
use libloading::Library;
use std::{env, ops::Range, path::PathBuf, process::Command};
use support::{Class, RECORDS, Record, Release, bytes_and_class, c_fields, releases};
use walled::Walled;

/// Releases whose libraries step through buffers without a driver. 13.4 does not, and 13.2 crashes.
const BESIDE: [&str; 3] = ["12.0", "12.9", "13.0"];

/// A libcupti, and who fills records of its release.
struct Beside {
    release: String,
    library: PathBuf,
    cupti: Cupti,
    filler: Library,
}

/// Runs the test named so for each release, in a process of its own: there can be one libcupti in a process.
fn beside_each_release(test: &str, check: impl Fn(&Beside)) {
    let variables = ["CUPTI_SYS_TEST_RELEASE", "CUPTI_SYS_TEST_LIBRARY", "CUPTI_SYS_TEST_FILLER"];
    if let [Ok(release), Ok(library), Ok(filler)] = variables.map(env::var) {
        let library = PathBuf::from(library);
        // SAFETY: nothing but `records` is called; the filler has only functions of ours.
        let (cupti, filler) =
            unsafe { (Cupti::load_without_driver(library.clone()).unwrap(), Library::new(filler).unwrap()) };
        return check(&Beside { release, library, cupti, filler });
    }
    for release in releases().filter(|release| BESIDE.contains(&release.name)) {
        let folder = tempfile::tempdir().unwrap();
        let filler = folder.path().join("filler.so");
        release.compile(&filler_source(&release), &["-shared", "-fPIC", "-o", filler.to_str().unwrap()]).unwrap();
        let values = [release.name.into(), release.library().into_os_string(), filler.into_os_string()];
        let output = Command::new(env::current_exe().unwrap())
            .args([test, "--exact", "--nocapture"])
            .envs(variables.into_iter().zip(values))
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "beside CUDA {}: {}\n{said}", release.name, output.status);
        assert!(said.contains("1 passed"), "{test} is no test: {said}");
    }
}

/// C with functions that say how long a record is and give its fields values.
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

/// Random numbers, the same in every run.
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

/// A record that was put into a buffer.
struct Put {
    place: Range<usize>,
    record: &'static Record,
    /// What reading it should give.
    text: String,
}

impl Beside {
    /// A buffer of this many records, of random kinds with random values, and what is in it.
    fn buffer(&self, random: &mut Random, records: usize) -> (Vec<u8>, Vec<Put>) {
        let (mut buffer, mut put) = (Vec::new(), Vec::new());
        for _ in 0..records {
            let index = random.below(RECORDS.len());
            let record = &RECORDS[index];
            let kind = record.kinds[random.below(record.kinds.len())];
            // What is between and after the fields is random, too.
            let start = buffer.len();
            buffer.extend(random.bytes(self.size(index)));
            let mut values: Vec<_> = record.layout.fields.iter().map(|_| random.next()).collect();
            values[0] = kind.into();
            self.fill(index, &mut buffer[start..], &values);
            put.push(Put { place: start..buffer.len(), record, text: text(record, &values) });
        }
        (buffer, put)
    }

    fn size(&self, record: usize) -> usize {
        // SAFETY: that is its type.
        unsafe { self.filler.get::<extern "C" fn() -> usize>(format!("size_{record}")).unwrap()() }
    }

    fn fill(&self, record: usize, bytes: &mut [u8], values: &[u64]) {
        // Words, so that the record is aligned.
        let mut words = vec![0_u64; bytes.len() / 8];
        // SAFETY: any words may be seen as bytes.
        let aligned = unsafe { words.align_to_mut::<u8>().1 };
        aligned.copy_from_slice(bytes);
        // SAFETY: that is its type; there are as many bytes as the record has, and as many values as it has fields.
        unsafe {
            let fill = self.filler.get::<extern "C" fn(*mut u8, *const u64)>(format!("fill_{record}")).unwrap();
            fill(aligned.as_mut_ptr(), values.as_ptr());
        }
        bytes.copy_from_slice(aligned);
    }

    /// Where our walk finds records. The bytes end at a wall, so it must not read beyond them.
    fn walk(&self, bytes: &[u8]) -> Vec<Range<usize>> {
        let buffer = Walled::new(bytes);
        // SAFETY: CUPTI did not fill it, but looks only at kinds and sizes: that is what is tested.
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

/// How a record with these values prints.
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

/// Where records are, with the last one reaching to `end`.
fn places(put: &[Put], end: usize) -> Vec<Range<usize>> {
    let mut places: Vec<_> = put.iter().map(|put| put.place.clone()).collect();
    if let Some(last) = places.last_mut() {
        last.end = end;
    }
    places
}

#[test]
fn every_record_comes_back_whole_and_with_what_was_put_in() {
    beside_each_release("every_record_comes_back_whole_and_with_what_was_put_in", |beside| {
        let mut random = Random(1);
        for _ in 0..30 {
            let records = 1 + random.below(500);
            let (buffer, put) = beside.buffer(&mut random, records);
            assert_eq!(beside.walk(&buffer), places(&put, buffer.len()), "{}", beside.release);
            for Put { place, record, text } in put {
                assert_eq!((record.read)(&buffer[place]).as_ref(), Some(&text), "{}", beside.release);
            }
        }
    });
}

#[test]
fn a_buffer_cut_anywhere_has_the_records_before_the_cut() {
    beside_each_release("a_buffer_cut_anywhere_has_the_records_before_the_cut", |beside| {
        let (buffer, put) = beside.buffer(&mut Random(2), 25);
        for cut in 0..=buffer.len() {
            let whole = put.iter().take_while(|put| put.place.end <= cut).count();
            assert_eq!(
                beside.walk(&buffer[..cut]),
                places(&put[..whole], cut / 8 * 8),
                "{}: cut at {cut}",
                beside.release
            );
        }
    });
}

#[test]
fn an_empty_buffer_has_no_records() {
    beside_each_release("an_empty_buffer_has_no_records", |beside| {
        assert!(beside.walk(&[]).is_empty());
        // SAFETY: there is nothing to read.
        assert_eq!(unsafe { beside.cupti.records(&[]) }.count(), 0);
        assert!(beside.walk(&[0; 4096]).is_empty());
    });
}

#[test]
fn a_kind_that_the_library_does_not_know_ends_the_walk() {
    beside_each_release("a_kind_that_the_library_does_not_know_ends_the_walk", |beside| {
        let (buffer, put) = beside.buffer(&mut Random(3), 40);
        for unknown in [0, 99, 1000, 0x7fff_ffff, 0x8000_0000, u32::MAX] {
            for (before, at) in put.iter().enumerate() {
                let mut buffer = buffer.clone();
                buffer[at.place.start..][..4].copy_from_slice(&unknown.to_ne_bytes());
                assert_eq!(beside.walk(&buffer), places(&put[..before], buffer.len()), "{}: {unknown}", beside.release);
            }
        }
    });
}

#[test]
fn whatever_is_in_a_buffer_the_walk_goes_forward_inside_it_and_ends() {
    beside_each_release("whatever_is_in_a_buffer_the_walk_goes_forward_inside_it_and_ends", |beside| {
        let mut random = Random(4);
        for round in 0..5000 {
            let length = random.below(1000);
            let mut buffer = random.bytes(length);
            // Small numbers are kinds, so that there is something to step on.
            for word in buffer.chunks_exact_mut(4).filter(|_| round % 2 == 0) {
                word.copy_from_slice(&(u32::from(word[0]) % 64).to_ne_bytes());
            }
            let places = beside.walk(&buffer);
            assert!(places.first().is_none_or(|first| first.start == 0));
            assert!(places.windows(2).all(|pair| pair[0].end == pair[1].start));
            assert!(places.iter().all(|place| !place.is_empty()));
        }
    });
}

#[test]
fn the_library_has_every_function() {
    beside_each_release("the_library_has_every_function", |beside| {
        // SAFETY: it is loaded already; the symbols are only looked up.
        let missing = unsafe {
            let library = Library::new(&beside.library).unwrap();
            let functions = Cupti::FUNCTIONS.iter().map(|(name, _)| *name);
            functions.filter(|name| library.get::<extern "C" fn()>(*name).is_err()).collect::<Vec<_>>()
        };
        match beside.release.as_str() {
            "12.0" => assert_eq!(missing, ["cuptiActivityEnableDriverApi", "cuptiActivityEnableRuntimeApi"]),
            _ => assert!(missing.is_empty(), "{}: {missing:?}", beside.release),
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
