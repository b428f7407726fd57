//! The memory of the process, of its GPUs and of frameworks' pools in the course of the run, in recorded steps and all
//! others.
//!
//! A background thread reads it a hundred times a second at first and while a window is open, and five times a second
//! later. The report has the whole run, traces have their window as counters, and exporters of steps have the latest
//! value at the end of each step. The program's threads do nothing for it but count steps.

mod snapshots;

pub use self::snapshots::MemorySnapshots;
pub(crate) use self::snapshots::TakenSnapshots;

use self::snapshots::{SnapshotKeeper, complete};
use crate::{
    analysis::{MemorySeries, MemorySnapshot, MemorySource, SnapshotReason},
    gpu::{GpuMemory, GpuShares, GpuSource, Ledger, ledger::Wake},
    heap,
    host::Host,
    recent_readings::{Reading, RecentReadings},
    thread::{STUCK_AFTER, join_unless_stuck, spawn},
    trace::{Counter, DeviceId, Gpu, Metadata, Timestamp},
};
use std::{
    io,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        mpsc::{Receiver, RecvTimeoutError, Sender},
    },
    thread::JoinHandle,
    time::Duration,
};

/// The readings of a run, shared by the thread that reads and those that export.
#[derive(Debug, Default)]
pub(crate) struct MemoryHistory(Mutex<Readings>);

#[derive(Debug)]
struct Readings {
    series: Vec<MemorySeries>,
    /// The latest readings.
    latest: RecentReadings<MemorySource>,
    /// The most bytes of each source since the last reset.
    peaks: Vec<(MemorySource, u64)>,
    /// What the thread has left when it ended.
    taken: TakenSnapshots,
}

impl Default for Readings {
    fn default() -> Self {
        let latest = RecentReadings::new(MemoryHistory::LATEST);
        Self { series: Vec::new(), latest, peaks: Vec::new(), taken: TakenSnapshots::default() }
    }
}

/// The thread that reads, until this is dropped.
#[derive(Debug)]
pub(crate) struct MemoryThread {
    thread: Option<JoinHandle<()>>,
    wakes: Sender<Wake>,
    pub(crate) history: Arc<MemoryHistory>,
}

/// The parts that the thread is started with.
pub(crate) struct MemoryParts {
    pub(crate) host: Arc<Host>,
    pub(crate) gpu: Option<Arc<dyn GpuSource>>,
    pub(crate) metadata: Arc<Metadata>,
    /// The ledger of allocations and the settings for snapshots, if allocations are followed.
    pub(crate) snapshots: Option<(Arc<Ledger>, MemorySnapshots)>,
    /// Both ends of the way to the thread.
    pub(crate) wakes: (Sender<Wake>, Receiver<Wake>),
}

/// The memory of the run, as the program can ask for it at any time.
#[derive(Clone, Debug)]
pub(crate) struct RunMemory {
    pub(crate) gpu: Option<Arc<dyn GpuSource>>,
    pub(crate) ledger: Option<Arc<Ledger>>,
    pub(crate) history: Option<Arc<MemoryHistory>>,
}

impl RunMemory {
    /// Lists who holds GPU memory, or says why that is not known. `state` says whether GPUs are recorded.
    pub(crate) fn snapshot(&self, state: &Gpu) -> Result<MemorySnapshot, String> {
        let problem = match (&self.gpu, &self.ledger) {
            (_, None) => "it takes ProfilerBuilder::memory_snapshots to follow allocations".to_owned(),
            (Some(gpu), Some(ledger)) if state.is_available() => {
                let mut snapshot = ledger.snapshot(SnapshotReason::Asked);
                complete(&mut snapshot, &gpu.memory(true));
                return Ok(snapshot);
            }
            _ => state.to_string(),
        };
        Err(problem)
    }

    /// Returns the most bytes of a memory that were in use since the last reset.
    pub(crate) fn peak(&self, source: MemorySource) -> Option<u64> {
        if let MemorySource::Gpu(device) = source {
            // The ledger also has what is not in the pool, and the pool what was there before the ledger.
            let pool = self.gpu.as_ref().and_then(|gpu| gpu.pool_peak(device));
            return pool.max(self.ledger.as_ref().map(|ledger| ledger.peak(device)));
        }
        self.history.as_ref()?.lock().peaks.iter().find(|(of, _)| *of == source).map(|(_, bytes)| *bytes)
    }

    pub(crate) fn reset_peaks(&self) {
        self.gpu.iter().for_each(|gpu| gpu.reset_pool_peaks());
        self.ledger.iter().for_each(|ledger| ledger.reset_peaks());
        self.history.iter().for_each(|history| history.reset_peaks());
    }
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

    /// Takes the snapshots that were taken automatically, once the thread has ended.
    pub(crate) fn take_snapshots(&self) -> TakenSnapshots {
        std::mem::take(&mut self.lock().taken)
    }

    /// Resets the peaks to the latest reading.
    fn reset_peaks(&self) {
        let mut readings = self.lock();
        let latest = readings.latest.latest().map_or_else(Vec::new, bytes_of);
        readings.peaks = latest;
    }

    /// Returns the readings between two moments as counters.
    pub(crate) fn counters(&self, start: Timestamp, end: Timestamp) -> Vec<Counter> {
        self.lock().latest.counters(start, end, name)
    }

    /// Returns the latest values at a moment, by the names of their counters. At the beginning, the first reading may
    /// be later than the first step.
    pub(crate) fn at(&self, moment: Timestamp) -> Vec<(&'static str, f64)> {
        let readings = self.lock();
        let values = readings.latest.at(moment).into_iter().flat_map(|reading| &reading.values);
        values.map(|&(source, bytes)| (name(source), bytes)).collect()
    }

    /// Adds a reading, to the series only if `is_point`. Returns false if the points should be further apart from now
    /// on.
    fn add(
        &self,
        step: u64,
        reading: Reading<MemorySource>,
        limits: impl Fn(MemorySource) -> Option<u64>,
        is_point: bool,
    ) -> bool {
        let mut readings = self.lock();
        let mut has_room = true;
        for (source, bytes) in bytes_of(&reading) {
            match readings.peaks.iter_mut().find(|(of, _)| *of == source) {
                Some((_, peak)) => *peak = bytes.max(*peak),
                None => readings.peaks.push((source, bytes)),
            }
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
        readings.latest.push(reading);
        has_room
    }
}

/// Returns the bytes of each source. No memory has so many that they are not exact as a float.
fn bytes_of(reading: &Reading<MemorySource>) -> Vec<(MemorySource, u64)> {
    reading.values.iter().map(|&(source, bytes)| (source, bytes as u64)).collect()
}

/// Returns the name of the counter of a memory. Each is made once and never freed: a run has a handful of them.
fn name(source: MemorySource) -> &'static str {
    static NAMES: Mutex<Vec<(MemorySource, &str)>> = Mutex::new(Vec::new());
    let mut names = NAMES.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((_, name)) = names.iter().find(|(of, _)| *of == source) {
        return name;
    }
    let name = match source {
        MemorySource::Process => "memory.process".to_owned(),
        MemorySource::Heap => "memory.heap".to_owned(),
        MemorySource::Gpu(device) => format!("memory.gpu{device}"),
        MemorySource::GpuReserved(device) => format!("memory.gpu{device}.reserved"),
        MemorySource::GpuProcess(device) => format!("memory.gpu{device}.process"),
        MemorySource::GpuDevice(device) => format!("memory.gpu{device}.device"),
        MemorySource::Pool(pool) => format!("memory.{pool}.used"),
        MemorySource::PoolReserved(pool) => format!("memory.{pool}.reserved"),
    };
    let name = Box::leak(name.into_boxed_str());
    names.push((source, name));
    name
}

impl MemoryThread {
    /// The time between two readings at first and while a window is open, and the longest time.
    const OFTEN: Duration = Duration::from_millis(10);
    const SELDOM: Duration = Duration::from_millis(200);
    /// The golden ratio, as a part of 2^32. Its multiples are spread evenly.
    const GOLDEN: u32 = 0x9e37_79b9;

    /// Starts the thread.
    pub(crate) fn start(parts: MemoryParts) -> io::Result<Self> {
        let MemoryParts { host, gpu, metadata, snapshots, wakes: (sender, wakes) } = parts;
        let history = Arc::new(MemoryHistory::default());
        let process = ProcessMemory::open();
        let before = process.as_ref().and_then(ProcessMemory::resident).unwrap_or(0);
        let keeper = snapshots.map(|(ledger, settings)| SnapshotKeeper::new(settings, ledger, metadata));
        let shares = (None, Vec::new());
        let mut reader = Reader { host, gpu, shares, keeper, process, before, history: Arc::clone(&history) };
        let run = move || {
            // The mean time between two points of the series.
            let mut apart = Self::OFTEN;
            let mut last_point: Option<Timestamp> = None;
            let mut spread = 0_u32;
            loop {
                let now = Timestamp::now();
                let is_point = last_point.is_none_or(|last| now.since(last) >= apart / 2);
                if is_point {
                    last_point = Some(now);
                }
                if !reader.read(now, is_point) {
                    apart *= 2;
                }
                let pause = if reader.host.is_recording() { Self::OFTEN } else { apart.min(Self::SELDOM) };
                // From half as long to half as long again. A step has the same course each time: readings that keep
                // pace with steps would slide through it, and what a step uses for a moment would look like growth.
                spread = spread.wrapping_add(Self::GOLDEN);
                let pause = pause / 2 + pause.mul_f64(f64::from(spread) / f64::from(u32::MAX));
                match wakes.recv_timeout(pause) {
                    Ok(Wake::Failed(snapshot)) => reader.keep(*snapshot),
                    Ok(Wake::Alarm) | Err(RecvTimeoutError::Timeout) => {}
                    // The last moment counts, too.
                    Ok(Wake::End) | Err(RecvTimeoutError::Disconnected) => return reader.end(),
                }
            }
        };
        let thread = Some(spawn("kernspan-memory", run)?);
        Ok(Self { thread, wakes: sender, history })
    }
}

impl MemoryThread {
    /// Ends the thread, after a last reading.
    pub(crate) fn end(mut self) -> Result<(), &'static str> {
        if self.stop() {
            Ok(())
        } else {
            Err("memory was not read to the end: NVML or the driver does not return from a call")
        }
    }

    /// Ends the thread, if that has not been done. Returns false if it is stuck.
    fn stop(&mut self) -> bool {
        let _ = self.wakes.send(Wake::End);
        // It panics only by a bug of ours, and then the readings end there.
        self.thread.take().is_none_or(|thread| join_unless_stuck(thread, STUCK_AFTER, || 0).is_some())
    }
}

impl Drop for MemoryThread {
    fn drop(&mut self) {
        self.stop();
    }
}

struct Reader {
    host: Arc<Host>,
    gpu: Option<Arc<dyn GpuSource>>,
    /// When the shares of processes in the memory of GPUs were last asked for, and what they were.
    shares: (Option<Timestamp>, Vec<(DeviceId, GpuShares)>),
    keeper: Option<SnapshotKeeper>,
    process: Option<ProcessMemory>,
    /// The resident memory before the heap was counted: the program may free some of it.
    before: u64,
    history: Arc<MemoryHistory>,
}

impl Reader {
    fn read(&mut self, at: Timestamp, is_point: bool) -> bool {
        let process = self.process.as_ref().and_then(ProcessMemory::resident);
        let heap = heap::is_counting().then(|| self.before.saturating_add_signed(heap::live_bytes()));
        let gpus = self.gpus(at, false);
        self.keeper.iter_mut().for_each(|keeper| keeper.look(&gpus));
        let host = [(MemorySource::Process, process), (MemorySource::Heap, heap)];
        let gpu = gpus.iter().flat_map(|gpu| {
            let (device, pool) = (gpu.device, gpu.pool.filter(|pool| pool.reserved > 0));
            [
                (MemorySource::Gpu(device), pool.map(|pool| pool.used)),
                (MemorySource::GpuReserved(device), pool.map(|pool| pool.reserved)),
                (MemorySource::GpuProcess(device), gpu.shares.and_then(|shares| shares.process)),
                (MemorySource::GpuDevice(device), gpu.shares.map(|shares| shares.all)),
            ]
        });
        let pools = self.host.read_pools();
        let of_pools = pools.iter().flat_map(|(pool, it)| {
            [(MemorySource::Pool(*pool), Some(it.used)), (MemorySource::PoolReserved(*pool), Some(it.reserved))]
        });
        let all = host.into_iter().chain(gpu).chain(of_pools);
        let values = all.filter_map(|(source, bytes)| Some((source, bytes? as f64))).collect();
        let limit = |source: MemorySource| match (source.pool(), source.device()) {
            (Some(id), _) => pools.iter().find(|(pool, _)| *pool == id).and_then(|(_, it)| it.limit),
            (None, Some(id)) => gpus.iter().find(|gpu| gpu.device == id).map(|gpu| gpu.size),
            (None, None) => ProcessMemory::limit(),
        };
        self.history.add(self.host.steps(), Reading { at, values }, limit, is_point)
    }

    /// Returns the memory of GPUs. Unless `afresh`, the shares of processes may be from a few readings before.
    fn gpus(&mut self, at: Timestamp, afresh: bool) -> Vec<GpuMemory> {
        let Some(gpu) = &self.gpu else { return Vec::new() };
        let (asked, shares) = &mut self.shares;
        let asks = afresh || asked.is_none_or(|asked| at.since(asked) >= MemoryThread::SELDOM);
        let mut gpus = gpu.memory(asks);
        if asks {
            *asked = Some(at);
            *shares = gpus.iter().filter_map(|gpu| Some((gpu.device, gpu.shares?))).collect();
        }
        for gpu in &mut gpus {
            gpu.shares = shares.iter().find(|(device, _)| *device == gpu.device).map(|(_, shares)| *shares);
        }
        gpus
    }

    /// Keeps the snapshot of an allocation that failed.
    fn keep(&mut self, snapshot: MemorySnapshot) {
        let gpus = self.gpus(snapshot.at(), true);
        if let Some(keeper) = &mut self.keeper {
            keeper.keep(snapshot, &gpus);
        }
    }

    fn end(mut self) {
        self.read(Timestamp::now(), true);
        if let Some(keeper) = self.keeper {
            self.history.lock().taken = keeper.taken;
        }
    }
}

/// Returns the resident memory of this process, if known.
#[cfg(all(feature = "control", unix))]
pub(crate) fn resident_bytes() -> Option<u64> {
    ProcessMemory::open()?.resident()
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
