//! Vital signs on Linux: files below `/proc` and `/sys`, and NVML.

mod container;
mod cpu_sensors;
mod files;
mod gpu_processes;
mod gpus;
mod machine;
mod process;
mod rapl;
mod rate;
mod visible_gpus;

use self::{
    container::ContainerReader, cpu_sensors::CpuSensors, files::SystemFiles, gpus::GpuReader, machine::MachineReader,
    process::ProcessReader, rapl::Rapl,
};
use crate::analysis::{EnergyUse, VitalSigns};
use std::{path::Path, time::Duration};

/// Everything that is read.
#[derive(Debug)]
pub(super) struct Sources {
    files: SystemFiles,
    process: ProcessReader,
    container: ContainerReader,
    machine: MachineReader,
    sensors: CpuSensors,
    rapl: Rapl,
    gpus: Result<GpuReader, String>,
    last: VitalSigns,
}

impl Sources {
    /// Looks for what can be read. `root` has `proc` and `sys`.
    pub(super) fn open(root: &Path) -> Result<Self, String> {
        let files = SystemFiles::new(root);
        let machine = MachineReader::open(&files);
        Ok(Self {
            process: ProcessReader::default(),
            container: ContainerReader::open(&files),
            sensors: CpuSensors::open(&files, machine.cpus()),
            rapl: Rapl::open(&files),
            gpus: GpuReader::open(),
            machine,
            files,
            last: VitalSigns::default(),
        })
    }

    /// Reads everything. `at` is the time since the run began.
    pub(super) fn read(&mut self, at: Duration) -> VitalSigns {
        let container = self.container.read(&self.files, at);
        let cpus = self.machine.cpus() as f64;
        let available = container.cpu_limit.map_or(cpus, |limit| limit.min(cpus));
        let process = self.process.read(&self.files, at, available);
        let mut machine = self.machine.read(&self.files, at);
        self.sensors.read(&self.files, at, &mut machine);
        self.rapl.read(&self.files, at, &mut machine);
        let gpus = self.gpus.as_mut().map_or_else(|_| Vec::new(), |gpus| gpus.read(at));
        let mut signs = VitalSigns::default();
        (signs.process, signs.container, signs.machine, signs.gpus) = (process, container, machine, gpus);
        self.last = signs.clone();
        signs
    }

    /// Says what cannot be read, and why; a sentence each.
    pub(super) fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        let VitalSigns { process, container, machine, gpus, .. } = &self.last;
        let mut missing = |what: &str, unknown: Vec<&str>| {
            if !unknown.is_empty() {
                problems.push(format!("not available of the {what}: {}", unknown.join(", ")));
            }
        };
        missing("process", process.unknown());
        missing("machine", machine.unknown());
        if container.cpu_limit.is_some() || container.memory_limit.is_some() {
            missing("container", container.unknown());
        } else {
            missing("container", vec!["limits of CPU and memory, as its control group has none"]);
        }
        for gpu in gpus {
            missing(&format!("GPU {}", gpu.device), gpu.unknown());
        }
        problems.extend(self.rapl.problem().map(str::to_owned));
        problems.extend(self.gpus.as_ref().err().cloned());
        problems
    }

    /// Returns the energy of each part so far.
    pub(super) fn energy(&self) -> Vec<EnergyUse> {
        let gpus = self.gpus.iter().flat_map(GpuReader::energy);
        gpus.chain(self.rapl.energy()).collect()
    }
}

#[cfg(test)]
mod tests;
