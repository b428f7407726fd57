//! Starts programs with random recorders and orders of lines, and checks that each trains, finishes and ends.
//!
//! - `starts many COUNT SEED [JOBS [WORD…]]` starts COUNT programs, JOBS at a time, each of which also has these words.
//!   A program that takes longer than a minute hangs: the stacks of its threads are printed. It exits with 1 if any
//!   program hung or failed.
//! - `starts one WORD…` is one program. The words are recorders (`counters`, `vitals`, `samples`, `cpu`, `memory`,
//!   `snapshots`, `heap`), `before` (the device is made before the profiler), `threads` (three more threads make
//!   contexts and train meanwhile), `nvml` (another thread uses NVML and shuts it down, again and again), and how the
//!   program ends: `drop`, `exit`, or else `finish`.

use cudarc::{
    cublas::CudaBlas,
    driver::{CudaContext, CudaStream},
};
use gpu_bench::Gpu;
use kernspan::{Activity, Counters, CpuTime, MemorySnapshots, Profiler, Samples, Schedule, Vitals, analysis::Analysis};
use nvml_wrapper::Nvml;
use soak::stacks_of;
use std::{
    collections::BTreeMap,
    ffi::OsStr,
    process::{Child, Command, ExitCode, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};
use tracing_subscriber::prelude::*;

#[global_allocator]
static ALLOCATOR: kernspan::Allocator = kernspan::Allocator::system();

/// Half of the programs have each of these.
const WORDS: [&str; 10] =
    ["counters", "vitals", "samples", "cpu", "memory", "snapshots", "heap", "before", "threads", "nvml"];
const ENDS: [&str; 3] = ["finish", "drop", "exit"];
/// The time after which a program hangs: it takes some seconds.
const LIMIT: Duration = Duration::from_secs(60);

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let number = |index: usize| arguments.get(index).and_then(|text| text.parse().ok());
    match (arguments.first().map(String::as_str), number(1), number(2)) {
        (Some("one"), ..) => one(&arguments[1..]),
        (Some("many"), Some(count), Some(seed)) => {
            return many(count, seed, number(3).unwrap_or(1), arguments.get(4..).unwrap_or_default());
        }
        _ => panic!("starts one WORD… | starts many COUNT SEED [JOBS [WORD…]]"),
    }
    ExitCode::SUCCESS
}

/// Starts many programs, and prints how each kind fared.
fn many(count: u64, seed: u64, jobs: u64, words: &[String]) -> ExitCode {
    let next = Arc::new(AtomicU64::new(0));
    let (sender, outcomes) = mpsc::channel();
    for _ in 0..jobs {
        let (sender, next, words) = (sender.clone(), Arc::clone(&next), words.to_vec());
        thread::spawn(move || {
            while let number @ 0.. = next.fetch_add(1, Ordering::Relaxed)
                && number < count
            {
                let mut plan = random_words(seed + number);
                plan.extend(words.iter().cloned());
                let outcome = watch(&plan);
                let _ = sender.send((plan, outcome));
            }
        });
    }
    drop(sender);
    let (mut failed, mut kinds) = (0, BTreeMap::<_, (u32, u32)>::new());
    for (plan, outcome) in outcomes {
        let is_bad = outcome.is_err();
        failed += u32::from(is_bad);
        let (Ok(said) | Err(said)) = outcome;
        println!("{} {}: {said}", if is_bad { "FAILED" } else { "ok" }, plan.join(" "));
        for word in plan {
            let (all, bad) = kinds.entry(word).or_default();
            (*all, *bad) = (*all + 1, *bad + u32::from(is_bad));
        }
    }
    println!("\n{failed} of {count} programs hung or failed");
    kinds.iter().for_each(|(word, (all, bad))| println!("{word:>10} {bad:>4} of {all}"));
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Returns the words of a program, chosen by a seed.
fn random_words(seed: u64) -> Vec<String> {
    // SplitMix64.
    let mut bits = seed.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^= bits >> 31;
    let chosen = WORDS.iter().enumerate().filter(|(place, _)| bits >> place & 1 == 1).map(|(_, word)| *word);
    chosen.chain([ENDS[(bits >> 32) as usize % ENDS.len()]]).map(str::to_owned).collect()
}

/// Runs a program with these words, within the limit. Returns what it said.
fn watch(words: &[String]) -> Result<String, String> {
    let program = std::env::current_exe().expect("the path of this program");
    let child = Command::new(program).arg("one").args(words).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let mut child = child.expect("a process");
    let start = Instant::now();
    while child.try_wait().expect("a process").is_none() {
        if start.elapsed() > LIMIT {
            let stacks = stacks_of(child.id());
            let _ = child.kill();
            return Err(format!("hangs\n{}\n{stacks}", said(child)));
        }
        thread::sleep(Duration::from_millis(20));
    }
    let is_ok = child.try_wait().expect("a process").is_some_and(|status| status.success());
    let said = said(child);
    if is_ok && said.contains("trained") { Ok(said) } else { Err(said) }
}

fn said(child: Child) -> String {
    let output = child.wait_with_output().expect("a process");
    let said = [output.stdout, output.stderr].concat();
    String::from_utf8_lossy(&said).trim().to_owned()
}

/// Trains with these recorders. Panics if a window lacks something.
fn one(words: &[String]) {
    let has = |word: &str| words.iter().any(|it| it == word);
    let over = Arc::new(AtomicBool::new(false));
    let mut threads = Vec::new();
    if has("nvml") {
        let over = Arc::clone(&over);
        threads.push(thread::spawn(move || {
            while !over.load(Ordering::Relaxed) {
                let nvml = Nvml::builder().lib_path(OsStr::new("libnvidia-ml.so.1")).init().expect("NVML");
                let device = nvml.device_by_index(0).expect("a GPU");
                let _ = device.utilization_rates().expect("a reading");
                nvml.shutdown().expect("NVML");
            }
        }));
    }
    for _ in 0..if has("threads") { 3 } else { 0 } {
        let over = Arc::clone(&over);
        threads.push(thread::spawn(move || {
            let training = Training::new();
            while !over.load(Ordering::Relaxed) {
                training.step();
            }
        }));
    }
    let start = Instant::now();
    let before = has("before").then(Training::new);
    let seen = Arc::new(AtomicU64::new(0));
    let building = Instant::now();
    let (layer, profiler) = builder(&has, &seen).build().expect("a profiler");
    let built = building.elapsed();
    assert!(profiler.gpu().is_available(), "{}", profiler.gpu());
    tracing_subscriber::registry().with(layer).init();
    let making = Instant::now();
    let training = before.unwrap_or_else(Training::new);
    let made = making.elapsed();
    for _ in 0..30 {
        tracing::info_span!("train_step").in_scope(|| training.step());
        profiler.step();
    }
    over.store(true, Ordering::Relaxed);
    for thread in threads {
        thread.join().expect("no panic");
    }
    let ending = Instant::now();
    if has("finish") {
        let report = profiler.finish().expect("a report");
        assert_eq!(report.losses().total(), 0, "{}", report.losses());
    } else {
        drop(profiler);
    }
    assert_eq!(seen.load(Ordering::Relaxed), 2, "windows");
    println!(
        "trained; building took {built:.0?}, the device {made:.0?}, the end {:.0?}, all {:.1?}",
        ending.elapsed(),
        start.elapsed()
    );
    if has("exit") {
        std::process::exit(0);
    }
}

/// Returns the builder of the profiler with these recorders, which counts windows with all of their kernels.
fn builder(has: &impl Fn(&str) -> bool, seen: &Arc<AtomicU64>) -> kernspan::ProfilerBuilder {
    let (seen, counters) = (Arc::clone(seen), has("counters"));
    let check = move |window: &Analysis<'_>| {
        let steps = window.spans().filter(|span| span.name() == "train_step").count();
        let work = window.work().filter(|work| work.span().is_some_and(|span| span.name() == "train_step")).count();
        if (steps, work) == (3, 3 * Training::LAUNCHES) {
            seen.fetch_add(1, Ordering::Relaxed);
        } else {
            println!("{steps} steps with {work} launches");
        }
        for problem in window.gpu_counters().iter().filter_map(|of_gpu| of_gpu.problem()).filter(|_| counters) {
            println!("counters: {problem}");
        }
    };
    let mut activities = vec![Activity::Host, Activity::Kernels, Activity::Copies];
    let optional = [("memory", Activity::Memory), ("heap", Activity::Heap)];
    activities.extend(optional.iter().filter(|(word, _)| has(word)).map(|(_, activity)| *activity));
    let schedule = Schedule::new().skip_first(3).wait(3).warmup(1).active(3).repeat(2);
    let mut builder = Profiler::builder().schedule(schedule).activities(activities).on_trace(check);
    if counters {
        builder = builder.counters(Counters::default());
    }
    if has("vitals") {
        builder = builder.vitals(Vitals::default());
    }
    if has("samples") {
        builder = builder.samples(Samples::default());
    }
    if has("cpu") {
        builder = builder.cpu_time(CpuTime::spans());
    }
    if has("snapshots") {
        builder = builder.memory_snapshots(MemorySnapshots::to_dir(std::env::temp_dir().join("starts")));
    }
    builder
}

/// A thread's part of the training: a context, a stream, cuBLAS, and kernels.
struct Training {
    gpu: Gpu,
    stream: Arc<CudaStream>,
    _blas: CudaBlas,
}

impl Training {
    const LAUNCHES: usize = 8;

    fn new() -> Self {
        // As frameworks do, for each device again.
        CudaContext::new(0).expect("a CUDA device");
        let gpu = Gpu::new();
        let stream = gpu.stream();
        Self { _blas: CudaBlas::new(Arc::clone(&stream)).expect("cuBLAS"), gpu, stream }
    }

    fn step(&self) {
        (0..Self::LAUNCHES).for_each(|kernel| self.gpu.launch(kernel, 4, 32, &self.stream).expect("a launch"));
        self.stream.synchronize().expect("the stream");
    }
}
