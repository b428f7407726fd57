//! The machine: CPUs, memory, disks and networks, from `/proc`.

use super::{
    files::SystemFiles,
    rate::{Rate, Shares},
};
use crate::analysis::MachineVitals;
use procfs_core::{
    CpuTime, DiskStat, DiskStats, ExplicitSystemInfo, FromBufRead, FromBufReadSI, FromRead, KernelStats, LoadAverage,
    Meminfo, VmStat, net::InterfaceDeviceStatus, parse_pressure_record,
};
use std::time::Duration;

/// The size of the sectors that Linux counts, whatever those of the disk are.
const SECTOR: f64 = 512.0;

/// Reads the machine.
#[derive(Debug)]
pub(super) struct MachineReader {
    cpus: usize,
    /// Busy, idle, waiting for disks, taken by the hypervisor.
    times: Shares<4>,
    /// How long threads waited for CPUs, disks and memory.
    pressures: [Rate; 3],
    swap_in: Rate,
    swap_out: Rate,
    disk_read: Rate,
    disk_write: Rate,
    /// How long each disk had requests.
    disks: Vec<(String, Rate)>,
    received: Rate,
    sent: Rate,
}

impl MachineReader {
    pub(super) fn open(files: &SystemFiles) -> Self {
        let cpus = stats(files).map_or(0, |stats| stats.cpu_time.len());
        let rate = Rate::default();
        Self {
            cpus: cpus.max(1),
            times: Shares::default(),
            pressures: [rate; 3],
            swap_in: rate,
            swap_out: rate,
            disk_read: rate,
            disk_write: rate,
            disks: Vec::new(),
            received: rate,
            sent: rate,
        }
    }

    /// Returns the number of CPUs.
    pub(super) fn cpus(&self) -> usize {
        self.cpus
    }

    pub(super) fn read(&mut self, files: &SystemFiles, at: Duration) -> MachineVitals {
        let mut vitals = MachineVitals::default();
        let stats = stats(files);
        if let Some(stats) = &stats {
            self.cpus = stats.cpu_time.len().max(1);
        }
        if let Some([_, idle, iowait, steal]) = self.times.percent(stats.map(|stats| times(&stats.total))) {
            vitals.cpu = Some((100.0 - idle - iowait).max(0.0));
            (vitals.iowait, vitals.steal) = (Some(iowait), Some(steal));
        }
        [vitals.cpu_pressure, vitals.io_pressure, vitals.memory_pressure] = self.read_pressures(files, at);
        vitals.load = files.parse("proc/loadavg", |text| LoadAverage::from_read(text)).map(|load| f64::from(load.one));
        if let Some(memory) = files.parse("proc/meminfo", |text| Meminfo::from_buf_read(text)) {
            let percent = |part: u64, all: u64| (all > 0).then(|| 100.0 * part as f64 / all as f64);
            let used = memory.mem_available.map(|available| memory.mem_total.saturating_sub(available));
            vitals.memory = used.and_then(|used| percent(used, memory.mem_total));
            // Without swap space, none of it is in use.
            let used = memory.swap_total.saturating_sub(memory.swap_free);
            vitals.swap = percent(used, memory.swap_total).or(Some(0.0));
        }
        let swapped = files.parse("proc/vmstat", |text| VmStat::from_buf_read(text));
        let page = rustix::param::page_size() as f64;
        let pages = |key: &str| swapped.as_ref().and_then(|swapped| Some(*swapped.0.get(key)? as f64 * page));
        vitals.swap_in = self.swap_in.per_second(at, pages("pswpin"));
        vitals.swap_out = self.swap_out.per_second(at, pages("pswpout"));
        self.read_disks(files, at, &mut vitals);
        self.read_networks(files, at, &mut vitals);
        vitals
    }

    /// Reads how long threads waited, by Linux's pressure stall information; in percent of the time. Of several threads
    /// that wait at once, it counts one.
    fn read_pressures(&mut self, files: &SystemFiles, at: Duration) -> [Option<f64>; 3] {
        const FILES: [&str; 3] = ["proc/pressure/cpu", "proc/pressure/io", "proc/pressure/memory"];
        let mut percent = [None; 3];
        for ((percent, rate), file) in percent.iter_mut().zip(&mut self.pressures).zip(FILES) {
            // The first line is about some threads, the second, which older kernels lack for CPUs, about all of them.
            let record = files.text(file).and_then(|text| parse_pressure_record(text.lines().next()?).ok());
            let micros = record.map(|record| record.total as f64);
            *percent = rate.per_second(at, micros).map(|micros| (micros / 1e4).min(100.0));
        }
        percent
    }

    fn read_disks(&mut self, files: &SystemFiles, at: Duration, vitals: &mut MachineVitals) {
        let disks =
            files.parse("proc/diskstats", |text| DiskStats::from_buf_read(text)).map(|disks| whole_disks(disks.0));
        let sum = |sectors: fn(&DiskStat) -> u64| {
            disks.as_ref().map(|disks| disks.iter().map(|disk| sectors(disk) as f64 * SECTOR).sum())
        };
        vitals.disk_read = self.disk_read.per_second(at, sum(|disk| disk.sectors_read));
        vitals.disk_write = self.disk_write.per_second(at, sum(|disk| disk.sectors_written));
        let before = std::mem::take(&mut self.disks);
        let rate_of = |name: &str| before.iter().find(|(known, _)| known == name).map(|(_, rate)| *rate);
        for disk in disks.into_iter().flatten() {
            let mut rate = rate_of(&disk.name).unwrap_or_default();
            // Milliseconds a second.
            let busy = rate.per_second(at, Some(disk.time_in_progress as f64)).map(|millis| (millis / 10.0).min(100.0));
            vitals.disk_busy = [vitals.disk_busy, busy].into_iter().flatten().reduce(f64::max);
            self.disks.push((disk.name, rate));
        }
    }

    fn read_networks(&mut self, files: &SystemFiles, at: Duration, vitals: &mut MachineVitals) {
        let interfaces = files.parse("proc/self/net/dev", |text| InterfaceDeviceStatus::from_buf_read(text));
        let interfaces = interfaces.map(|interfaces| {
            let all = interfaces.0.into_values().filter(|interface| interface.name != "lo");
            let is_device = |name: &str| files.exists(&format!("sys/class/net/{name}/device"));
            let (devices, virtual_ones): (Vec<_>, Vec<_>) = all.partition(|interface| is_device(&interface.name));
            // What bridges and tunnels pass on, devices carry, too. A container has only virtual ones.
            if devices.is_empty() { virtual_ones } else { devices }
        });
        let sum = |bytes: fn(&procfs_core::net::DeviceStatus) -> u64| {
            interfaces.as_ref().map(|all| all.iter().map(|interface| bytes(interface) as f64).sum())
        };
        vitals.network_received = self.received.per_second(at, sum(|interface| interface.recv_bytes));
        vitals.network_sent = self.sent.per_second(at, sum(|interface| interface.sent_bytes));
    }
}

fn stats(files: &SystemFiles) -> Option<KernelStats> {
    let info = ExplicitSystemInfo {
        boot_time_secs: 0,
        ticks_per_second: rustix::param::clock_ticks_per_second(),
        page_size: rustix::param::page_size() as u64,
        is_little_endian: cfg!(target_endian = "little"),
    };
    files.parse("proc/stat", |text| KernelStats::from_buf_read(text, &info))
}

/// Returns the ticks that CPUs were busy, idle, waiting for disks and taken by the hypervisor. Guests are part of what
/// was busy.
fn times(cpu: &CpuTime) -> [u64; 4] {
    let known = |ticks: Option<u64>| ticks.unwrap_or(0);
    let busy = [cpu.user, cpu.nice, cpu.system, known(cpu.irq), known(cpu.softirq)];
    let busy = busy.into_iter().fold(0_u64, u64::saturating_add);
    [busy, cpu.idle, known(cpu.iowait), known(cpu.steal)]
}

/// Returns disks without their partitions, and without devices that pass requests on to others or to memory.
fn whole_disks(mut disks: Vec<DiskStat>) -> Vec<DiskStat> {
    const VIRTUAL: [&str; 6] = ["loop", "ram", "zram", "dm-", "md", "sr"];
    disks.retain(|disk| !VIRTUAL.iter().any(|prefix| disk.name.starts_with(prefix)));
    let names: Vec<_> = disks.iter().map(|disk| disk.name.clone()).collect();
    let is_part = |name: &str| {
        names.iter().any(|whole| {
            let rest = name.strip_prefix(whole.as_str()).filter(|rest| !rest.is_empty());
            let number = rest.map(|rest| match whole.ends_with(|last: char| last.is_ascii_digit()) {
                true => rest.strip_prefix('p').unwrap_or(""),
                false => rest,
            });
            number.is_some_and(|number| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()))
        })
    };
    disks.retain(|disk| !is_part(&disk.name));
    disks
}
