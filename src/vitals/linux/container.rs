//! The control group of the process, version 1 or 2: its limits, and what it uses of them.

use super::{files::SystemFiles, rate::Rate};
use crate::analysis::ContainerVitals;
use procfs_core::{FromBufRead, ProcessCGroups};
use std::time::Duration;

/// Reads the control groups that limit the process.
#[derive(Debug, Default)]
pub(super) struct ContainerReader {
    cpu: Option<Group>,
    memory: Option<Group>,
    cpu_time: Rate,
    periods: Rate,
    throttled: Rate,
}

/// A control group with a limit.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Group {
    folder: String,
    /// Of version 1, the folder in which its CPU time is counted.
    accounting: Option<String>,
}

impl Group {
    fn is_v2(&self) -> bool {
        self.accounting.is_none()
    }

    /// Returns the CPUs that the group may use, if that is limited.
    fn cpu_limit(&self, files: &SystemFiles) -> Option<f64> {
        let (quota, period): (f64, f64) = if self.is_v2() {
            let text = files.text(&format!("{}/cpu.max", self.folder))?;
            let (quota, period) = text.trim().split_once(' ')?;
            // `max` is no limit.
            (quota.parse().ok()?, period.parse().ok()?)
        } else {
            let number = |name: &str| files.number(&format!("{}/cpu.cfs_{name}_us", self.folder));
            (number("quota")?, number("period")?)
        };
        // Version 1 has -1 where there is no limit.
        (quota > 0.0 && period > 0.0).then(|| quota / period)
    }

    /// Returns the bytes that the group may use, if that is limited.
    fn memory_limit(&self, files: &SystemFiles) -> Option<f64> {
        let name = if self.is_v2() { "memory.max" } else { "memory.limit_in_bytes" };
        let limit: u64 = files.number(&format!("{}/{name}", self.folder))?;
        // Version 1 has a number near the largest one where there is no limit.
        (limit < 1 << 62).then_some(limit as f64)
    }

    /// Returns the CPU time in seconds.
    fn cpu_seconds(&self, files: &SystemFiles) -> Option<f64> {
        match &self.accounting {
            None => Some(files.entry(&format!("{}/cpu.stat", self.folder), "usage_usec")? as f64 / 1e6),
            Some(folder) => Some(files.number::<f64>(&format!("{folder}/cpuacct.usage"))? / 1e9),
        }
    }

    /// Returns the bytes that the group uses and that the kernel cannot simply drop.
    fn memory_used(&self, files: &SystemFiles) -> Option<f64> {
        let (usage, cache) = match self.is_v2() {
            true => ("memory.current", "inactive_file"),
            false => ("memory.usage_in_bytes", "total_inactive_file"),
        };
        let usage: u64 = files.number(&format!("{}/{usage}", self.folder))?;
        let cache = files.entry(&format!("{}/memory.stat", self.folder), cache).unwrap_or(0);
        Some(usage.saturating_sub(cache) as f64)
    }
}

impl ContainerReader {
    const ROOT: &'static str = "sys/fs/cgroup";

    /// Looks for the groups that limit the process most: its own, or those around it.
    pub(super) fn open(files: &SystemFiles) -> Self {
        let Some(ProcessCGroups(own)) = files.parse("proc/self/cgroup", |text| ProcessCGroups::from_buf_read(text))
        else {
            return Self::default();
        };
        let v2 = own.iter().find(|group| group.hierarchy == 0);
        let of_v1 = |name: &str| own.iter().find(|group| group.controllers.iter().any(|it| it == name));
        let groups = |controller: &str| -> Vec<Group> {
            if let Some(group) = of_v1(controller) {
                let (folder, accounting) = (mount(files, group), of_v1("cpuacct").map(|group| mount(files, group)));
                let accounting = accounting.unwrap_or_default();
                let paths = around(files, &folder, &group.pathname).into_iter();
                let group = |path: String| Group {
                    folder: format!("{folder}{path}"),
                    accounting: Some(format!("{accounting}{path}")),
                };
                return paths.map(group).collect();
            }
            let unified = format!("{}/unified", Self::ROOT);
            let folder = if files.exists(&unified) { unified } else { Self::ROOT.to_owned() };
            let paths = v2.into_iter().flat_map(|group| around(files, &folder, &group.pathname));
            paths.map(|path| Group { folder: format!("{folder}{path}"), accounting: None }).collect()
        };
        let least = |groups: Vec<Group>, limit: &dyn Fn(&Group) -> Option<f64>| {
            let limited = groups.into_iter().filter_map(|group| Some((limit(&group)?, group)));
            limited.min_by(|(a, _), (b, _)| a.total_cmp(b)).map(|(_, group)| group)
        };
        Self {
            cpu: least(groups("cpu"), &|group| group.cpu_limit(files)),
            memory: least(groups("memory"), &|group| group.memory_limit(files)),
            ..Self::default()
        }
    }

    pub(super) fn read(&mut self, files: &SystemFiles, at: Duration) -> ContainerVitals {
        let mut vitals = ContainerVitals::default();
        if let Some(group) = &self.cpu {
            // Limits may change while the process runs.
            vitals.cpu_limit = group.cpu_limit(files);
            let busy = self.cpu_time.per_second(at, group.cpu_seconds(files));
            vitals.cpu = busy.zip(vitals.cpu_limit).map(|(busy, limit)| 100.0 * busy / limit);
            let count = |key: &str| files.entry(&format!("{}/cpu.stat", group.folder), key).map(|count| count as f64);
            let periods = self.periods.per_second(at, count("nr_periods"));
            let throttled = self.throttled.per_second(at, count("nr_throttled"));
            vitals.cpu_throttled = throttled.zip(periods).map(|(throttled, periods)| match periods {
                0.0 => 0.0,
                periods => (100.0 * throttled / periods).min(100.0),
            });
        }
        if let Some(group) = &self.memory {
            vitals.memory_limit = group.memory_limit(files);
            vitals.memory_used = group.memory_used(files);
            let percent = |(used, limit): (f64, f64)| (limit > 0.0).then(|| 100.0 * used / limit);
            vitals.memory = vitals.memory_used.zip(vitals.memory_limit).and_then(percent);
        }
        vitals
    }
}

/// Returns where the hierarchy of a group of version 1 is mounted: in a folder with the names of its controllers.
fn mount(files: &SystemFiles, group: &procfs_core::ProcessCGroup) -> String {
    let root = ContainerReader::ROOT;
    let together = format!("{root}/{}", group.controllers.join(","));
    let alone = group.controllers.iter().map(|name| format!("{root}/{name}")).find(|folder| files.exists(folder));
    if files.exists(&together) { together } else { alone.unwrap_or(together) }
}

/// Returns the paths of a group and of those around it, the innermost first, below the folder that their hierarchy is
/// mounted at. In a container, the path may be that outside of it, while the mount has only the container's own group,
/// at its root.
fn around(files: &SystemFiles, mount: &str, path: &str) -> Vec<String> {
    let mut paths = Vec::new();
    let mut path = path.trim_end_matches('/');
    while !path.is_empty() && !path.starts_with("/..") {
        paths.push(path.to_owned());
        path = path.rsplit_once('/').map_or("", |(outer, _)| outer);
    }
    paths.retain(|path| files.exists(&format!("{mount}{path}")));
    paths.push(String::new());
    paths
}
