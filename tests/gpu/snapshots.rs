//! Memory snapshots, with a fake driver whose memory of one GiB counts what is allocated and freed.

use crate::{
    fake::{self, Fake},
    support::{eventually, missing},
};
use kernspan::{
    Activity, Error, Html, MemorySnapshots, Profiler, ProfilerBuilder, Schedule,
    analysis::{MemorySource, SnapshotReason},
    trace::DeviceId,
};
use std::{path::Path, process::Command, sync::Barrier};
use tracing::info_span;
use tracing_subscriber::prelude::*;

const MIB: u64 = 1 << 20;

/// This is not a test but the programs that the others run, each in a process of its own.
#[test]
fn programs() {
    let Some((fake, program)) = Fake::program() else { return };
    match program.as_str() {
        "threads" => threads(fake),
        "nearly full" => nearly_full(fake),
        "not followed" => not_followed(fake),
        program => panic!("no program {program}"),
    }
}

/// Short windows with waits, in which allocations go on.
fn windows() -> ProfilerBuilder {
    Profiler::builder()
        .activities([Activity::Host, Activity::Memory])
        .schedule(Schedule::new().wait(3).warmup(1).active(1).repeat(5))
}

#[test]
fn a_snapshot_has_every_byte_that_threads_hold_whether_or_not_windows_are_open() {
    fake::run("snapshots::programs", "threads");
}

fn threads(fake: Fake) {
    const THREADS: usize = 3;
    let (layer, profiler) = windows().memory_snapshots(MemorySnapshots::in_report()).build().unwrap();
    tracing_subscriber::registry().with(layer).init();
    let steps = Barrier::new(THREADS + 1);
    std::thread::scope(|scope| {
        for thread in 0..THREADS as u64 {
            let steps = &steps;
            scope.spawn(move || {
                let _worker = info_span!("worker").entered();
                for step in 0..30_u64 {
                    let kept = info_span!("keep").in_scope(|| fake.allocate(1000 + thread).unwrap());
                    let temporary: Vec<_> = (1..40).map(|index| fake.allocate(index * 64).unwrap()).collect();
                    temporary.into_iter().for_each(|address| fake.free(address));
                    if step % 3 == 0 {
                        fake.free(kept);
                    }
                    // The first is for the snapshot, in which all stand still.
                    steps.wait();
                    steps.wait();
                }
            });
        }
        for step in 0..30_u64 {
            steps.wait();
            let snapshot = profiler.memory_snapshot().unwrap();
            assert_eq!(snapshot.gpus()[0].held, fake.used(), "step {step}: {snapshot}");
            assert_eq!(snapshot.step(), step);
            let kept = 1 + step - (1 + step).div_ceil(3);
            let [keeper] = snapshot.holders()[..] else {
                assert_eq!((kept, snapshot.holders().len()), (0, 0));
                profiler.step();
                steps.wait();
                continue;
            };
            let names: Vec<_> = keeper.frames.iter().map(|frame| &*frame.name).collect();
            // The step after the first, which is not a multiple of three.
            assert_eq!((names, keeper.allocations, keeper.first_step), (vec!["keep", "worker"], 3 * kept, 1));
            profiler.step();
            steps.wait();
        }
    });
    let gpu = MemorySource::Gpu(DeviceId::new(0));
    assert!(profiler.peak_memory(gpu).unwrap() > fake.used());
    profiler.reset_peak_memory();
    assert_eq!(profiler.peak_memory(gpu), Some(fake.used()));
    let report = profiler.finish().unwrap();
    assert!(report.memory_snapshots().is_empty(), "{report}");
}

#[test]
fn a_full_device_and_a_failed_allocation_leave_snapshots_in_the_report_and_in_files() {
    fake::run("snapshots::programs", "nearly full");
}

fn nearly_full(fake: Fake) {
    let folder = tempfile::tempdir().unwrap();
    let taken = folder.path().join("taken");
    let pages = folder.path().join("pages");
    let builder = windows().memory_snapshots(MemorySnapshots::to_dir(&taken)).export(Html::to_dir(&pages));
    let (layer, profiler) = builder.build().unwrap();
    tracing_subscriber::registry().with(layer).init();
    let weights = info_span!("weights").in_scope(|| fake.allocate(900 * MIB).unwrap());
    for _ in 0..6 {
        info_span!("train_step").in_scope(|| profiler.step());
    }
    let files = || std::fs::read_dir(&taken).unwrap().count();
    assert_eq!(files(), 0);
    let cache = info_span!("cache").in_scope(|| fake.allocate(60 * MIB).unwrap());
    eventually("a snapshot above the limit", || (files() == 1).then_some(()));
    assert!(info_span!("attention").in_scope(|| fake.allocate(500 * MIB)).is_none());
    // The program ends in an orderly way, with nothing left.
    [weights, cache].into_iter().for_each(|address| fake.free(address));
    let report = profiler.finish().unwrap();
    assert_eq!(files(), 2);
    let [above, failed] = report.memory_snapshots() else { panic!("{report}") };
    assert!(matches!(above.reason(), SnapshotReason::Above { fraction: MemorySnapshots::ABOVE, .. }));
    assert!(matches!(failed.reason(), SnapshotReason::AllocationFailed { bytes, .. } if *bytes == 500 * MIB));
    for snapshot in [above, failed] {
        let held: Vec<_> = snapshot
            .holders()
            .iter()
            .map(|holder| (holder.frames[0].name.clone(), holder.bytes, holder.first_step))
            .collect();
        assert_eq!(held, [("weights".into(), 900 * MIB, 0), ("cache".into(), 60 * MIB, 6)]);
    }
    for file in std::fs::read_dir(&taken).unwrap() {
        read_in_python(&file.unwrap().path());
    }
    let [page] = std::fs::read_dir(pages).unwrap().collect::<Vec<_>>().try_into().unwrap();
    let page = std::fs::read_to_string(page.unwrap().path()).unwrap();
    assert_eq!(page.matches("\"Memory at step 6\"").count(), 2);
    let text = report.to_string();
    assert!(text.contains("when 500 MiB could not be allocated in attention ("), "{text}");
    assert!(text.contains("wrote 2 files (*.pickle)"), "{text}");
}

/// Reads a snapshot as PyTorch's tools do, and checks what it says.
fn read_in_python(file: &Path) {
    let script = "import pickle, sys\n\
                  read = pickle.load(open(sys.argv[1], 'rb'))\n\
                  print([(it['total_size'], it['frames'][0]['name']) for it in read['segments']])\n\
                  print([event['action'] for event in read['device_traces'][0]])";
    let Ok(output) = Command::new("python3").args(["-c", script]).arg(file).output() else {
        return missing("no python3: it does NOT read memory snapshots");
    };
    let (size, more) = (900 * MIB, 60 * MIB);
    let actions = "['segment_alloc', 'alloc', 'segment_alloc', 'alloc', 'snapshot']";
    let expected = format!("[({size}, 'weights'), ({more}, 'cache')]\n{actions}\n");
    assert_eq!(String::from_utf8_lossy(&output.stdout), expected, "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn without_the_setting_there_is_no_snapshot_but_a_peak() {
    fake::run("snapshots::programs", "not followed");
}

fn not_followed(fake: Fake) {
    let (layer, profiler) = windows().build().unwrap();
    drop(layer);
    fake.free(fake.allocate(5 * MIB).unwrap());
    let Err(error @ Error::MemorySnapshot { .. }) = profiler.memory_snapshot() else { panic!() };
    assert_eq!(
        error.to_string(),
        "no memory snapshot: it takes ProfilerBuilder::memory_snapshots to follow allocations"
    );
    assert_eq!(profiler.peak_memory(MemorySource::Gpu(DeviceId::new(0))), Some(5 * MIB));
    profiler.finish().unwrap();
    let nothing = Profiler::builder().memory_snapshots(MemorySnapshots::in_report().above(1.5)).build();
    assert_eq!(
        nothing.unwrap_err().to_string(),
        "invalid setting memory_snapshots: 1.5 is not a fraction between 0 and 1"
    );
}
