//! Tests on trees of files as Linux has them, and on the real one.

use super::{Sources, container::ContainerReader, files::SystemFiles, machine::MachineReader, process::ProcessReader};
use crate::{
    analysis::{EnergyMethod, VitalSigns},
    vitals::Vitals,
};
use rustix::time::{ClockId, clock_gettime};
use std::{
    fs,
    path::Path,
    time::{Duration, Instant},
};
use tempfile::TempDir;

/// A folder with these files.
struct Tree(TempDir);

impl Tree {
    fn of(files: &[(&str, &str)]) -> Self {
        let tree = Self(tempfile::tempdir().unwrap());
        tree.write(files);
        tree
    }

    fn write(&self, files: &[(&str, &str)]) {
        for (path, text) in files {
            let path = self.0.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
    }

    fn files(&self) -> SystemFiles {
        SystemFiles::new(self.0.path())
    }
}

const SECOND: Duration = Duration::from_secs(1);
const MIB: f64 = 1_048_576.0;

/// Returns `/proc/stat` of two CPUs: user, idle, iowait and steal.
fn stat([user, idle, iowait, steal]: [u64; 4]) -> String {
    let total = format!("{user} 0 0 {idle} {iowait} 0 0 {steal} 0 0");
    format!("cpu  {total}\ncpu0 {total}\ncpu1 {total}\nintr 5 0 1\nctxt 7\nbtime 1700000000\nprocesses 9\n")
}

#[test]
fn limits_are_those_of_the_narrowest_group_of_version_2() {
    let tree = Tree::of(&[
        ("proc/self/cgroup", "0::/kubepods/pod1/main\n"),
        ("sys/fs/cgroup/kubepods/pod1/main/cpu.max", "max 100000\n"),
        ("sys/fs/cgroup/kubepods/pod1/main/memory.max", "1073741824\n"),
        ("sys/fs/cgroup/kubepods/pod1/main/memory.current", "734003200\n"),
        ("sys/fs/cgroup/kubepods/pod1/main/memory.stat", "anon 5\ninactive_file 209715200\nfile 9\n"),
        ("sys/fs/cgroup/kubepods/pod1/cpu.max", "150000 100000\n"),
        ("sys/fs/cgroup/kubepods/pod1/memory.max", "4294967296\n"),
        ("sys/fs/cgroup/kubepods/pod1/cpu.stat", "usage_usec 1000000\nnr_periods 10\nnr_throttled 2\n"),
        ("sys/fs/cgroup/kubepods/cpu.max", "1600000 100000\n"),
    ]);
    let files = tree.files();
    let mut container = ContainerReader::open(&files);
    let first = container.read(&files, SECOND);
    assert_eq!((first.cpu, first.cpu_limit), (None, Some(1.5)));
    assert_eq!((first.memory_used, first.memory_limit), (Some(500.0 * MIB), Some(1024.0 * MIB)));
    assert_eq!(first.memory, Some(100.0 * 500.0 / 1024.0));
    let later = "usage_usec 2200000\nnr_periods 20\nnr_throttled 7\n";
    tree.write(&[("sys/fs/cgroup/kubepods/pod1/cpu.stat", later)]);
    let second = container.read(&files, 2 * SECOND);
    // 1.2 of 1.5 CPUs, and throttled in 5 of 10 periods.
    assert_eq!((second.cpu.map(f64::round), second.cpu_throttled.map(f64::round)), (Some(80.0), Some(50.0)));
}

#[test]
fn limits_of_version_1_are_found_though_the_path_is_that_outside_of_the_container() {
    let tree = Tree::of(&[
        ("proc/self/cgroup", "5:memory:/docker/abc\n3:cpu,cpuacct:/docker/abc\n0::/\n"),
        ("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "200000\n"),
        ("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n"),
        ("sys/fs/cgroup/cpu,cpuacct/cpu.stat", "nr_periods 4\nnr_throttled 0\nthrottled_time 0\n"),
        ("sys/fs/cgroup/cpu,cpuacct/cpuacct.usage", "1000000000\n"),
        ("sys/fs/cgroup/memory/memory.limit_in_bytes", "104857600\n"),
        ("sys/fs/cgroup/memory/memory.usage_in_bytes", "62914560\n"),
        ("sys/fs/cgroup/memory/memory.stat", "inactive_file 1\ntotal_inactive_file 10485760\n"),
    ]);
    let files = tree.files();
    let mut container = ContainerReader::open(&files);
    let first = container.read(&files, SECOND);
    assert_eq!((first.cpu_limit, first.memory), (Some(2.0), Some(50.0)));
    tree.write(&[("sys/fs/cgroup/cpu,cpuacct/cpuacct.usage", "2000000000\n")]);
    assert_eq!(container.read(&files, 2 * SECOND).cpu, Some(50.0));
    // No limits at all.
    let unlimited = Tree::of(&[
        ("proc/self/cgroup", "5:memory:/\n3:cpu:/\n2:cpuacct:/\n"),
        ("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n"),
        ("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n"),
        ("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"),
    ]);
    let files = unlimited.files();
    let none = ContainerReader::open(&files).read(&files, SECOND);
    assert_eq!((none.cpu_limit, none.memory_limit), (None, None));
}

#[test]
fn the_machine_is_read_as_linux_counts() {
    let disks = |read, busy| {
        format!(
            " 8 0 sda 1 0 {read} 5 1 0 8 5 0 {busy} 9\n 8 1 sda1 1 0 {read} 5 1 0 8 5 0 {busy} 9\n 259 0 nvme0n1 1 0 \
             100 5 1 0 0 5 0 40 9\n 259 1 nvme0n1p1 1 0 100 5 1 0 0 5 0 40 9\n 7 0 loop0 1 0 {read} 5 1 0 8 5 0 {busy} \
             9\n"
        )
    };
    let net = |eth| {
        let zeros = "0 0 0 0 0 0 0";
        format!("Inter-|\n face |\n    lo: 999999 {zeros} 999999 {zeros}\n  eth0: {eth} {zeros} {eth} {zeros}\n")
    };
    let pressure = |kind, total| format!("{kind} avg10=0.00 avg60=1.25 avg300=0.50 total={total}\n");
    let both = |total| pressure("some", total) + &pressure("full", total / 2);
    let tree = Tree::of(&[
        ("proc/stat", &stat([100, 800, 50, 50])),
        // As Linux 5.12 has it.
        ("proc/pressure/cpu", &pressure("some", 5_000_000)),
        ("proc/pressure/io", &both(100_000)),
        ("proc/loadavg", "3.25 1.0 0.5 2/300 4242\n"),
        ("proc/meminfo", "MemTotal: 1000 kB\nMemFree: 100 kB\nMemAvailable: 250 kB\nBuffers: 0 kB\nCached: 0 kB\n"),
        ("proc/vmstat", "pswpin 10\npswpout 20\n"),
        ("proc/diskstats", &disks(1000, 100)),
        ("proc/self/net/dev", &net(5000)),
    ]);
    let files = tree.files();
    let mut machine = MachineReader::open(&files);
    assert_eq!(machine.cpus(), 2);
    let first = machine.read(&files, SECOND);
    assert_eq!((first.cpu, first.load), (None, Some(3.25)));
    tree.write(&[
        ("proc/stat", &stat([160, 820, 60, 60])),
        ("proc/pressure/cpu", &pressure("some", 5_600_000)),
        ("proc/pressure/io", &both(350_000)),
        ("proc/vmstat", "pswpin 12\npswpout 20\n"),
        ("proc/diskstats", &disks(3000, 700)),
        ("proc/self/net/dev", &net(9000)),
    ]);
    let second = machine.read(&files, 2 * SECOND);
    // Of 100 ticks: 60 busy, 20 idle, 10 waiting for disks, 10 taken by the hypervisor.
    assert_eq!((second.cpu, second.iowait, second.steal), (Some(70.0), Some(10.0), Some(10.0)));
    assert_eq!((second.cpu_pressure, second.io_pressure, second.memory_pressure), (Some(60.0), Some(25.0), None));
    let page = rustix::param::page_size() as f64;
    assert_eq!((second.swap_in, second.swap_out), (Some(2.0 * page), Some(0.0)));
    // Neither partitions nor loop devices count twice.
    assert_eq!((second.disk_read, second.disk_busy), (Some(2000.0 * 512.0), Some(60.0)));
    assert_eq!((second.network_received, second.network_sent), (Some(4000.0), Some(4000.0)));
}

#[test]
fn sensors_are_those_of_the_cpu_and_energy_counters_may_wrap() {
    let rapl = "sys/class/powercap/intel-rapl:0";
    let tree = Tree::of(&[
        ("proc/stat", &stat([1, 1, 1, 1])),
        ("sys/class/hwmon/hwmon0/name", "nvme\n"),
        ("sys/class/hwmon/hwmon0/temp1_input", "99000\n"),
        ("sys/class/hwmon/hwmon1/name", "coretemp\n"),
        ("sys/class/hwmon/hwmon1/temp1_input", "61000\n"),
        ("sys/class/hwmon/hwmon1/temp1_label", "Package id 0\n"),
        ("sys/class/hwmon/hwmon1/temp2_input", "75000\n"),
        ("sys/class/hwmon/hwmon1/temp2_label", "Core 0\n"),
        ("sys/devices/system/cpu/cpu0/cpufreq/scaling_cur_freq", "3000000\n"),
        ("sys/devices/system/cpu/cpu1/cpufreq/scaling_cur_freq", "2000000\n"),
        ("sys/devices/system/cpu/cpu0/thermal_throttle/package_throttle_count", "5\n"),
        (&format!("{rapl}/name"), "package-0\n"),
        (&format!("{rapl}/energy_uj"), "900000000\n"),
        (&format!("{rapl}/max_energy_range_uj"), "1000000000\n"),
        ("sys/class/powercap/intel-rapl:0:0/name", "core\n"),
        ("sys/class/powercap/intel-rapl:0:0/energy_uj", "1\n"),
        ("sys/class/powercap/intel-rapl:1/name", "psys\n"),
    ]);
    let mut sources = Sources::open(tree.0.path()).unwrap();
    let first = sources.read(SECOND).machine;
    assert_eq!((first.temperature, first.frequency, first.cpu_power), (Some(61.0), Some(2.5e9), None));
    tree.write(&[
        (&format!("{rapl}/energy_uj"), "50000000\n"),
        ("sys/devices/system/cpu/cpu0/thermal_throttle/package_throttle_count", "8\n"),
    ]);
    let second = sources.read(2 * SECOND).machine;
    assert_eq!((second.cpu_power, second.cpu_energy, second.throttles), (Some(150.0), Some(150.0), Some(3.0)));
    let energy = sources.energy();
    let energy = energy.iter().find(|part| part.subject == crate::analysis::VitalSubject::Machine).unwrap();
    assert_eq!((energy.joules, energy.method, energy.time), (150.0, EnergyMethod::Counter, SECOND));
}

#[test]
fn what_is_missing_is_named_and_nothing_fails() {
    let tree = Tree::of(&[("proc/stat", "nonsense\n"), ("proc/self/cgroup", "nonsense\n"), ("proc/self/stat", "1 (x")]);
    let mut sources = Sources::open(tree.0.path()).unwrap();
    let (first, second) = (sources.read(SECOND), sources.read(2 * SECOND));
    assert_eq!((&first.process, &first.machine), (&VitalSigns::default().process, &second.machine));
    let problems = sources.problems().join("\n");
    for part in [
        "not available of the process: cpu, cpus, resident",
        "not available of the machine: cpu, iowait, ",
        "not available of the container: limits of CPU and memory, as its control group has none",
        "the energy of CPUs is not known: there is no RAPL in /sys/class/powercap",
    ] {
        assert!(problems.contains(part), "{part}: {problems}");
    }
}

/// Returns the CPU time of this process, as the kernel's clock has it.
fn cpu_clock() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

#[test]
fn real_values_are_those_of_other_clocks() {
    let files = SystemFiles::new(Path::new("/"));
    let (mut process, started) = (ProcessReader::default(), Instant::now());
    let cpus = MachineReader::open(&files).cpus();
    let before = cpu_clock();
    process.read(&files, started.elapsed(), cpus as f64);
    let after = cpu_clock();
    let from = started.elapsed();
    let mut sum = 0_u64;
    // Computes for a second of CPU time, however long that takes.
    while cpu_clock() - after < 1.0 {
        sum = (0..100_000_u64).fold(sum, |sum, number| sum.wrapping_mul(31).wrapping_add(number));
    }
    assert_ne!(sum, 1);
    let at = started.elapsed();
    let least = cpu_clock() - after;
    let vitals = process.read(&files, at, cpus as f64);
    let most = cpu_clock() - before;
    // Linux counts in ticks of 10 ms.
    let tick = 2.0 / rustix::param::clock_ticks_per_second() as f64;
    let seconds = vitals.cpus.unwrap() * at.as_secs_f64();
    let early = vitals.cpus.unwrap() * from.as_secs_f64();
    assert!((least - tick..most + tick + early).contains(&seconds), "{least} {seconds} {most}");
    // Other tests of this process allocate meanwhile.
    let statm = fs::read_to_string("/proc/self/statm").unwrap();
    let pages: f64 = statm.split_whitespace().nth(1).unwrap().parse().unwrap();
    let resident = pages * rustix::param::page_size() as f64;
    assert!((0.5..2.0).contains(&(vitals.resident.unwrap() / resident)), "{vitals:?}, {resident}");
    assert!(vitals.threads.unwrap() >= 1.0);
}

#[test]
fn settings_that_make_no_sense_are_refused() {
    let check = |vitals: Vitals| vitals.check().unwrap_err();
    assert_eq!(check(Vitals::default().every(Duration::ZERO)), "`every` is 0ns; it must be 10ms or more");
    assert_eq!(check(Vitals::default().price(-1.0)), "`price` is -1; it must be a number from 0");
    assert_eq!(Vitals::default().check(), Ok(()));
}
