//! The memory of the process, of its GPUs and of frameworks' pools in the course of the run, whether or not steps are recorded.
//!
//! A background thread reads it a hundred times a second at first and while a window is open, and five times a second
//! later. The report has the whole run, traces have their window as counters, and exporters of steps have the latest
//! value at the end of each step. The program's threads do nothing for it but count steps.

use crate::{
    analysis::{MemorySeries, MemorySource},
    gpu::GpuSource,
    heap,
    host::{Host, pool_counter},
    thread::spawn,
    trace::{Counter, DeviceId, Timestamp},
};
use std::{
    collections::VecDeque,
    io,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        mpsc::{self, RecvTimeoutError, Sender},
    },
    thread::JoinHandle,
    time::{Duration, SystemTime},
};

/// The readings of a run, shared by the thread that reads and those that export.
#[derive(Debug, Default)]
pub(crate) struct MemoryHistory(Mutex<Readings>);

#[derive(Debug, Default)]
struct Readings {
    series: Vec<MemorySeries>,
    /// The latest readings.
    latest: VecDeque<Reading>,
}

/// The bytes of each source at one moment.
#[derive(Clone, Debug)]
struct Reading {
    at: Timestamp,
    bytes: Vec<(MemorySource, u64)>,
}

/// The thread that reads, until this is dropped.
#[derive(Debug)]
pub(crate) struct MemoryThread {
    thread: Option<JoinHandle<()>>,
    ending: Option<Sender<()>>,
    pub(crate) history: Arc<MemoryHistory>,
}

impl MemoryHistory {
    /// The number of latest readings that are kept: those of a window of 40 seconds.
    const LATEST: usize = 4_096;

    fn lock(&self) -> MutexGuard<'_, Readings> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the memory over the whole run.
    pub(crate) fn series(&self) -> Vec<MemorySeries> {
        self.lock().series.clone()
    }

    /// Returns the readings between two moments as counters.
    pub(crate) fn counters(&self, start: Timestamp, end: Timestamp) -> Vec<Counter> {
        let readings = self.lock();
        let inside = readings.latest.iter().filter(|reading| (start..=end).contains(&reading.at));
        let mut counters: Vec<Counter> = Vec::new();
        for (at, (source, bytes)) in inside.flat_map(|reading| reading.bytes.iter().map(|bytes| (reading.at, *bytes))) {
            let name = name(source);
            let index = counters.iter().position(|counter| counter.name() == name).unwrap_or_else(|| {
                counters.push(Counter { name: name.into(), samples: Vec::new() });
                counters.len() - 1
            });
            counters[index].samples.push((at, bytes as f64));
        }
        counters
    }

    /// Returns the latest values at a moment, by the names of their counters.
    pub(crate) fn at(&self, moment: Timestamp) -> Vec<(&'static str, f64)> {
        let readings = self.lock();
        let after = readings.latest.partition_point(|reading| reading.at <= moment);
        // At the beginning, the first reading may be later than the first step.
        let reading = readings.latest.get(after.saturating_sub(1));
        reading.map_or_else(Vec::new, |reading| {
            reading.bytes.iter().map(|&(source, bytes)| (name(source), bytes as f64)).collect()
        })
    }

    /// Adds a reading, to the series only if `is_point`. Returns false if the points should be further apart from now
    /// on.
    fn add(&self, step: u64, reading: Reading, limits: impl Fn(MemorySource) -> Option<u64>, is_point: bool) -> bool {
        let mut readings = self.lock();
        let mut has_room = true;
        for &(source, bytes) in &reading.bytes {
            let index = readings.series.iter().position(|series| series.source() == source).unwrap_or_else(|| {
                readings.series.push(MemorySeries::new(source, limits(source)));
                readings.series.len() - 1
            });
            let series = &mut readings.series[index];
            if is_point {
                has_room &= series.push(step, reading.at, bytes);
            } else {
                series.note_peak(bytes);
            }
        }
        if readings.latest.len() == Self::LATEST {
            readings.latest.pop_front();
        }
        readings.latest.push_back(reading);
        has_room
    }
}

/// Returns the name of the counter of a memory.
fn name(source: MemorySource) -> &'static str {
    const GPUS: [&str; 16] = [
        "memory.gpu0",
        "memory.gpu1",
        "memory.gpu2",
        "memory.gpu3",
        "memory.gpu4",
        "memory.gpu5",
        "memory.gpu6",
        "memory.gpu7",
        "memory.gpu8",
        "memory.gpu9",
        "memory.gpu10",
        "memory.gpu11",
        "memory.gpu12",
        "memory.gpu13",
        "memory.gpu14",
        "memory.gpu15",
    ];
    match source {
        MemorySource::Process => "memory.process",
        MemorySource::Heap => "memory.heap",
        MemorySource::Gpu(device) => GPUS.get(device.as_u32() as usize).copied().unwrap_or("memory.gpu"),
        MemorySource::Pool(pool) | MemorySource::Reserved(pool) => pool_counter(source, pool),
    }
}

impl MemoryThread {
    /// The time between two readings at first and while a window is open, and the longest time.
    const OFTEN: Duration = Duration::from_millis(10);
    const SELDOM: Duration = Duration::from_millis(200);

    /// Starts the thread.
    pub(crate) fn start(host: Arc<Host>, gpu: Option<Arc<dyn GpuSource>>) -> io::Result<Self> {
        let history = Arc::new(MemoryHistory::default());
        let (ending, ended) = mpsc::channel::<()>();
        let process = ProcessMemory::open();
        let before = process.as_ref().and_then(ProcessMemory::resident).unwrap_or(0);
        let reader = Reader { host, gpu, process, before, history: Arc::clone(&history) };
        let run = move || {
            // The time between two points of the series.
            let mut apart = Self::OFTEN;
            let mut last_point: Option<Timestamp> = None;
            loop {
                let now = now();
                let is_point = last_point.is_none_or(|last| now.since(last) >= apart);
                if is_point {
                    last_point = Some(now);
                }
                if !reader.read(now, is_point) {
                    apart *= 2;
                }
                let pause = if reader.host.is_recording() { Self::OFTEN } else { apart.min(Self::SELDOM) };
                if ended.recv_timeout(pause) != Err(RecvTimeoutError::Timeout) {
                    // The last moment counts, too.
                    reader.read(self::now(), true);
                    return;
                }
            }
        };
        let thread = Some(spawn("kernspan-memory", run)?);
        Ok(Self { thread, ending: Some(ending), history })
    }
}

impl Drop for MemoryThread {
    fn drop(&mut self) {
        drop(self.ending.take());
        // It panics only by a bug of ours, and then the readings end there.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

fn now() -> Timestamp {
    let unix = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Timestamp::from_unix_nanos(u64::try_from(unix.as_nanos()).unwrap_or(u64::MAX))
}

struct Reader {
    host: Arc<Host>,
    gpu: Option<Arc<dyn GpuSource>>,
    process: Option<ProcessMemory>,
    /// The resident memory before the heap was counted: the program may free some of it.
    before: u64,
    history: Arc<MemoryHistory>,
}

impl Reader {
    fn read(&self, at: Timestamp, is_point: bool) -> bool {
        let process = self.process.as_ref().and_then(ProcessMemory::resident);
        let heap = heap::is_counting().then(|| self.before.saturating_add_signed(heap::live_bytes()));
        let gpus = self.gpu.as_ref().map(|gpu| gpu.memory()).unwrap_or_default();
        let host = [(MemorySource::Process, process), (MemorySource::Heap, heap)];
        let host = host.into_iter().filter_map(|(source, bytes)| Some((source, bytes?)));
        let gpu = |&(device, used, _): &(DeviceId, u64, u64)| (MemorySource::Gpu(device), used);
        let pools = self.host.read_pools();
        let of_pools = pools
            .iter()
            .flat_map(|&(pool, it)| [(MemorySource::Pool(pool), it.used), (MemorySource::Reserved(pool), it.reserved)]);
        let bytes = host.chain(gpus.iter().map(gpu)).chain(of_pools).collect();
        let limit = |source| match source {
            MemorySource::Process | MemorySource::Heap => ProcessMemory::limit(),
            MemorySource::Gpu(id) => gpus.iter().find(|(device, ..)| *device == id).map(|&(_, _, size)| size),
            MemorySource::Pool(id) | MemorySource::Reserved(id) => {
                pools.iter().find(|(pool, _)| *pool == id).and_then(|(_, it)| it.limit)
            }
        };
        self.history.add(self.host.steps(), Reading { at, bytes }, limit, is_point)
    }
}

/// The resident memory of this process, as Linux tells it.
#[cfg(all(target_os = "linux", not(miri)))]
struct ProcessMemory(std::fs::File);

#[cfg(all(target_os = "linux", not(miri)))]
impl ProcessMemory {
    fn open() -> Option<Self> {
        std::fs::File::open("/proc/self/status").ok().map(Self)
    }

    fn resident(&self) -> Option<u64> {
        use std::os::unix::fs::FileExt;
        let mut text = [0; 4096];
        let length = self.0.read_at(&mut text, 0).ok()?;
        let text = std::str::from_utf8(&text[..length]).ok()?;
        let kib = text.lines().find_map(|line| line.strip_prefix("VmRSS:"))?.trim().strip_suffix(" kB")?;
        Some(kib.parse::<u64>().ok()? * 1024)
    }

    /// Returns the most memory that the process can have: that of its control group, or of the machine.
    fn limit() -> Option<u64> {
        let group = std::fs::read_to_string("/sys/fs/cgroup/memory.max").ok();
        let group = group.and_then(|text| text.trim().parse().ok());
        let system = rustix::system::sysinfo();
        let machine = system.totalram.saturating_mul(system.mem_unit.into());
        Some(group.map_or(machine, |group: u64| group.min(machine)))
    }
}

#[cfg(not(all(target_os = "linux", not(miri))))]
struct ProcessMemory;

#[cfg(not(all(target_os = "linux", not(miri))))]
impl ProcessMemory {
    fn open() -> Option<Self> {
        None
    }

    fn resident(&self) -> Option<u64> {
        None
    }

    fn limit() -> Option<u64> {
        None
    }
}
