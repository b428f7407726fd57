//! What a run is called by whom started it, so that its ranks know that they belong together without a message.

/// Where launchers say which run this is, in the order they are asked, each with what else tells their runs apart: a job may have several, and
/// may be started again. The first is the user's own.
const VARIABLES: [&[&str]; 5] = [
    &["KERNSPAN_RUN_ID"],
    &["TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT"],
    &["SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_RESTART_COUNT"],
    &["PBS_JOBID"],
    &["LSB_JOBID"],
];

/// What the environment of this process says.
#[cfg(feature = "otlp")]
pub(super) fn said() -> Option<String> {
    let parts = parts(|name| std::env::var(name).ok());
    (!parts.is_empty()).then(|| parts.join(" "))
}

/// The parts of the name, none if nobody says it.
pub(super) fn parts(variable: impl Fn(&str) -> Option<String>) -> Vec<String> {
    // A plain torchrun calls each of its runs `none`.
    let said = |name: &&str| variable(name).map(|id| id.trim().to_owned()).filter(|id| !id.is_empty() && id != "none");
    let names = VARIABLES.iter().find(|names| said(&names[0]).is_some());
    names.map_or_else(Vec::new, |names| names.iter().filter_map(said).collect())
}
