//! The name that a launcher gives to a run.

use std::fmt;

/// The name that a launcher gave to the run. It is the same on all ranks of a run, so they can agree on file names and
/// ids without communicating.
///
/// It is the user's own `KERNSPAN_RUN_ID`, or else the id given by torchrun, Slurm, PBS or LSF. It has several parts if
/// a job can have several runs or be restarted: for Slurm, the job, the step and the number of restarts.
///
/// ```
/// use kernspan::export::RunId;
///
/// let folder = match RunId::from_env() {
///     Some(id) => id.parts().join("-"), // `42-1` for step 1 of Slurm's job 42
///     None => "unnamed".to_owned(),
/// };
/// # assert!(!folder.is_empty());
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RunId(Vec<String>);

/// The environment variables of launchers, in the order they are read. For each launcher, the first has the id of the
/// job, and the others distinguish runs of the same job.
const VARIABLES: [&[&str]; 5] = [
    &["KERNSPAN_RUN_ID"],
    &["TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT"],
    &["SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_RESTART_COUNT"],
    &["PBS_JOBID"],
    &["LSB_JOBID"],
];

impl RunId {
    /// Returns the name in the environment of this process, or `None` if no launcher named the run.
    pub fn from_env() -> Option<Self> {
        Self::read(|name| std::env::var(name).ok())
    }

    pub(crate) fn read(variable: impl Fn(&str) -> Option<String>) -> Option<Self> {
        // A plain torchrun calls each of its runs `none`.
        let value =
            |name: &&str| variable(name).map(|id| id.trim().to_owned()).filter(|id| !id.is_empty() && id != "none");
        let names = VARIABLES.iter().find(|names| value(&names[0]).is_some())?;
        Some(Self(names.iter().filter_map(value).collect()))
    }

    /// Returns the parts of the name: at least one, none of them empty.
    pub fn parts(&self) -> &[String] {
        &self.0
    }
}

impl fmt::Display for RunId {
    /// Writes the parts with a space between them.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join(" "))
    }
}

#[cfg(test)]
mod tests {
    use super::RunId;

    fn read(variables: &[(&str, &str)]) -> Option<String> {
        let find = |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, id)| (*id).to_owned());
        RunId::read(find).map(|id| id.to_string())
    }

    #[test]
    fn the_launcher_names_the_run() {
        assert_eq!(read(&[]), None);
        let slurm = [("SLURM_JOB_ID", " 42 "), ("SLURM_STEP_ID", "1"), ("SLURM_RESTART_COUNT", "")];
        assert_eq!(read(&slurm).as_deref(), Some("42 1"));
        assert_eq!(read(&[slurm[0], ("TORCHELASTIC_RUN_ID", "none")]).as_deref(), Some("42"));
        assert_eq!(read(&[slurm[0], ("TORCHELASTIC_RUN_ID", "a")]).as_deref(), Some("a"));
        assert_eq!(read(&[slurm[0], ("KERNSPAN_RUN_ID", "mine")]).as_deref(), Some("mine"));
        // Without a job there is no step.
        assert_eq!(read(&[("SLURM_STEP_ID", "1")]), None);
    }
}
