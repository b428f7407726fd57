//! Events files, which hold a run's scalars and texts as records with lengths and checksums.

use super::{
    crc::masked_crc32c,
    summary::{Summary, seconds},
};
use crate::{
    export::wire::{bytes, fixed64, message, number},
    file::{FileError, safe},
    trace::{Metadata, Timestamp},
};
use std::{
    fs::{self, File},
    io::{self, Write},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// An events file. Added events are kept in memory, up to a limit, until they have been flushed successfully.
#[derive(Debug)]
pub(super) struct EventsFile {
    folder: PathBuf,
    /// The file's name without the number at its end.
    name: String,
    file: Option<(PathBuf, File)>,
    /// Records to write. Part of the first may already be in the file.
    pending: Vec<u8>,
    /// The number of remaining bytes of such a first record.
    partial: usize,
    /// The records at the beginning of every file of the run.
    head: Vec<u8>,
    /// The next number to try at the end of the name.
    next: u64,
    /// The events that did not fit into memory.
    dropped: u64,
    /// Whether the path has been reported.
    reported: bool,
}

impl EventsFile {
    /// The maximum number of bytes kept while the file cannot be written: a few hundred thousand scalars.
    const MAX_PENDING: usize = 8 << 20;
    /// The status `START` of TensorBoard's `SessionLog`.
    const START: u64 = 1;
    /// The bytes of a record in addition to its event: the length, and checksums of the length and of the event.
    const OVERHEAD: usize = 16;

    /// Creates the file of a run that begins at this moment with this step. Nothing is written yet.
    ///
    /// Earlier files in the folder may have steps from `first_step` on, from a run that was interrupted. The event
    /// `START` makes TensorBoard forget them.
    pub(super) fn new(folder: &Path, metadata: &Metadata, at: Timestamp, first_step: u64) -> Self {
        let (unix, host) = (at.as_unix_nanos() / 1_000_000_000, safe(metadata.host_of_files()));
        // The other ranks have their own folders: TensorBoard takes all files in a folder for one run.
        let folder = match metadata.rank {
            0 => folder.to_owned(),
            rank => folder.join(format!("rank{rank}")),
        };
        let mut file = Self {
            folder,
            name: format!("events.out.tfevents.{unix:010}.{host}.{}", metadata.pid),
            file: None,
            pending: Vec::new(),
            partial: 0,
            head: Vec::new(),
            next: 0,
            dropped: 0,
            reported: false,
        };
        file.event(at, None, |out| bytes(out, 3, b"brain.Event:2"));
        file.event(at, Some(first_step), |out| message(out, 7, |log| number(log, 1, Self::START)));
        file.keep_head();
        file
    }

    /// Keeps the events so far as the head: if the file is deleted, the next one also begins with them.
    pub(super) fn keep_head(&mut self) {
        self.head.clone_from(&self.pending);
    }

    /// Adds the values of a step.
    pub(super) fn add(&mut self, at: Timestamp, step: u64, summary: &Summary) {
        if !summary.is_empty() {
            self.event(at, Some(step), |out| bytes(out, 5, summary.as_bytes()));
        }
    }

    fn event(&mut self, at: Timestamp, step: Option<u64>, write: impl FnOnce(&mut Vec<u8>)) {
        let mut event = Vec::new();
        fixed64(&mut event, 1, seconds(at).to_le_bytes());
        step.iter().for_each(|&step| number(&mut event, 2, step));
        write(&mut event);
        if self.pending.len() + event.len() > Self::MAX_PENDING {
            self.dropped += 1;
            return;
        }
        let length = (event.len() as u64).to_le_bytes();
        self.pending.extend_from_slice(&length);
        self.pending.extend_from_slice(&masked_crc32c(&length).to_le_bytes());
        self.pending.extend_from_slice(&event);
        self.pending.extend_from_slice(&masked_crc32c(&event).to_le_bytes());
    }

    /// Writes the added events. If that fails, the next flush continues where this one stopped.
    pub(super) fn flush(&mut self) -> Result<(), FileError> {
        if self.pending.is_empty() {
            return Ok(());
        }
        // Someone may clean up while the run continues. Anything written to a deleted file would be lost silently.
        if self.deleted().is_some() {
            self.begin_anew();
        }
        let (path, file) = match &mut self.file {
            Some(file) => file,
            none => {
                let (n, path, file) = create(&self.folder, &self.name, self.next)?;
                // A name is not reused, since a reader that knows it would skip as much as it has already read.
                self.next = n + 1;
                none.insert((path, file))
            }
        };
        let mut written = 0;
        let result = loop {
            match file.write(&self.pending[written..]) {
                Ok(0) if written < self.pending.len() => break Err(io::ErrorKind::WriteZero.into()),
                Ok(0) => break Ok(()),
                Ok(bytes) => written += bytes,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => break Err(error),
            }
        };
        let mut whole = self.partial;
        while whole < written {
            let length = self.pending[whole..].first_chunk().map_or(0, |length| u64::from_le_bytes(*length));
            whole += length as usize + Self::OVERHEAD;
        }
        self.partial = whole - written;
        self.pending.drain(..written);
        result.map_err(FileError::at(path.as_path()))
    }

    /// Continues in another file, since this one was deleted.
    fn begin_anew(&mut self) {
        self.file = None;
        self.reported = false;
        if self.partial > 0 {
            self.dropped += 1;
            self.pending.drain(..self.partial);
            self.partial = 0;
        }
        self.pending.splice(..0, self.head.iter().copied());
    }

    /// Returns the path of the file, if there is one and this was not called before.
    pub(super) fn unreported_path(&mut self) -> Option<PathBuf> {
        let (path, _) = self.file.as_ref().filter(|_| !self.reported)?;
        self.reported = true;
        Some(path.clone())
    }

    /// Returns the path of the file, if it has been deleted.
    pub(super) fn deleted(&self) -> Option<&Path> {
        self.file.as_ref().map(|(path, _)| path.as_path()).filter(|path| is_gone(path))
    }

    /// Returns the number of events that are lost.
    pub(super) fn dropped(&self) -> u64 {
        self.dropped
    }

    #[cfg(test)]
    fn at(path: &Path) -> Self {
        let mut file = Self::new(Path::new(""), &Metadata::default(), Timestamp::default(), 0);
        file.file = Some((path.to_owned(), File::options().write(true).open(path).unwrap()));
        file
    }
}

/// Returns whether a file certainly does not exist. If that cannot be determined, as on a disk that is not mounted, it
/// may exist.
fn is_gone(path: &Path) -> bool {
    matches!(path.try_exists(), Ok(false))
}

/// Creates a file with this number or a later one, and returns the number. Existing files belong to others, or to the
/// run being resumed.
fn create(folder: &Path, name: &str, mut n: u64) -> Result<(u64, PathBuf, File), FileError> {
    fs::create_dir_all(folder).map_err(FileError::at(folder))?;
    loop {
        let path = folder.join(format!("{name}.{n}"));
        match File::create_new(&path) {
            Ok(file) => return Ok((n, path, file)),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => n += 1,
            Err(error) => return Err(FileError::at(path)(error)),
        }
    }
}

/// The events file of a run, shared by the exporter of windows and the exporter of steps.
#[derive(Clone, Debug)]
pub(super) struct SharedFile(Arc<Mutex<EventsFile>>);

impl SharedFile {
    pub(super) fn new(file: EventsFile) -> Self {
        Self(Arc::new(Mutex::new(file)))
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, EventsFile> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::{EventsFile, Summary, masked_crc32c};
    use crate::trace::{Metadata, Timestamp};

    fn second(n: u64) -> Timestamp {
        Timestamp::from_unix_nanos(n * 1_000_000_000)
    }

    fn metadata(rank: u32) -> Metadata {
        Metadata { host: "a/host".to_owned(), pid: 7, rank, world_size: 4, ..Metadata::default() }
    }

    fn loss(value: f64) -> Summary {
        let mut summary = Summary::default();
        summary.scalar("loss", value);
        summary
    }

    /// The events of a file, after checking the lengths and checksums around them.
    fn records(mut bytes: &[u8]) -> Vec<Vec<u8>> {
        let mut records = Vec::new();
        while !bytes.is_empty() {
            let length = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
            let crc = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
            assert_eq!(crc(8), masked_crc32c(&bytes[..8]));
            assert_eq!(crc(12 + length), masked_crc32c(&bytes[12..12 + length]));
            records.push(bytes[12..12 + length].to_vec());
            bytes = &bytes[16 + length..];
        }
        records
    }

    #[test]
    fn records_have_lengths_and_checksums() {
        let folder = tempfile::tempdir().unwrap();
        let mut file = EventsFile::new(folder.path(), &metadata(0), second(3), 5);
        file.flush().unwrap();
        file.add(second(4), 300, &loss(0.5));
        file.add(second(4), 300, &Summary::default());
        file.flush().unwrap();
        let path = file.unreported_path().unwrap();
        assert_eq!(path.file_name().unwrap(), "events.out.tfevents.0000000003.a-host.7.0");
        assert_eq!(file.unreported_path(), None);
        let records = records(&std::fs::read(path).unwrap());
        let [version, start, scalar] = &records[..] else { panic!("{records:?}") };
        let wall_time = |seconds: f64| [&[9], &seconds.to_le_bytes()[..]].concat();
        assert_eq!(*version, [&wall_time(3.0), &b"\x1a\x0dbrain.Event:2"[..]].concat());
        assert_eq!(*start, [&wall_time(3.0), &b"\x10\x05\x3a\x02\x08\x01"[..]].concat());
        let summary = [&[0x2a, loss(0.5).as_bytes().len() as u8], loss(0.5).as_bytes()].concat();
        assert_eq!(*scalar, [wall_time(4.0), vec![0x10, 0xac, 2], summary].concat());
    }

    #[test]
    fn what_is_there_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let make = || {
            let mut file = EventsFile::new(folder.path(), &metadata(0), second(3), 0);
            file.flush().unwrap();
            file.unreported_path().unwrap()
        };
        let foreign = folder.path().join("events.out.tfevents.0000000003.a-host.7.1");
        std::fs::create_dir(&foreign).unwrap();
        let names: Vec<_> = [make(), make(), make()].iter().map(|path| path.extension().unwrap().to_owned()).collect();
        assert_eq!(names, ["0", "2", "3"]);
    }

    #[test]
    fn ranks_have_folders_of_their_own() {
        let folder = tempfile::tempdir().unwrap();
        let mut file = EventsFile::new(folder.path(), &metadata(2), second(3), 0);
        file.flush().unwrap();
        assert_eq!(file.unreported_path().unwrap().parent().unwrap(), folder.path().join("rank2"));
    }

    #[test]
    fn what_cannot_be_written_is_written_later() {
        let folder = tempfile::tempdir().unwrap();
        let runs = folder.path().join("runs");
        std::fs::write(&runs, "a file").unwrap();
        let mut file = EventsFile::new(&runs, &metadata(0), second(3), 0);
        file.add(second(4), 1, &loss(0.5));
        let error = file.flush().unwrap_err();
        assert_eq!(error.to_string(), format!("cannot write {}", runs.display()));
        assert_eq!(std::fs::read_to_string(&runs).unwrap(), "a file");
        std::fs::remove_file(&runs).unwrap();
        file.flush().unwrap();
        assert_eq!((records(&std::fs::read(file.unreported_path().unwrap()).unwrap()).len(), file.dropped()), (3, 0));
    }

    #[test]
    fn a_file_that_is_gone_has_another_one_begin_like_it() {
        let folder = tempfile::tempdir().unwrap();
        let runs = folder.path().join("runs/mnist");
        let mut file = EventsFile::new(&runs, &metadata(0), second(3), 0);
        file.add(second(3), 0, &loss(0.125));
        file.keep_head();
        file.add(second(4), 1, &loss(0.5));
        file.flush().unwrap();
        let first = file.unreported_path().unwrap();
        let head = records(&std::fs::read(&first).unwrap())[..3].to_vec();
        std::fs::remove_dir_all(folder.path().join("runs")).unwrap();
        file.flush().unwrap();
        assert!(!runs.exists(), "there is nothing to write");
        assert_eq!(file.deleted(), Some(first.as_path()));
        for step in 2..4 {
            file.add(second(5), step, &loss(0.25));
            file.flush().unwrap();
        }
        assert_eq!(file.deleted(), None);
        let second = file.unreported_path().unwrap();
        let records = records(&std::fs::read(&second).unwrap());
        assert_eq!((&records[..3], records.len(), file.dropped()), (&head[..], 5, 0));
        assert_eq!((first.extension().unwrap(), second.extension().unwrap()), ("0".as_ref(), "1".as_ref()));
    }

    #[test]
    fn half_a_record_does_not_go_into_another_file() {
        let folder = tempfile::tempdir().unwrap();
        let mut file = EventsFile::new(folder.path(), &metadata(0), second(3), 0);
        file.flush().unwrap();
        std::fs::remove_file(file.unreported_path().unwrap()).unwrap();
        file.add(second(4), 1, &loss(0.5));
        file.add(second(4), 2, &loss(0.25));
        // As if the disk had been full after five bytes.
        file.partial = file.pending.len() / 2 - 5;
        file.pending.drain(..5);
        file.flush().unwrap();
        let records = records(&std::fs::read(file.unreported_path().unwrap()).unwrap());
        assert_eq!((records.len(), file.dropped(), file.partial), (3, 1, 0));
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_full_disk_is_an_error_and_memory_is_bounded() {
        let mut file = EventsFile::at("/dev/full".as_ref());
        let events = EventsFile::MAX_PENDING as u64 / 30;
        for step in 0..events {
            file.add(second(4), step, &loss(0.5));
            if step % 100_000 == 0 {
                let error = file.flush().unwrap_err();
                assert!(format!("{error:?}").contains("No space left"), "{error:?}");
            }
        }
        assert!(file.pending.len() <= EventsFile::MAX_PENDING + 16 && file.dropped() > 0);
        let kept = records(&file.pending).len() as u64;
        assert_eq!(kept + file.dropped(), events + 2);
    }
}
