//! Checks that every kernel is attributed to the span that requested it and that none is lost, although Burn launches
//! them later, on its own thread, and fused across spans. The tensors of each span have a size of their own, which the
//! grids of its kernels and the bytes of its copies show.
//!
//! `exact [WINDOWS] [SPANS]` records a number of windows, in each of which a thread runs a number of spans. Another
//! thread runs its spans all the time, also between windows and across their edges.

use burn::tensor::{Device, Tensor, TensorData};
use burn_bench::gpu;
use kernspan::{
    Collected, Profiler, Schedule, Trace,
    trace::{Attribution, Span, Value, Work},
};
use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};
use tracing_subscriber::prelude::*;

/// The number of sizes. Even sizes are used by one thread, odd ones by the other.
const SIZES: u64 = 200;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1).filter_map(|argument| argument.parse::<u64>().ok());
    let (windows, spans) = (arguments.next().unwrap_or(10), arguments.next().unwrap_or(1000));
    let device = gpu()?;
    let collected = Collected::new();
    let (layer, profiler) = Profiler::builder()
        .schedule(Schedule::manual())
        .memory_limit_bytes(4 << 30)
        .export(collected.clone())
        .build()?;
    assert!(profiler.gpu().is_available(), "{}", profiler.gpu());
    tracing_subscriber::registry().with(layer).init();
    let _attached = kernspan_burn::attach(&profiler, &device)?;

    // The first pass compiles and tunes kernels. The second runs each span by itself, which shows the kernels of each
    // size.
    for recorded in [false, true] {
        if recorded {
            profiler.start();
        }
        for size in 1..=SIZES {
            span(size, &device);
            device.sync()?;
        }
        if recorded {
            profiler.stop();
        }
    }

    let stop = Arc::new(AtomicBool::new(false));
    let other = thread::spawn({
        let (stop, device) = (Arc::clone(&stop), device.clone());
        move || {
            for turn in (0..).take_while(|_| !stop.load(Ordering::Relaxed)) {
                span(turn * 2 % SIZES + 1, &device);
            }
            device.sync()
        }
    });
    for window in 0..windows {
        profiler.start();
        for turn in 0..spans {
            span((turn + window) * 2 % SIZES + 2, &device);
        }
        profiler.stop();
        // These spans are between two windows.
        (0..10).for_each(|turn| span(turn * 2 + 2, &device));
    }
    stop.store(true, Ordering::Relaxed);
    other.join().map_err(|_| "the other thread panicked")??;
    let report = profiler.finish()?;

    let traces = collected.traces();
    let expected = Expected::of(&traces[0]);
    let mut counts = BTreeMap::<&str, u64>::new();
    let mut shown = 0;
    for trace in &traces[1..] {
        let mut kernels = HashMap::new();
        for work in trace.work().filter(WorkShape::has_size) {
            let shape = WorkShape::of(&work);
            let size = work.span().map(|span| span.field("size").and_then(Value::as_u64));
            if let (Some(Some(size)), Some(_)) = (size, work.kernel()) {
                *kernels.entry((work.span().map(Span::id), size)).or_insert(0_usize) += 1;
            }
            let verdict = match size {
                None if work.attribution() == Attribution::Before => "asked for before the window",
                None => "unattributed",
                Some(None) => "tuning",
                Some(Some(size)) if expected.sizes.get(&shape).is_some_and(|sizes| sizes.contains(&size)) => {
                    if expected.sizes[&shape].len() == 1 { "right" } else { "right, as far as can be told" }
                }
                Some(Some(size)) => {
                    shown += 1;
                    if shown < 20 {
                        println!("wrong: {shape:?} in a span of {size}, expected in {:?}", expected.sizes.get(&shape));
                    }
                    "wrong"
                }
            };
            *counts.entry(verdict).or_default() += 1;
        }
        for ((_, size), number) in kernels {
            let complete = expected.kernels.get(&size) == Some(&number);
            *counts.entry(if complete { "spans with all their kernels" } else { "spans with some" }).or_default() += 1;
        }
    }
    println!("{windows} windows of {spans} spans and another thread's: {counts:#?}");
    println!("{}", report.losses());
    let count = |verdict: &str| counts.get(verdict).copied().unwrap_or(0);
    assert_eq!((count("wrong"), count("unattributed")), (0, 0), "not exact");
    assert!(report.losses().is_empty());
    Ok(())
}

/// Runs a span whose kernels and copies have a size that no other span has.
fn span(size: u64, device: &Device) {
    tracing::info_span!("work", size).in_scope(|| {
        let rows = size as usize;
        let data = TensorData::new(vec![1.0_f32; rows * 256], [rows, 256]);
        let x: Tensor<2> = Tensor::from_data(data, device);
        let a: Tensor<2> = Tensor::full([rows, 4096], 0.5, device);
        let b = (a.clone() * 2.0 + 1.0).sqrt() * a;
        let sums = b.sum_dim(1);
        let product = x.clone().matmul(x.transpose());
        drop((sums, product));
    });
}

/// The properties of a kernel or copy that depend on the size of its span.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct WorkShape {
    name: String,
    grid: [u32; 3],
    bytes: u64,
}

impl WorkShape {
    /// Returns whether the work depends on the size: kernels do, and copies that are larger than a kernel's arguments.
    fn has_size(work: &Work<'_>) -> bool {
        work.kernel().is_some() || work.bytes() > 1024
    }

    fn of(work: &Work<'_>) -> Self {
        Self {
            name: work.name().to_string(),
            grid: work.kernel().map_or([0; 3], |kernel| kernel.grid),
            bytes: work.bytes(),
        }
    }
}

/// The expected work of the spans.
struct Expected {
    /// The sizes whose spans have such a kernel or copy.
    sizes: HashMap<WorkShape, HashSet<u64>>,
    /// The number of kernels for each size.
    kernels: HashMap<u64, usize>,
}

impl Expected {
    fn of(trace: &Trace) -> Self {
        let mut expected = Self { sizes: HashMap::new(), kernels: HashMap::new() };
        for work in trace.work().filter(WorkShape::has_size) {
            let size = work.span().and_then(|span| span.field("size")?.as_u64());
            if let Some(size) = size {
                expected.sizes.entry(WorkShape::of(&work)).or_default().insert(size);
                *expected.kernels.entry(size).or_default() += usize::from(work.kernel().is_some());
            }
        }
        expected
    }
}
