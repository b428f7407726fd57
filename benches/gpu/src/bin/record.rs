//! Records the fixtures that the tests replay. `record FILE training|calls|counters` runs a small program like a
//! training on a GPU and writes CUPTI's records to the file. `training` has kernels, copies, memory, waits, a graph,
//! two threads and work that is handed over; `calls` has kernels, copies and all API calls; `counters` has hardware
//! counters of products of matrices and of copies, whose FLOPs and bytes are known, and of small kernels.

use cudarc::driver::{CudaGraph, CudaStream, sys};
use gpu_bench::{Gpu, work::Work};
use kernspan::{
    Activity, Counters, Profiler, Schedule,
    framework::{HandOver, Origin},
};
use std::{
    path::{Path, PathBuf},
    sync::{Arc, Barrier, mpsc},
    thread,
    time::Duration,
};
use tracing::{info_span, instrument};
use tracing_subscriber::prelude::*;

const STEPS: u32 = 6;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let [file, fixture] = arguments.as_slice() else { return Err("usage: record FILE training|calls|counters".into()) };
    let mut activities = vec![Activity::Host, Activity::Kernels, Activity::Copies];
    let (mut wait, mut active) = (1, 3);
    match fixture.as_str() {
        "training" => activities.extend([Activity::Memory, Activity::Sync]),
        "calls" => activities.push(Activity::ApiCalls),
        "counters" => (wait, active) = COUNTED_STEPS,
        _ => return Err(format!("no fixture is called {fixture}").into()),
    }
    let folder = PathBuf::from(format!("{file}.parts"));
    let mut builder = Profiler::builder()
        .activities(activities)
        .schedule(Schedule::new().wait(wait).warmup(1).active(active).repeat(1))
        .raw_to_dir(&folder);
    if fixture == "counters" {
        builder = builder.counters(Counters::default());
    }
    let (layer, profiler) = builder.build()?;
    assert!(profiler.gpu().is_available(), "{}", profiler.gpu());
    tracing_subscriber::registry().with(layer).init();
    match fixture.as_str() {
        "counters" => train_with_counters(&profiler),
        _ => train(&profiler),
    }
    let report = profiler.finish()?;
    println!("{report}");
    let [recorded] = report.files() else { return Err("not one window".into()) };
    std::fs::rename(recorded, Path::new(file))?;
    std::fs::remove_dir(&folder)?;
    Ok(())
}

/// The steps before those that are recorded with counters, in which the host runs as far ahead of the GPU as it can,
/// and those that are recorded, of some 3 ms each.
const COUNTED_STEPS: (u64, u64) = (60, 40);

/// Products of matrices, copies and small kernels, each in a span of its own.
fn train_with_counters(profiler: &Profiler) {
    /// The rows of a matrix, and the bytes that a copy reads.
    const SIZES: [usize; 2] = [4096, 1 << 30];
    let [size, bytes] = SIZES;
    let gpu = Gpu::new();
    let mut work = Work::new(&gpu);
    let step = |work: &mut Work| {
        let _step = info_span!("train_step").entered();
        let flops = 10 * 2 * (size as u64).pow(3);
        info_span!("compute", op.flops = flops).in_scope(|| (0..10).for_each(|_| work.multiply(size)));
        info_span!("memory", bytes = 4 * bytes).in_scope(|| (0..2).for_each(|_| work.copy(bytes)));
        info_span!("small").in_scope(|| {
            (0..40).for_each(|number| gpu.launch(number % 8, 1, 32, &work.stream).expect("a launch"));
        });
    };
    (0..20).for_each(|_| step(&mut work));
    work.wait();
    // The counters are set up in the background.
    thread::sleep(Duration::from_secs(2));
    for _ in 0..COUNTED_STEPS.0 + COUNTED_STEPS.1 + 4 {
        step(&mut work);
        profiler.step();
    }
    work.wait();
}

fn train(profiler: &Profiler) {
    let gpu = Arc::new(Gpu::new());
    let stream = gpu.stream();
    let graph = capture(&gpu, &stream);
    let done = Arc::new(Barrier::new(2));
    let (device, submit) = device_thread(&gpu, profiler.hand_over(), &done);
    let turn = Arc::new(Barrier::new(2));
    let loader = loader_thread(&gpu, &turn);
    for step in 0..STEPS {
        turn.wait();
        train_step(step, &gpu, &stream, &graph, &profiler.hand_over(), &submit, &done);
        turn.wait();
        profiler.step();
    }
    drop(submit);
    device.join().expect("the device's thread");
    loader.join().expect("the loader's thread");
}

#[instrument(skip_all)]
fn train_step(
    step: u32,
    gpu: &Gpu,
    stream: &Arc<CudaStream>,
    graph: &CudaGraph,
    hand_over: &HandOver,
    submit: &mpsc::Sender<(Origin, u32)>,
    done: &Barrier,
) {
    let data = vec![step as f32; 4096];
    let mut batch = info_span!("data").in_scope(|| stream.clone_htod(&data).expect("a copy"));
    info_span!("forward").in_scope(|| {
        for layer in 0..4 {
            let _layer = info_span!("layer").entered();
            (0..8).for_each(|_| gpu.launch(layer % 8, 1 + step, 64, stream).expect("a launch"));
        }
    });
    info_span!("graph").in_scope(|| graph.launch().expect("a launch"));
    info_span!("backward").in_scope(|| {
        for layer in 0..4 {
            info_span!("layer").in_scope(|| submit.send((hand_over.origin(), layer)).expect("the device's thread"));
        }
    });
    info_span!("optimizer").in_scope(|| {
        stream.memset_zeros(&mut batch).expect("a fill");
        let copy = stream.clone_dtod(&batch).expect("a copy");
        gpu.spin(20_000, stream).expect("a launch");
        drop(copy);
    });
    info_span!("loss").in_scope(|| stream.clone_dtoh(&batch).expect("a copy"));
    stream.synchronize().expect("the stream");
    done.wait();
}

/// Captures a graph of five kernels, two of which may run at the same time.
fn capture(gpu: &Gpu, stream: &Arc<CudaStream>) -> CudaGraph {
    let side = gpu.context.new_stream().expect("a stream");
    stream.begin_capture(sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL).expect("a capture");
    gpu.launch(0, 1, 32, stream).expect("a launch");
    side.join(stream).expect("an event");
    gpu.spin(10_000, &side).expect("a launch");
    gpu.spin(10_000, stream).expect("a launch");
    stream.join(&side).expect("an event");
    gpu.launch(1, 1, 32, stream).expect("a launch");
    gpu.launch(2, 1, 32, stream).expect("a launch");
    let flags = sys::CUgraphInstantiate_flags::CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH;
    stream.end_capture(flags).expect("a capture").expect("a graph")
}

/// Starts a thread that launches on behalf of others, as frameworks with their own threads do.
fn device_thread(
    gpu: &Arc<Gpu>,
    hand_over: HandOver,
    done: &Arc<Barrier>,
) -> (thread::JoinHandle<()>, mpsc::Sender<(Origin, u32)>) {
    let (submit, submitted) = mpsc::channel::<(Origin, u32)>();
    let (gpu, done) = (Arc::clone(gpu), Arc::clone(done));
    let run = move || {
        let stream = gpu.stream();
        for (origin, layer) in submitted {
            hand_over.adopt(origin);
            gpu.launch(5, 10 + layer, 64, &stream).expect("a launch");
            gpu.launch(5, 10 + layer, 64, &stream).expect("a launch");
            if layer == 3 {
                done.wait();
            }
        }
    };
    (thread::Builder::new().name("device".to_owned()).spawn(run).expect("a thread"), submit)
}

/// Starts a thread that prefetches on its own stream, in its own spans.
fn loader_thread(gpu: &Arc<Gpu>, turn: &Arc<Barrier>) -> thread::JoinHandle<()> {
    let (gpu, turn) = (Arc::clone(gpu), Arc::clone(turn));
    let run = move || {
        let stream = gpu.stream();
        for step in 0..STEPS {
            turn.wait();
            info_span!("prefetch").in_scope(|| {
                drop(stream.clone_htod(&vec![step; 1024]).expect("a copy"));
                gpu.launch(7, 100 + step, 128, &stream).expect("a launch");
            });
            turn.wait();
        }
    };
    thread::Builder::new().name("loader".to_owned()).spawn(run).expect("a thread")
}
