//! A rank of a run with real NCCL: a small loop like a training, with a fault planted on one rank, and a check that
//! every NCCL kernel has its collective and every collective its kernel.
//!
//! `ranks FOLDER [fault=clean] [on=1] [plugin=on] [record=on] [steps=60]` is one process of several, which have `RANK`
//! and `WORLD_SIZE` in their environment and share the folder. The faults, all on rank `on`: `gpu` (kernels in
//! `backward`), `loader` (a sleep in `load`), `host` (work in `optimizer`), `sometimes` (a sleep in `load` in every
//! fifth step) and `hang` (it stays in `load` halfway, until it is killed). `ranks.sh` runs all of them.

use cudarc::{
    driver::{CudaSlice, CudaStream},
    nccl::{
        result::{group_end, group_start},
        safe::{Comm, Id, ReduceOp},
    },
};
use gpu_bench::Gpu;
use kernspan::{Chrome, Collected, Profiler, Schedule, Trace, trace::Collective};
use kernspan_nccl::{Counts, Nccl};
use std::{
    collections::BTreeMap,
    env, fs,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};
use tracing::info_span;
use tracing_subscriber::prelude::*;

/// The sizes of the gradients that are reduced one by one: some that NCCL sends with its protocol for small messages.
const BUCKETS: [usize; 6] = [1 << 10, 1 << 12, 1 << 14, 1 << 16, 1 << 17, 1 << 18];
/// The number of small ones that are reduced in one group call, and so in one kernel.
const GROUPED: usize = 3;
/// About a tenth of a millisecond on an H200, whose clock is 1.98 GHz at most.
const CYCLES: i64 = 190_000;
/// Steps before the window, in which NCCL connects and kernels are loaded.
const WARM_UP: usize = 5;
/// How much longer a faulty rank takes in a step.
const DELAY: Duration = Duration::from_millis(8);

struct Settings {
    folder: PathBuf,
    fault: String,
    on: usize,
    plugin: bool,
    record: bool,
    steps: usize,
    rank: usize,
    world: usize,
}

impl Settings {
    fn read() -> Self {
        let variable = |name: &str| env::var(name).ok().and_then(|text| text.parse().ok());
        let (rank, world) = (variable("RANK").expect("RANK"), variable("WORLD_SIZE").expect("WORLD_SIZE"));
        let mut arguments = env::args().skip(1);
        let folder = arguments.next().expect("a folder").into();
        let given: BTreeMap<String, String> = arguments
            .map(|argument| argument.split_once('=').map(|(key, value)| (key.into(), value.into())).expect("KEY=VALUE"))
            .collect();
        let value = |key: &str, default: &str| given.get(key).map_or(default, String::as_str).to_owned();
        Self {
            folder,
            fault: value("fault", "clean"),
            on: value("on", "1").parse().expect("a rank"),
            plugin: value("plugin", "on") == "on",
            record: value("record", "on") == "on",
            steps: value("steps", "60").parse().expect("a number of steps"),
            rank,
            world,
        }
    }

    /// Whether this rank has this fault.
    fn has(&self, fault: &str) -> bool {
        self.fault == fault && self.on == self.rank
    }
}

/// The program's own count of its calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Calls {
    calls: u64,
    kernels: u64,
    elements: u64,
}

impl Calls {
    fn since(self, before: Self) -> Self {
        Self {
            calls: self.calls - before.calls,
            kernels: self.kernels - before.kernels,
            elements: self.elements - before.elements,
        }
    }
}

struct Rank {
    settings: Settings,
    gpu: Gpu,
    stream: Arc<CudaStream>,
    comm: Comm,
    buckets: Vec<CudaSlice<f32>>,
    small: Vec<CudaSlice<f32>>,
    calls: Calls,
}

impl Rank {
    fn step(&mut self, step: usize) {
        let _step = info_span!("train_step").entered();
        info_span!("load").in_scope(|| self.load(step));
        info_span!("forward").in_scope(|| self.compute(5));
        info_span!("backward").in_scope(|| self.backward());
        info_span!("optimizer").in_scope(|| {
            self.compute(1);
            self.stream.synchronize().expect("the stream");
            busy(Duration::from_micros(500));
            if self.settings.has("host") {
                busy(DELAY);
            }
        });
    }

    fn load(&self, step: usize) {
        thread::sleep(Duration::from_millis(1));
        if self.settings.has("loader") {
            thread::sleep(DELAY);
        }
        if self.settings.has("sometimes") && step.is_multiple_of(5) {
            thread::sleep(5 * DELAY);
        }
        while self.settings.has("hang") && step == self.settings.steps / 2 {
            thread::sleep(Duration::from_secs(1));
        }
    }

    fn compute(&self, kernels: usize) {
        for _ in 0..kernels {
            self.gpu.spin(CYCLES, &self.stream).expect("a launch");
        }
    }

    fn backward(&mut self) {
        for index in 0..self.buckets.len() {
            self.compute(2);
            if self.settings.has("gpu") {
                // Spread over the buckets, so that the sum is the delay.
                let cycles = CYCLES * i64::try_from(DELAY.as_micros()).expect("a delay") / 100;
                self.gpu.spin(cycles / BUCKETS.len() as i64, &self.stream).expect("a launch");
            }
            let bucket = &mut self.buckets[index];
            self.calls.elements += bucket.len() as u64;
            self.comm.all_reduce_in_place(bucket, &ReduceOp::Sum).expect("an all-reduce");
            self.calls.calls += 1;
            self.calls.kernels += 1;
        }
        group_start().expect("a group");
        for small in &mut self.small {
            self.calls.elements += small.len() as u64;
            self.comm.all_reduce_in_place(small, &ReduceOp::Sum).expect("an all-reduce");
            self.calls.calls += 1;
        }
        group_end().expect("a group");
        self.calls.kernels += 1;
    }
}

fn busy(time: Duration) {
    let start = Instant::now();
    while start.elapsed() < time {
        std::hint::spin_loop();
    }
}

/// Gives all ranks the id of rank 0, through a file.
fn exchange(folder: &Path, rank: usize) -> Id {
    let (file, temporary) = (folder.join("nccl-id"), folder.join("nccl-id.new"));
    if rank == 0 {
        let id = Id::new().expect("NCCL's id");
        fs::write(&temporary, id.internal().map(|byte| byte as u8)).expect("the id's file");
        fs::rename(&temporary, &file).expect("the id's file");
        return id;
    }
    let deadline = Instant::now() + Duration::from_secs(60);
    while Instant::now() < deadline {
        if let Ok(Ok(bytes)) = fs::read(&file).map(<[u8; 128]>::try_from) {
            return Id::uninit(bytes.map(|byte| byte as _));
        }
        thread::sleep(Duration::from_millis(10));
    }
    panic!("rank 0 has written no id within a minute");
}

fn main() -> ExitCode {
    let settings = Settings::read();
    fs::create_dir_all(&settings.folder).expect("the folder");
    let gpu = Gpu::new();
    let collected = Collected::new();
    let builder = Profiler::builder().schedule(Schedule::manual()).memory_limit_bytes(1 << 30);
    let (layer, profiler) =
        builder.export(collected.clone()).export(Chrome::to_dir(&settings.folder)).build().expect("a profiler");
    tracing_subscriber::registry().with(layer).init();
    let plugin = settings.plugin.then(|| {
        let nccl = Nccl::new().hangs_to_dir(&settings.folder).slow_step(Duration::from_secs(5)).on_signal(10);
        nccl.install(&profiler).expect("the plugin")
    });

    assert!(profiler.gpu().is_available(), "{}", profiler.gpu());
    let stream = gpu.stream();
    let id = exchange(&settings.folder, settings.rank);
    let comm = Comm::from_rank(Arc::clone(&stream), settings.rank, settings.world, id).expect("a communicator");
    let zeros = |length: usize| stream.alloc_zeros::<f32>(length).expect("memory");
    let (buckets, small) = (BUCKETS.map(zeros).into(), (0..GROUPED).map(|_| zeros(256)).collect());
    let mut rank = Rank { settings, gpu, stream: Arc::clone(&stream), comm, buckets, small, calls: Calls::default() };

    let (mut times, mut before) = (Vec::new(), Calls::default());
    for step in 0..rank.settings.steps {
        if step == WARM_UP {
            before = rank.calls;
            if rank.settings.record {
                profiler.start();
            }
        }
        let start = Instant::now();
        rank.step(step);
        if step >= WARM_UP {
            times.push(start.elapsed());
        }
        profiler.step();
    }
    profiler.stop();
    stream.synchronize().expect("the stream");
    let counts = plugin.as_ref().map(kernspan_nccl::Plugin::counts);
    drop(plugin);
    profiler.finish().expect("a report");
    report(&rank, before, times, counts, &collected.traces())
}

/// Prints one line with all counts, and whether they agree.
fn report(
    rank: &Rank,
    before: Calls,
    mut times: Vec<Duration>,
    counts: Option<Counts>,
    traces: &[Arc<Trace>],
) -> ExitCode {
    let Rank { settings, calls, .. } = rank;
    let Settings { fault, plugin, record, steps, rank: number, world, .. } = settings;
    times.sort_unstable();
    let median = times.get(times.len() / 2).copied().unwrap_or_default();
    let in_window = if *record { calls.since(before) } else { Calls::default() };
    let work = || traces.iter().flat_map(|trace| trace.work());
    let nccl = work().filter(|work| work.kernel().is_some_and(|kernel| kernel.name.starts_with("nccl"))).count() as u64;
    let mut found: Vec<&Collective> = work().filter_map(kernspan::trace::Work::collective).collect();
    found.sort_by_key(|collective| collective.sequence);
    let seen = Calls {
        calls: found.iter().map(|collective| 1 + u64::from(collective.merged)).sum(),
        kernels: found.len() as u64,
        elements: found.iter().map(|collective| collective.elements_in).sum(),
    };
    let mut next = found.first().and_then(|collective| collective.sequence);
    let in_sequence = found.iter().all(|collective| {
        let expected =
            std::mem::replace(&mut next, collective.sequence.map(|it| it + 1 + u64::from(collective.merged)));
        collective.sequence == expected
            && collective.group_rank == u32::try_from(*number).ok()
            && collective.group_size as usize == *world
            && !collective.algorithm.is_empty()
            && !collective.protocol.is_empty()
    });
    let in_span = work().filter(|work| work.collective().is_some());
    let in_span = in_span.filter(|work| work.span().is_some_and(|span| span.name() == "backward")).count() as u64;
    let mut wrong = Vec::new();
    let mut check = |holds: bool, what: &'static str| wrong.extend((!holds).then_some(what));
    check(nccl == in_window.kernels, "kernels that CUPTI saw");
    if *plugin {
        check(seen == in_window, "calls, kernels and elements in the trace");
        check(in_sequence, "sequence numbers, ranks, algorithms");
        check(in_span == seen.kernels, "spans of collectives");
        check(counts.is_some_and(|counts| counts.collectives == calls.calls), "calls that the plugin saw");
    } else {
        check(seen == Calls::default(), "collectives without a plugin");
    }
    println!(
        "rank {number} of {world}: fault {fault}, plugin {plugin}, record {record}, {steps} steps, median {:.3} ms; \
         in the window: calls {}, NCCL kernels {nccl}, with collective {}, collectives in them {}, in `backward` \
         {in_span}; plugin: {counts:?}; {}",
        median.as_secs_f64() * 1e3,
        in_window.calls,
        seen.kernels,
        seen.calls,
        if wrong.is_empty() { "OK".to_owned() } else { format!("WRONG: {}", wrong.join(", ")) },
    );
    if wrong.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
