//! Rings that a kernel wrote, so that decoding, unwinding and symbols are tested where nothing may be sampled.
//!
//! `tests/fixtures/sampling` has a program without libraries, where it was mapped, and the rings of its two events.
//! `cargo test --lib --features sampling record_fixture -- --ignored` records them again.

use super::{
    modules::Mapping,
    records::{PerfRecord, RawNanos, records},
    stacks::{RawSample, SampledStacks, StackTable},
    symbols::Symbols,
    sys::{Event, Reports},
    unwind::StackUnwinder,
};
use crate::{
    budget::Budget,
    clock::Ticks,
    sampling::ResolvedStacks,
    trace::{StackFrame, StackNodeId, ThreadId},
};
use proptest::prelude::*;
use std::{
    cell::RefCell,
    fs,
    io::Read,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

/// The bytes of a stack that were copied: fewer than the recursive function of the program has.
const STACK_BYTES: u32 = 4 << 10;
/// The number of times that the program sleeps.
const SLEEPS: usize = 4;

fn file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/sampling").join(name)
}

/// Reads a recorded ring.
fn ring(name: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    flate2::read::GzDecoder::new(fs::File::open(file(name)).unwrap()).read_to_end(&mut bytes).unwrap();
    bytes
}

/// Returns an unwinder that knows the recorded process.
fn unwinder() -> StackUnwinder {
    let maps = fs::read_to_string(file("maps")).unwrap().replace("PROGRAM", file("program").to_str().unwrap());
    let mut unwinder = StackUnwinder::new();
    unwinder.set_mappings(Mapping::parse(&maps));
    unwinder
}

/// Functions and lines, from the innermost frame outwards.
type NamedStack = Vec<(String, Option<u32>)>;

/// The stacks of all samples in a ring, and whether each is truncated.
fn stacks(ring: &[u8]) -> Vec<(bool, NamedStack)> {
    let (mut unwinder, mut table, budget) = (unwinder(), StackTable::default(), Budget::new(1 << 30));
    let mut frames = Vec::new();
    for record in records(ring) {
        let PerfRecord::Sample { at, period, registers, stack } = record else { continue };
        let truncated = !unwinder.unwind(registers, stack, &mut frames);
        let (at, thread) = (Ticks(at.0), ThreadId::new(1));
        let sample = RawSample { at, nanos: period, thread, stack: None, waiting: false, truncated };
        table.add(sample, &frames, &unwinder, &budget);
    }
    let sampled: SampledStacks = table.close(Ticks(u64::MAX));
    let ResolvedStacks { sampling, samples, .. } = Symbols::default().resolve(sampled);
    let of_frame = |frame: &StackFrame| {
        assert_eq!(frame.library(), "program");
        (frame.function().rsplit("::").next().unwrap().to_owned(), frame.line())
    };
    let stack = |innermost: Option<StackNodeId>| {
        let nodes = std::iter::successors(innermost, |node| sampling.nodes[node.index()].caller);
        nodes.map(|node| of_frame(&sampling.frames[sampling.nodes[node.index()].frame.index()])).collect()
    };
    samples.iter().map(|sample| (sample.truncated, stack(sample.stack))).collect()
}

/// Returns the line of the program's source that ends with this comment.
fn line(comment: &str) -> Option<u32> {
    let source = fs::read_to_string(file("program.rs")).unwrap();
    let lines: Vec<_> = source.lines().zip(1..).filter(|(text, _)| text.ends_with(&format!("// {comment}"))).collect();
    assert_eq!(lines.len(), 1, "{comment}");
    Some(lines[0].1)
}

#[test]
fn running_stacks_have_the_functions_and_lines_of_the_program() {
    let stacks = stacks(&ring("running.gz"));
    let (mut in_inner, mut in_deep) = (0, 0);
    for (truncated, stack) in &stacks {
        let names: Vec<_> = stack.iter().map(|(name, _)| name.as_str()).collect();
        let outer = |from: usize| stack[from..].iter().map(|(_, line)| *line).collect::<Vec<_>>();
        if let Some(inner) = names.iter().position(|name| *name == "inner") {
            in_inner += 1;
            assert!(!truncated);
            // With functions that were inlined into others.
            assert_eq!(names[inner..], ["inner", "middle", "outer", "run", "_start"]);
            assert_eq!(outer(inner + 1)[..2], [line("middle calls inner"), line("outer calls middle")]);
        } else if names.contains(&"deep") {
            in_deep += 1;
            // Its frames are larger than the copy.
            assert!(*truncated && !names.contains(&"run"), "{stack:?}");
            let first = names.iter().position(|name| *name == "deep").unwrap();
            assert!(names[first..].len() >= 3 && names[first..].iter().all(|name| *name == "deep"), "{stack:?}");
            assert!(outer(first + 1).iter().all(|found| *found == line("deep calls deep")), "{stack:?}");
        }
    }
    // The program spends the same time in each, and hardly any outside of both.
    assert!(in_inner >= 20 && in_deep >= 20, "{in_inner} and {in_deep} of {}", stacks.len());
    assert!(in_inner + in_deep + 4 >= stacks.len(), "{in_inner} and {in_deep} of {}", stacks.len());
}

#[test]
fn a_wait_is_its_stack_and_two_switches() {
    let ring = ring("waiting.gz");
    let found: Vec<_> = records(&ring).collect();
    // As `Waits` expects them: the stack of a thread that leaves, that it leaves, and that it returns.
    let nanos = |from: RawNanos, to: RawNanos| to.0 - from.0;
    let waits = found.windows(3).filter_map(|records| match records {
        [
            PerfRecord::Sample { registers, .. },
            PerfRecord::Switch { at: left, leaves: true },
            PerfRecord::Switch { at: back, leaves: false },
        ] => Some((registers, nanos(*left, *back))),
        _ => None,
    });
    let slept = waits.filter(|(registers, nanos)| **registers != [0; 3] && *nanos >= 5_000_000).count();
    assert!(slept >= SLEEPS, "{slept}: {found:?}");
    let in_sleep = stacks(&ring).into_iter().filter(|(truncated, stack)| {
        let names: Vec<_> = stack.iter().map(|(name, _)| name.as_str()).collect();
        let is_in_sleep = names.contains(&"sleep");
        if is_in_sleep {
            assert!(!truncated && names.ends_with(&["sleep", "run", "_start"]), "{stack:?}");
            assert_eq!(stack[stack.len() - 2].1, line("run calls sleep"));
        }
        is_in_sleep
    });
    assert_eq!(in_sleep.count(), SLEEPS);
}

thread_local!(static RINGS: RefCell<(StackUnwinder, [Vec<u8>; 2])> =
    RefCell::new((unwinder(), [ring("running.gz"), ring("waiting.gz")])));

proptest! {
    /// A ring that was cut off anywhere, some words of which are others.
    #[test]
    fn corrupted_rings_are_read_and_unwound_to_an_end(
        which in 0_usize..2,
        start in any::<prop::sample::Index>(),
        length in 0_usize..40_000,
        words in prop::collection::vec((any::<prop::sample::Index>(), any::<u64>()), 0..60),
        copies in prop::collection::vec(any::<[prop::sample::Index; 2]>(), 0..60),
    ) {
        RINGS.with_borrow_mut(|(unwinder, rings)| {
            let all = &rings[which];
            let start = start.index(all.len() / 8) * 8;
            let mut bytes = all[start..all.len().min(start + length)].to_vec();
            let count = bytes.len() / 8;
            for (at, word) in words.iter().filter(|_| count > 0) {
                bytes[at.index(count) * 8..][..8].copy_from_slice(&word.to_ne_bytes());
            }
            // Addresses that are right, in places that are not.
            for [from, to] in copies.iter().filter(|_| count > 0) {
                let from = from.index(count) * 8;
                bytes.copy_within(from..from + 8, to.index(count) * 8);
            }
            let mut frames = Vec::new();
            for record in records(&bytes) {
                if let PerfRecord::Sample { registers, stack, .. } = record {
                    unwinder.unwind(registers, stack, &mut frames);
                }
            }
        });
    }
}

#[test]
#[ignore = "writes the fixture, on a machine that permits to sample"]
fn record_fixture() {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("program");
    let mut compiler = Command::new(option_env!("RUSTC").unwrap_or("rustc"));
    // Without libraries, and with what optimized programs have.
    compiler.args(["--edition=2024", "-O", "-Cpanic=abort", "-Cforce-unwind-tables=yes", "-Cforce-frame-pointers=no"]);
    compiler.args(["-Cdebuginfo=line-tables-only", "-Clink-args=-nostartfiles -nostdlib -static-pie"]);
    // Debug information has the folder that it is compiled in.
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/sampling");
    compiler.current_dir(&sources).arg(format!("--remap-path-prefix={}=.", sources.display()));
    assert!(compiler.arg("program.rs").arg("-o").arg(&program).status().unwrap().success());
    // Neither its environment nor its path, which are on its stack, are those of this machine.
    let mut child = Command::new("./program").current_dir(&folder).env_clear().stdin(Stdio::piped()).spawn().unwrap();

    // It waits for the end of its input, once the kernel has mapped it.
    let maps = loop {
        let maps = fs::read_to_string(format!("/proc/{}/maps", child.id())).unwrap();
        if maps.contains("[vdso]") {
            break maps;
        }
    };
    let room = 1 << 20;
    let reports =
        [Reports::Running { hertz: 997, stack_bytes: STACK_BYTES }, Reports::Waiting { stack_bytes: STACK_BYTES }];
    let events = reports.map(|reports| Event::open(child.id(), reports, room, room).unwrap());
    events.iter().for_each(Event::enable);
    drop(child.stdin.take());
    assert!(child.wait().unwrap().success());
    for (event, name) in events.iter().zip(["running.gz", "waiting.gz"]) {
        let mut bytes = Vec::new();
        event.read(&mut bytes);
        println!("{name}: {} records", records(&bytes).count());
        let to = fs::File::create(file(name)).unwrap();
        let mut packed = flate2::write::GzEncoder::new(to, flate2::Compression::best());
        std::io::copy(&mut bytes.as_slice(), &mut packed).unwrap();
        packed.finish().unwrap();
    }
    let maps = maps.replace(program.canonicalize().unwrap().to_str().unwrap(), "PROGRAM");
    let code = maps.lines().find(|line| line.contains(" r-xp ") && line.ends_with("PROGRAM")).unwrap();
    fs::write(file("maps"), format!("{code}\n")).unwrap();
    fs::copy(&program, file("program")).unwrap();
}
