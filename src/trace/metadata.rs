//! The process that a trace comes from: its host, id, name and rank.

use std::collections::BTreeMap;

/// The process that a trace comes from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Metadata {
    /// The host's name.
    pub host: String,
    /// The process id.
    pub pid: u32,
    /// The name of the program.
    pub process: String,
    /// The rank of this process in a distributed run, `0` otherwise: see [`rank`](crate::ProfilerBuilder::rank).
    pub rank: u32,
    /// The number of processes in the run, `1` if it is not distributed.
    pub world_size: u32,
    /// The name that a launcher gave to the run, the same on all its ranks: see [`RunId`](crate::export::RunId).
    pub run: Option<String>,
    /// The user's own entries: see [`metadata`](crate::ProfilerBuilder::metadata).
    pub user: BTreeMap<String, String>,
}

impl Metadata {
    /// The environment variables for the rank and the world size, in lookup order: those of torchrun and most other
    /// launchers, of Open MPI, of MPICH and of Slurm.
    pub const RANK_VARIABLES: &'static [(&'static str, &'static str)] = &[
        ("RANK", "WORLD_SIZE"),
        ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
        ("PMI_RANK", "PMI_SIZE"),
        ("SLURM_PROCID", "SLURM_NTASKS"),
    ];

    /// The name used in files for a host of unknown name, as in PyTorch's traces.
    pub(crate) const UNKNOWN_HOST: &'static str = "localhost";

    /// The host's name for files, which is never empty: XProf cannot find the profile of a host without a name.
    pub(crate) fn host_of_files(&self) -> &str {
        if self.host.is_empty() { Self::UNKNOWN_HOST } else { &self.host }
    }

    /// Returns the metadata of this process, with the rank given by the environment.
    ///
    /// ```
    /// use kernspan::trace::Metadata;
    ///
    /// assert_eq!(Metadata::of_this_process().pid, std::process::id());
    /// ```
    pub fn of_this_process() -> Self {
        let (rank, world_size) = Self::rank_from(|name| std::env::var(name).ok()).unwrap_or((0, 1));
        Self {
            host: host_name(),
            pid: std::process::id(),
            process: std::env::current_exe()
                .ok()
                .and_then(|exe| Some(exe.file_stem()?.to_string_lossy().into_owned()))
                .unwrap_or_else(|| "unknown".to_owned()),
            rank,
            world_size,
            run: None,
            user: BTreeMap::new(),
        }
    }

    fn rank_from(variable: impl Fn(&str) -> Option<String>) -> Option<(u32, u32)> {
        let number = |name| variable(name)?.trim().parse::<u32>().ok();
        Self::RANK_VARIABLES.iter().find_map(|&(rank, size)| {
            let rank = number(rank)?;
            Some((rank, number(size).unwrap_or(1).max(rank.saturating_add(1))))
        })
    }
}

fn host_name() -> String {
    #[cfg(unix)]
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    #[cfg(not(unix))]
    let name = std::env::var("COMPUTERNAME").unwrap_or_default();
    if name.is_empty() { Metadata::UNKNOWN_HOST.to_owned() } else { name }
}

#[cfg(test)]
mod tests {
    use super::Metadata;

    fn rank(variables: &[(&str, &str)]) -> Option<(u32, u32)> {
        Metadata::rank_from(|name| variables.iter().find(|(n, _)| *n == name).map(|(_, v)| (*v).to_owned()))
    }

    #[test]
    fn the_launcher_says_the_rank() {
        assert_eq!(rank(&[]), None);
        assert_eq!(rank(&[("RANK", "3"), ("WORLD_SIZE", "8")]), Some((3, 8)));
        assert_eq!(rank(&[("SLURM_PROCID", "1"), ("SLURM_NTASKS", "2")]), Some((1, 2)));
        assert_eq!(rank(&[("RANK", "0"), ("SLURM_PROCID", "5")]), Some((0, 1)));
    }

    #[test]
    fn nonsense_in_the_environment_is_passed_over() {
        assert_eq!(rank(&[("RANK", "first"), ("PMI_RANK", "2"), ("PMI_SIZE", "4")]), Some((2, 4)));
        assert_eq!(rank(&[("RANK", "7"), ("WORLD_SIZE", "2")]), Some((7, 8)));
    }
}
