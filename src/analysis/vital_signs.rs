//! The vital signs of a run at one moment: of its process, its container, the machine and the GPUs.

use crate::{
    trace::{DeviceId, Timestamp},
    units,
};
use std::fmt;

/// How a vital sign is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum VitalUnit {
    /// Percent of what there is.
    Percent,
    /// A plain number.
    Number,
    /// Events per second.
    PerSecond,
    /// Bytes.
    Bytes,
    /// Bytes per second.
    BytesPerSecond,
    /// Degrees Celsius.
    Celsius,
    /// Hertz.
    Hertz,
    /// Watts.
    Watts,
    /// Joules.
    Joules,
}

impl VitalUnit {
    /// Formats a value: `12.5 %`, `1.50 GiB`, `61.0 °C`.
    #[must_use]
    pub fn format(self, value: f64) -> String {
        match self {
            Self::Percent => units::percent(value),
            Self::Number => units::digits(value),
            Self::PerSecond => format!("{}/s", units::digits(value)),
            Self::Bytes => units::bytes(value as u64),
            Self::BytesPerSecond => units::bandwidth(value),
            Self::Celsius => format!("{value:.1} °C"),
            Self::Hertz => units::amount(value, "Hz"),
            Self::Watts => units::amount(value, "W"),
            Self::Joules => units::amount(value, "J"),
        }
    }
}

/// What a vital sign is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub enum VitalSubject {
    /// This process.
    Process,
    /// The control group of the process: its container.
    Container,
    /// The machine, with all processes.
    Machine,
    /// A GPU.
    Gpu(DeviceId),
}

impl fmt::Display for VitalSubject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Process => f.write_str("process"),
            Self::Container => f.write_str("container"),
            Self::Machine => f.write_str("machine"),
            Self::Gpu(device) => write!(f, "gpu{device}"),
        }
    }
}

/// The name, the unit and the meaning of a vital sign.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(crate) struct VitalInfo {
    pub(crate) key: &'static str,
    pub(crate) unit: VitalUnit,
    pub(crate) meaning: &'static str,
}

/// A vital sign, such as `machine.cpu` or `gpu0.power`.
///
/// `Display` writes its name. Its counter in traces and its scalar of steps are called `vitals.` and the name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct VitalSign {
    subject: VitalSubject,
    info: &'static VitalInfo,
}

impl VitalSign {
    /// The prefix of the names of counters.
    pub const COUNTER: &'static str = "vitals.";

    /// Returns what it is of.
    pub fn subject(self) -> VitalSubject {
        self.subject
    }

    /// Returns its name within its subject, such as `cpu`: that of the field of [`MachineVitals`] and others.
    pub fn key(self) -> &'static str {
        self.info.key
    }

    /// Returns how it is counted.
    pub fn unit(self) -> VitalUnit {
        self.info.unit
    }

    /// Returns what it means, as a sentence.
    pub fn meaning(self) -> &'static str {
        self.info.meaning
    }
}

impl fmt::Display for VitalSign {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.subject, self.info.key)
    }
}

#[cfg(feature = "serde")]
impl serde::Serialize for VitalSign {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Makes a struct of values that may be unknown, and the list of them with names, units and meanings, so that exporters
/// and thresholds need no lists of their own.
macro_rules! vital_signs {
    ($(#[$of_struct:meta])* $name:ident {
        $($(#[$of_other:meta])* pub $other:ident: $type:ty,)*
        { $($key:ident: $unit:ident = $meaning:literal,)* }
    }) => {
        $(#[$of_struct])*
        #[derive(Clone, Debug, Default, PartialEq)]
        #[cfg_attr(feature = "serde", derive(serde::Serialize))]
        #[non_exhaustive]
        pub struct $name {
            $($(#[$of_other])* pub $other: $type,)*
            $(#[doc = $meaning] pub $key: Option<f64>,)*
        }

        impl $name {
            pub(crate) const SIGNS: &'static [VitalInfo] = &[$(VitalInfo {
                key: stringify!($key),
                unit: VitalUnit::$unit,
                meaning: $meaning,
            },)*];

            /// The values in the order of the signs.
            fn all(&self) -> [Option<f64>; Self::SIGNS.len()] {
                [$(self.$key,)*]
            }

            /// The names of values that are not known.
            #[cfg(all(feature = "vitals", target_os = "linux"))]
            pub(crate) fn unknown(&self) -> Vec<&'static str> {
                let all = Self::SIGNS.iter().zip(self.all());
                all.filter(|(_, value)| value.is_none()).map(|(info, _)| info.key).collect()
            }

            /// The values that are known.
            fn known(&self, subject: VitalSubject) -> impl Iterator<Item = (VitalSign, f64)> + use<> {
                let signs = Self::SIGNS.iter().map(move |info| VitalSign { subject, info });
                signs.zip(self.all()).filter_map(|(sign, value)| Some((sign, value?)))
            }
        }
    };
}

vital_signs! {
    /// The vital signs of this process. `None` is not known.
    ProcessVitals {
        {
            cpu: Percent = "CPU time, of all CPUs that the process may use.",
            cpus: Number = "CPUs that were busy for the process, on average: CPU time over wall time.",
            resident: Bytes = "Physical memory.",
            swap: Bytes = "Memory of the process that is swapped out.",
            threads: Number = "Threads.",
            disk_read: BytesPerSecond = "Read from disks by the process; what is in the page cache does not count.",
            disk_write: BytesPerSecond = "Written to disks by the process.",
        }
    }
}

vital_signs! {
    /// The vital signs of the control group of the process, which are those of its container. `None` is not known, or
    /// there is no limit.
    ContainerVitals {
        {
            cpu: Percent = "CPU time of the container, of its limit.",
            cpu_limit: Number = "CPUs that the container may use.",
            cpu_throttled: Percent = "Periods of the scheduler in which the container had used up its CPU time.",
            memory: Percent = "Memory of the container without the page cache that can be dropped, of its limit.",
            memory_used: Bytes = "Memory of the container without the page cache that can be dropped.",
            memory_limit: Bytes = "Memory that the container may use.",
        }
    }
}

vital_signs! {
    /// The vital signs of the machine, with all processes on it. `None` is not known.
    MachineVitals {
        {
            cpu: Percent = "CPU time of all processes, of all CPUs; what a hypervisor took counts, waiting does not.",
            iowait: Percent = "CPU time that was idle while a process waited for a disk.",
            steal: Percent = "CPU time that a hypervisor gave to other machines.",
            cpu_pressure: Percent = "Time in which a thread that could run waited for a CPU.",
            io_pressure: Percent = "Time in which a thread waited for a disk.",
            memory_pressure: Percent = "Time in which a thread waited for memory: freed, or read back from swap.",
            load: Number = "Threads that run or wait for a CPU or a disk: the load average of a minute.",
            memory: Percent = "Memory that is not available without swapping.",
            swap: Percent = "Swap space in use.",
            swap_in: BytesPerSecond = "Memory that was read back from swap.",
            swap_out: BytesPerSecond = "Memory that was written to swap.",
            disk_read: BytesPerSecond = "Read from all disks.",
            disk_write: BytesPerSecond = "Written to all disks.",
            disk_busy: Percent = "Time in which the busiest disk had requests.",
            network_received: BytesPerSecond = "Received from networks; of a container, from its own.",
            network_sent: BytesPerSecond = "Sent to networks; of a container, to its own.",
            temperature: Celsius = "Temperature of the hottest CPU package.",
            frequency: Hertz = "Frequency of the CPUs; mean of at most eight of them.",
            throttles: PerSecond = "Times that CPUs were slowed down because of their temperature; of at most eight.",
            cpu_power: Watts = "Power that the CPU packages draw, by RAPL.",
            cpu_energy: Joules = "Energy that the CPU packages have used since the run began, by RAPL.",
        }
    }
}

vital_signs! {
    /// The vital signs of a GPU. `None` is not known.
    GpuVitals {
        /// The number of the GPU among those that the process may use.
        pub device: DeviceId,
        /// NVML's name of the GPU, which is unique, such as `GPU-2c0a3a1e-…`.
        pub id: String,
        /// The model, such as `NVIDIA H200`.
        pub name: String,
        {
            utilization: Percent = "Time in which a kernel ran.",
            memory: Percent = "Memory in use, by all processes.",
            memory_used: Bytes = "Memory in use, by all processes.",
            temperature: Celsius = "Temperature.",
            clock: Hertz = "Clock of the SMs.",
            clock_max: Hertz = "The highest clock of the SMs.",
            memory_clock: Hertz = "Clock of the memory.",
            memory_clock_max: Hertz = "The highest clock of the memory.",
            thermal_throttle: Percent = "Whether clocks are lower because of the temperature: 0 or 100.",
            power_throttle: Percent = "Whether clocks are lower because of a limit of power: 0 or 100.",
            power: Watts = "Power draw.",
            power_limit: Watts = "Power that the GPU may draw.",
            energy: Joules = "Energy that the GPU has used since the run began.",
            pcie_received: BytesPerSecond = "Received over PCIe.",
            pcie_sent: BytesPerSecond = "Sent over PCIe.",
            other_processes: Percent = "Time of the SMs that other processes used.",
        }
    }
}

/// The vital signs of a run at one moment; see [`Profiler::vitals`](crate::Profiler::vitals).
///
/// Values that grow with time, such as CPU time and bytes, are rates since the reading before.
#[derive(Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct VitalSigns {
    /// When they were read.
    #[cfg_attr(feature = "serde", serde(skip))]
    pub at: Timestamp,
    /// Those of this process.
    pub process: ProcessVitals,
    /// Those of its container, if it is in a control group with limits.
    pub container: ContainerVitals,
    /// Those of the machine.
    pub machine: MachineVitals,
    /// Those of each GPU that the process may use.
    pub gpus: Vec<GpuVitals>,
}

impl VitalSigns {
    /// Returns all values that are known.
    pub fn values(&self) -> impl Iterator<Item = (VitalSign, f64)> + '_ {
        let host = self.process.known(VitalSubject::Process).chain(self.container.known(VitalSubject::Container));
        let gpus = self.gpus.iter().flat_map(|gpu| gpu.known(VitalSubject::Gpu(gpu.device)));
        host.chain(self.machine.known(VitalSubject::Machine)).chain(gpus)
    }
}

/// Returns the signs of all subjects of one kind.
pub(crate) fn signs_of(subject: VitalSubject) -> &'static [VitalInfo] {
    match subject {
        VitalSubject::Process => ProcessVitals::SIGNS,
        VitalSubject::Container => ContainerVitals::SIGNS,
        VitalSubject::Machine => MachineVitals::SIGNS,
        VitalSubject::Gpu(_) => GpuVitals::SIGNS,
    }
}

#[cfg(test)]
mod tests {
    use super::{GpuVitals, MachineVitals, VitalSigns, VitalUnit};
    use crate::trace::DeviceId;

    #[test]
    fn known_values_have_names_and_units() {
        let gpu = |id| GpuVitals { device: DeviceId::new(id), power: Some(612.5), ..GpuVitals::default() };
        let machine = MachineVitals { cpu: Some(12.5), network_sent: Some(2e6), ..MachineVitals::default() };
        let signs = VitalSigns { machine, gpus: vec![gpu(0), gpu(3)], ..VitalSigns::default() };
        let text: Vec<_> =
            signs.values().map(|(sign, value)| format!("{sign} {}", sign.unit().format(value))).collect();
        let expected = ["machine.cpu 12.5 %", "machine.network_sent 2.00 MB/s", "gpu0.power 612 W", "gpu3.power 612 W"];
        assert_eq!(text, expected);
        assert_eq!([VitalUnit::Hertz.format(1.98e9), VitalUnit::Celsius.format(61.0)], ["1.98 GHz", "61.0 °C"]);
    }
}
