//! The folder of a run.

use crate::{
    export::{RunId, Utc},
    file::safe,
    trace::{Metadata, Timestamp},
};
use std::path::{Path, PathBuf};

/// Returns the folder of this run: `runs/train_2026-11-18_10-15-07`, by the program and the time in UTC.
///
/// If a launcher has named the run, all its ranks use that name instead of the time, which may differ between them.
/// Each rank has its own folder in that of the run.
pub(super) fn run_folder(dir: &Path) -> PathBuf {
    let folder = |turn| named(&Metadata::of_this_process(), RunId::from_env().as_ref(), Timestamp::now(), turn);
    // Another run may have begun in the same second.
    let free = (1..).map(|turn| dir.join(folder(turn))).find(|folder| !folder.exists());
    match RunId::from_env() {
        None => free.unwrap_or_else(|| dir.join(folder(1))),
        Some(_) => dir.join(folder(1)),
    }
}

fn named(metadata: &Metadata, run: Option<&RunId>, start: Timestamp, turn: u32) -> PathBuf {
    let run = match run {
        Some(run) => run.parts().iter().map(|part| safe(part)).collect::<Vec<_>>().join("-"),
        None => {
            let Utc { year, month, day, hour, minute, second } = start.into();
            let again = if turn > 1 { format!("_{turn}") } else { String::new() };
            format!("{year}-{month:02}-{day:02}_{hour:02}-{minute:02}-{second:02}{again}")
        }
    };
    let folder = PathBuf::from(format!("{}_{run}", safe(&metadata.process)));
    if metadata.world_size > 1 { folder.join(format!("rank_{}", metadata.rank)) } else { folder }
}

#[cfg(test)]
mod tests {
    use super::named;
    use crate::{
        export::RunId,
        trace::{Metadata, Timestamp},
    };
    use std::path::Path;

    #[test]
    fn a_run_has_its_program_its_time_and_its_rank() {
        let mut metadata = Metadata { process: "my train".to_owned(), world_size: 1, ..Metadata::default() };
        let start = Timestamp::from_unix_nanos(1_789_000_000 * 1_000_000_000);
        let folder = |metadata: &Metadata, run: Option<&RunId>, turn| named(metadata, run, start, turn);
        assert_eq!(folder(&metadata, None, 1), Path::new("my-train_2026-09-10_00-26-40"));
        assert_eq!(folder(&metadata, None, 2), Path::new("my-train_2026-09-10_00-26-40_2"));
        (metadata.rank, metadata.world_size) = (3, 8);
        assert_eq!(folder(&metadata, None, 1), Path::new("my-train_2026-09-10_00-26-40/rank_3"));
        let run = RunId::read(|name| (name == "KERNSPAN_RUN_ID").then(|| "a/b".to_owned())).unwrap();
        assert_eq!(folder(&metadata, Some(&run), 1), Path::new("my-train_a-b/rank_3"));
    }
}
