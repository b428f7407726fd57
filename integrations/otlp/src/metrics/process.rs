use super::{encode::Writer, instruments};
use kernspan::trace::Timestamp;
use std::time::Duration;

/// CPU time, memory, threads and age of this process, from Linux's `/proc`. On other systems all are `None`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Process {
    /// CPU time in user mode and in kernel mode.
    cpu: Option<[Duration; 2]>,
    /// Bytes of physical memory.
    memory: Option<u64>,
    threads: Option<u64>,
    uptime: Option<Duration>,
}

impl Process {
    #[cfg(target_os = "linux")]
    pub(super) fn now() -> Self {
        let read = |file| std::fs::read_to_string(file).unwrap_or_default();
        let [stat, status, uptime] = ["/proc/self/stat", "/proc/self/status", "/proc/uptime"].map(read);
        Self::parse(&stat, &status, &uptime, rustix::param::clock_ticks_per_second())
    }

    #[cfg(not(target_os = "linux"))]
    pub(super) fn now() -> Self {
        Self::default()
    }

    /// Parses `/proc/self/stat`, `/proc/self/status` and `/proc/uptime`; `ticks` is the number of clock ticks per
    /// second.
    #[cfg(any(target_os = "linux", test))]
    fn parse(stat: &str, status: &str, uptime: &str, ticks: u64) -> Self {
        // The preceding fields are the process id and the program's name in brackets, which may itself contain
        // brackets.
        let fields: Vec<&str> =
            stat.rsplit_once(')').map(|(_, rest)| rest.split_whitespace().collect()).unwrap_or_default();
        let time = |place: usize| {
            let count = fields.get(place)?.parse::<u64>().ok()?;
            Duration::try_from_secs_f64(count as f64 / ticks.max(1) as f64).ok()
        };
        let line = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
            line.split_whitespace().next()?.parse::<u64>().ok()
        };
        let up = uptime.split_whitespace().next().and_then(|up| Duration::try_from_secs_f64(up.parse().ok()?).ok());
        Self {
            cpu: time(11).zip(time(12)).map(|(user, system)| [user, system]),
            memory: line("VmRSS").map(|kibibytes| kibibytes.saturating_mul(1024)),
            threads: line("Threads"),
            // In some containers the uptime is that of the container, which may be younger than the process.
            uptime: up.zip(time(19)).and_then(|(up, start)| up.checked_sub(start)),
        }
    }

    pub(super) fn write(&self, now: Timestamp, writer: &mut Writer<'_>) {
        // CPU time is counted since the start of the process, which precedes that of the run.
        let age = self.uptime.map_or(0, |uptime| u64::try_from(uptime.as_nanos()).unwrap_or(u64::MAX));
        let born = Timestamp::from_unix_nanos(now.as_unix_nanos().saturating_sub(age));
        writer.metric(&instruments::CPU_TIME, |points| {
            for (mode, time) in self.cpu.iter().flat_map(|&[user, system]| [("user", user), ("system", system)]) {
                points.number_since(born, &[(instruments::CPU_MODE, mode)], time.as_secs_f64());
            }
        });
        writer.metric(&instruments::MEMORY, |points| self.memory.iter().for_each(|&bytes| points.number(&[], bytes)));
        writer.metric(&instruments::THREADS, |points| self.threads.iter().for_each(|&count| points.number(&[], count)));
        writer.metric(&instruments::UPTIME, |points| {
            self.uptime.iter().for_each(|uptime| points.number(&[], uptime.as_secs_f64()));
        });
    }
}

#[cfg(test)]
mod tests {
    use super::Process;
    use std::time::Duration;

    const STAT: &str = "4242 (a) b (c) S 1 4242 4242 0 -1 4194304 1 0 0 0 250 75 0 0 20 0 7 0 12300 1000 100 0";

    #[test]
    fn files_of_proc_are_read() {
        let status = "Name:\ta\nVmPeak:\t  9 kB\nVmRSS:\t    1024 kB\nThreads:\t7\n";
        let expected = Process {
            cpu: Some([Duration::from_millis(2500), Duration::from_millis(750)]),
            memory: Some(1 << 20),
            threads: Some(7),
            uptime: Some(Duration::from_secs(77)),
        };
        assert_eq!(Process::parse(STAT, status, "200.00 100.00\n", 100), expected);
    }

    #[test]
    fn what_is_not_there_is_not_known() {
        for stat in ["", "1 (a", "1 (a) S 1", ")"] {
            assert_eq!(Process::parse(stat, "VmRSS:\nThreads: many", "soon", 0), Process::default(), "{stat}");
        }
        // The machine has been up for less time than the process.
        assert_eq!(Process::parse(STAT, "", "1.0", 100).uptime, None);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn this_process_is_known() {
        let process = Process::now();
        assert!(process.memory.unwrap() > 0 && process.threads.unwrap() > 0, "{process:?}");
        assert!(process.cpu.is_some(), "{process:?}");
    }
}
