//! The process: `/proc/self`.

use super::{files::SystemFiles, rate::Rate};
use crate::analysis::ProcessVitals;
use procfs_core::{
    FromBufRead, FromRead,
    process::{Io, Stat, Status},
};
use std::time::Duration;

/// Reads the process.
#[derive(Debug, Default)]
pub(super) struct ProcessReader {
    cpu: Rate,
    disk_read: Rate,
    disk_write: Rate,
}

impl ProcessReader {
    /// Reads the process, which may use so many CPUs.
    pub(super) fn read(&mut self, files: &SystemFiles, at: Duration, cpus: f64) -> ProcessVitals {
        let stat = files.parse("proc/self/stat", |text| Stat::from_read(text));
        let status = files.parse("proc/self/status", |text| Status::from_buf_read(text));
        let io = files.parse("proc/self/io", |text| Io::from_buf_read(text));
        let ticks = rustix::param::clock_ticks_per_second() as f64;
        let cpu_time = stat.as_ref().map(|stat| stat.utime.saturating_add(stat.stime) as f64 / ticks);
        let busy = self.cpu.per_second(at, cpu_time);
        // Threads may be bound to some of the CPUs.
        let allowed = status.as_ref().and_then(|status| status.cpus_allowed_list.as_ref());
        let allowed = allowed.map(|list| list.iter().map(|(first, last)| f64::from(last.saturating_sub(*first)) + 1.0));
        let cpus = allowed.map_or(cpus, |allowed| allowed.sum::<f64>().min(cpus));
        let bytes = |kib: Option<u64>| kib.map(|kib| kib as f64 * 1024.0);
        ProcessVitals {
            cpu: busy.filter(|_| cpus > 0.0).map(|busy| 100.0 * busy / cpus),
            cpus: busy,
            resident: bytes(status.as_ref().and_then(|status| status.vmrss)),
            swap: bytes(status.as_ref().and_then(|status| status.vmswap)),
            threads: stat.map(|stat| stat.num_threads as f64),
            disk_read: self.disk_read.per_second(at, io.as_ref().map(|io| io.read_bytes as f64)),
            disk_write: self.disk_write.per_second(at, io.as_ref().map(|io| io.write_bytes as f64)),
        }
    }
}
