//! Every exporter, and the report, of windows that are hard to hold: deep recursion, very many spans, long texts.

use crate::process::check;
use kernspan::{Chrome, Html, Perfetto, Profiler, ProfilerBuilder, Report, Schedule, Stacks, TensorBoard};
use std::path::Path;
use tracing::{info, info_span};

/// Recurses ten thousand calls deep, in each of a few steps.
fn deep(profiler: &Profiler) {
    for _ in 0..3 {
        let mut open: Vec<_> = (0..10_000).map(|_| info_span!("recurse").entered()).collect();
        // From the inside out, as calls return.
        while open.pop().is_some() {}
        profiler.step();
    }
}

/// Recurses through functions of two names, so that each of very many spans has a path of its own.
fn branching(profiler: &Profiler) {
    for step in 0..40 {
        let mut open = Vec::new();
        for depth in 0..1_500 {
            open.push(if depth % 40 == step { info_span!("left").entered() } else { info_span!("right").entered() });
        }
        while open.pop().is_some() {}
        profiler.step();
    }
}

/// Enters a million spans.
fn million(profiler: &Profiler) {
    for _ in 0..10 {
        (0..100_000).for_each(|_| info_span!("work").in_scope(|| ()));
        profiler.step();
    }
}

/// Writes events with long texts, each another one.
fn texts(profiler: &Profiler) {
    for step in 0..4 {
        (0..20_000).for_each(|turn| info!(turn, text = format!("{step}:{turn}:{}", "long ".repeat(100)), "event"));
        profiler.step();
    }
}

/// Enters spans with long texts in their fields, each another one.
fn fields(profiler: &Profiler) {
    for step in 0..4 {
        for turn in 0..20_000 {
            info_span!("work", text = format!("{step}:{turn}:{}", "long ".repeat(100))).in_scope(|| ());
        }
        profiler.step();
    }
}

fn report(builder: ProfilerBuilder, _: &Path) -> ProfilerBuilder {
    builder
}

fn html(builder: ProfilerBuilder, folder: &Path) -> ProfilerBuilder {
    builder.export(Html::to_dir(folder))
}

fn chrome(builder: ProfilerBuilder, folder: &Path) -> ProfilerBuilder {
    builder.export(Chrome::to_dir(folder))
}

fn perfetto(builder: ProfilerBuilder, folder: &Path) -> ProfilerBuilder {
    builder.export(Perfetto::to_dir(folder))
}

fn tensorboard(builder: ProfilerBuilder, folder: &Path) -> ProfilerBuilder {
    builder.export(TensorBoard::to_dir(folder))
}

fn stacks(builder: ProfilerBuilder, folder: &Path) -> ProfilerBuilder {
    builder.export(Stacks::to_dir(folder))
}

/// Records all steps in one window, with this memory limit. `lane` is the capacity of a thread's queue, which takes
/// memory besides, with the texts that wait in it if the collector is held up; it must have room for the exits of all
/// open spans.
fn record(
    name: &str,
    [limit, lane]: [usize; 2],
    exporter: fn(ProfilerBuilder, &Path) -> ProfilerBuilder,
    work: fn(&Profiler),
) {
    let folder = tempfile::tempdir().unwrap();
    let settings = |builder: ProfilerBuilder| {
        exporter(builder.schedule(Schedule::new().active(40)).lane_capacity(lane), folder.path())
    };
    check(name, limit, settings, work, |report: &Report| {
        assert_eq!(report.windows(), 1);
        // Much was kept, and written if there is an exporter.
        assert!(report.completeness().dropped_share() < 0.99, "{}", report.completeness());
        assert_eq!(report.files().is_empty(), name.ends_with("::report"));
    });
}

/// A test of each kind of work with each exporter.
macro_rules! tests {
    ($($work:ident($limit:expr, $lane:expr): $($exporter:ident)*;)*) => {
        $(mod $work {
            $(#[test]
            fn $exporter() {
                let name = concat!("exporters::", stringify!($work), "::", stringify!($exporter));
                super::record(name, [$limit, $lane], super::$exporter, super::$work);
            })*
        })*
    };
}

tests! {
    deep(32 << 20, 1 << 15): report html chrome perfetto tensorboard stacks;
    branching(64 << 20, 1 << 15): report html chrome perfetto tensorboard stacks;
    million(32 << 20, 1 << 14): report html chrome perfetto tensorboard stacks;
    texts(32 << 20, 1 << 12): report html chrome perfetto tensorboard stacks;
    fields(32 << 20, 1 << 12): report html chrome perfetto tensorboard stacks;
}
