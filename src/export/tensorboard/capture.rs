//! The path of a profile, and profiles that could not be written.

use crate::{
    export::{run_id::RunId, time_text::Utc},
    file::{self, FileError},
    trace::{Timestamp, Trace},
};
use std::{
    error::Error,
    fs::{self, File},
    io::{self, BufWriter},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

/// The names of a profile's capture and host. A capture is the folder of a window, and each host is a file in it.
///
/// The ranks of a run write into one folder without communicating: the folder's name consists of the run's id, the
/// window and its first step, which all of them know.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Capture {
    name: String,
    host: String,
}

impl Capture {
    pub(super) fn new(trace: &Trace, run: Option<&RunId>) -> Self {
        let metadata = trace.metadata();
        let host = file::safe(metadata.host_of_files());
        if metadata.world_size <= 1 {
            let steps = match trace.steps() {
                [] => format!("window_{:04}", trace.window()),
                [only] => format!("step_{}", only.number()),
                [first, .., last] => format!("steps_{}-{}", first.number(), last.number()),
            };
            return Self { name: format!("{}_{steps}", name_of(trace.start())), host };
        }
        let run: String =
            run.map_or(&[][..], RunId::parts).iter().map(|part| format!("{}_", file::safe(part))).collect();
        // The last step is not part of the name, since a rank may be stopped before the others.
        let first = trace.steps().first().map_or_else(String::new, |first| format!("_from_step_{}", first.number()));
        let name = format!("{run}window_{:04}{first}", trace.window());
        Self { name, host: format!("{host}_rank_{}", metadata.rank) }
    }

    /// Writes the file into the capture's folder. If that already has a file of this host, as from another run, a
    /// number is added to the folder's name.
    pub(super) fn write(
        &self,
        folder: &Path,
        content: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>,
    ) -> Result<PathBuf, FileError> {
        let captures = folder.join("plugins/profile");
        // A killed process may have left part of a file in any of the captures.
        fs::read_dir(&captures).into_iter().flatten().flatten().for_each(|entry| file::clean_up(&entry.path()));
        let path = |turn: u64| {
            let again = if turn == 0 { String::new() } else { format!("_{}", turn + 1) };
            captures.join(format!("{}{again}", self.name)).join(format!("{}.xplane.pb", self.host))
        };
        file::write_first_free(path, content)
    }
}

/// Formats a time as `2026_11_15_09_30_00`, as XProf names its own captures.
fn name_of(at: Timestamp) -> String {
    let Utc { year, month, day, hour, minute, second } = at.into();
    format!("{year}_{month:02}_{day:02}_{hour:02}_{minute:02}_{second:02}")
}

/// Decides which failures to write a profile are reported.
///
/// A folder that cannot be written fails for every window. Of consecutive failures for the same reason, only the first
/// is reported at once; the others are counted, and their number is reported at the end. Clones share the count.
#[derive(Clone, Debug, Default)]
pub(super) struct FailedProfiles {
    /// The reason of the last failure; `None` if the last profile was written.
    reason: Option<String>,
    unreported: Arc<AtomicU64>,
}

impl FailedProfiles {
    /// Notes that a profile was written.
    pub(super) fn written(&mut self) {
        self.reason = None;
    }

    /// Notes that a profile could not be written, and returns whether to report it now.
    pub(super) fn failed(&mut self, error: &FileError) -> bool {
        // Every window has its own path, so the causes are compared.
        let reason = error.source().map_or_else(|| error.to_string(), ToString::to_string);
        let is_new = self.reason.as_ref() != Some(&reason);
        self.reason = Some(reason);
        if !is_new {
            self.unreported.fetch_add(1, Ordering::Relaxed);
        }
        is_new
    }

    /// Returns the number of failures that were not reported.
    pub(super) fn unreported(&self) -> u64 {
        self.unreported.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::Capture;
    use crate::{
        export::RunId,
        trace::{Metadata, Timestamp, Trace, sample::gpu_trace},
    };
    use std::{fs, io::Write, sync::Arc};

    fn of_rank(rank: u32, world_size: u32, host: &str) -> Trace {
        let mut trace = gpu_trace();
        trace.start = Timestamp::from_unix_nanos(1_794_735_000_123_456_789);
        let metadata = Metadata { rank, world_size, host: host.to_owned(), ..(*trace.metadata).clone() };
        trace.metadata = Arc::new(metadata);
        trace
    }

    #[test]
    fn ranks_agree_on_the_folder_and_not_on_the_file() {
        let slurm = RunId::read(|name| match name {
            "TORCHELASTIC_RUN_ID" => Some("none".to_owned()),
            "SLURM_JOB_ID" => Some("42/7".to_owned()),
            "SLURM_STEP_ID" => Some("1".to_owned()),
            _ => None,
        });
        let [first, second] = [0, 1].map(|rank| {
            let mut trace = of_rank(rank, 2, "node::☃\0/../x");
            trace.steps.truncate(2 - rank as usize);
            Capture::new(&trace, slurm.as_ref())
        });
        assert_eq!((first.name.as_str(), &first.name), ("42-7_1_window_0000_from_step_5", &second.name));
        assert_eq!((&first.host[..], &second.host[..]), ("node--------x_rank_0", "node--------x_rank_1"));
        let alone = Capture::new(&of_rank(0, 1, "node"), slurm.as_ref());
        assert_eq!((alone.name.as_str(), alone.host.as_str()), ("2026_11_15_09_30_00_steps_5-6", "node"));
    }

    #[test]
    fn another_run_in_the_same_folder_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let [first, second] = [0, 1].map(|rank| Capture::new(&of_rank(rank, 2, "node"), None));
        let written = [(&first, "a"), (&second, "b"), (&second, "c"), (&first, "d")]
            .map(|(capture, content)| capture.write(folder.path(), |out| out.write_all(content.as_bytes())).unwrap());
        let captures = written.each_ref().map(|path| path.parent().unwrap().file_name().unwrap().to_str().unwrap());
        let name = "window_0000_from_step_5";
        assert_eq!(captures, [name, name, "window_0000_from_step_5_2", "window_0000_from_step_5_2"]);
        assert_eq!(written.map(|path| fs::read_to_string(path).unwrap()), ["a", "b", "c", "d"]);
    }

    #[test]
    #[cfg(unix)]
    fn a_part_of_a_file_in_an_earlier_capture_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let host = crate::file::safe(&Metadata::of_this_process().host);
        let earlier = folder.path().join("plugins/profile/earlier");
        fs::create_dir_all(&earlier).unwrap();
        let part = earlier.join(format!("{host}.xplane.pb.kernspan.tmp"));
        fs::write(&part, "half of it").unwrap();
        Capture::new(&of_rank(0, 1, "node"), None).write(folder.path(), |_| Ok(())).unwrap();
        assert!(!part.exists());
    }

    #[test]
    fn a_file_where_a_folder_should_be_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("plugins"), "mine").unwrap();
        assert!(Capture::new(&gpu_trace(), None).write(folder.path(), |_| Ok(())).is_err());
        assert_eq!(fs::read(folder.path().join("plugins")).unwrap(), b"mine");
    }
}
