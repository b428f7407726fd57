//! Is every kernel given to the span that asked for it, and none lost, though Burn launches them on a thread of its own, later, and
//! several spans' at once? The size of a span's tensors is its own, so the grids of its kernels are, and the bytes of its copies.
//!
//! `exact [WINDOWS] [SPANS]`: that many windows, in which a thread runs that many spans; another runs its spans all the time, also between
//! windows and across their edges.

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

/// How many sizes there are. Even ones are those of the one thread, odd ones those of the other.
const SIZES: u64 = 200;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1).filter_map(|argument| argument.parse::<u64>().ok());
    let (windows, spans) = (arguments.next().unwrap_or(10), arguments.next().unwrap_or(1000));
    let device = gpu()?;
    let collected = Collected::new();
    let (layer, profiler) =
        Profiler::builder().schedule(Schedule::manual()).memory_limit(4 << 30).export(collected.clone()).build()?;
    assert!(profiler.gpu().is_available(), "{}", profiler.gpu());
    tracing_subscriber::registry().with(layer).init();
    let _attached = kernspan_burn::attach(&profiler, &device)?;

    // Kernels are compiled and tuned at first; then each span is run by itself, so that there is no doubt what it launches.
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
        // What is done in between is in no window.
        (0..10).for_each(|turn| span(turn * 2 + 2, &device));
    }
    stop.store(true, Ordering::Relaxed);
    other.join().map_err(|_| "the other thread panicked")??;
    let report = profiler.finish()?;

    let traces = collected.traces();
    let known = Known::of(&traces[0]);
    let mut counts = BTreeMap::<&str, u64>::new();
    let mut shown = 0;
    for trace in &traces[1..] {
        let mut kernels = HashMap::new();
        for work in trace.work().filter(What::tells) {
            let what = What::of(&work);
            let size = work.span().map(|span| span.field("size").and_then(Value::as_u64));
            if let (Some(Some(size)), Some(_)) = (size, work.kernel()) {
                *kernels.entry((work.span().map(Span::id), size)).or_insert(0_usize) += 1;
            }
            let judged = match size {
                None if work.attribution() == Attribution::Before => "asked for before the window",
                None => "unattributed",
                Some(None) => "tuning",
                Some(Some(size)) if known.sizes.get(&what).is_some_and(|sizes| sizes.contains(&size)) => {
                    if known.sizes[&what].len() == 1 { "right" } else { "right, as far as can be told" }
                }
                Some(Some(size)) => {
                    shown += 1;
                    if shown < 20 {
                        println!("wrong: {what:?} in a span of {size}, known of {:?}", known.sizes.get(&what));
                    }
                    "wrong"
                }
            };
            *counts.entry(judged).or_default() += 1;
        }
        for ((_, size), number) in kernels {
            let whole = known.kernels.get(&size) == Some(&number);
            *counts.entry(if whole { "spans with all their kernels" } else { "spans with some" }).or_default() += 1;
        }
    }
    println!("{windows} windows of {spans} spans and another thread's: {counts:#?}");
    println!("{}", report.losses());
    let of = |what: &str| counts.get(what).copied().unwrap_or(0);
    assert_eq!((of("wrong"), of("unattributed")), (0, 0), "not exact");
    assert!(report.losses().is_empty());
    Ok(())
}

/// Work whose every kernel and copy is of a size that only this span has.
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

/// What tells kernels and copies of different sizes apart.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct What {
    name: String,
    grid: [u32; 3],
    bytes: u64,
}

impl What {
    /// Kernels, and copies that are larger than what a launch needs to know: such come and go, and are of no span's size.
    fn tells(work: &Work<'_>) -> bool {
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

/// What the spans launch.
struct Known {
    /// The sizes that have such a kernel or copy.
    sizes: HashMap<What, HashSet<u64>>,
    /// How many kernels each size has.
    kernels: HashMap<u64, usize>,
}

impl Known {
    fn of(trace: &Trace) -> Self {
        let mut known = Self { sizes: HashMap::new(), kernels: HashMap::new() };
        for work in trace.work().filter(What::tells) {
            let size = work.span().and_then(|span| span.field("size")?.as_u64());
            if let Some(size) = size {
                known.sizes.entry(What::of(&work)).or_default().insert(size);
                *known.kernels.entry(size).or_default() += usize::from(work.kernel().is_some());
            }
        }
        known
    }
}
