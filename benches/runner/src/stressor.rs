//! Other processes that slow a training down, and a data set on a disk that is busy.

use crate::case::{Case, Framework, Setup, Variant};
use rustix::fs::OFlags;
use std::{
    error::Error,
    fs::{File, OpenOptions},
    io::{self, BufRead, BufReader, Read, Write},
    os::unix::fs::{FileExt, OpenOptionsExt},
    path::Path,
    process::{Child, Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};

/// The number of threads that write files.
const WRITERS: usize = 8;

/// A way to slow the machine down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stress {
    /// Nothing: the findings have to be silent.
    None,
    /// Twice as many busy threads as CPUs.
    Cpu,
    /// Files that are written to the disk that the training reads its batches from.
    Disk,
    /// The same, but the training reads nothing.
    OtherDisk,
    /// Another training on the same GPU.
    Gpu,
}

impl Stress {
    pub(crate) const ALL: [Self; 5] = [Self::None, Self::Cpu, Self::Disk, Self::OtherDisk, Self::Gpu];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Cpu => "cpu",
            Self::Disk => "disk",
            Self::OtherDisk => "other-disk",
            Self::Gpu => "gpu",
        }
    }

    pub(crate) fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|stress| stress.name() == name)
    }

    /// The finding that names it.
    pub(crate) fn kind(self) -> Option<&'static str> {
        match self {
            Self::None => None,
            Self::Cpu => Some("cpu-saturated"),
            Self::Disk | Self::OtherDisk => Some("disk-wait"),
            Self::Gpu => Some("shared-gpu"),
        }
    }
}

/// Stress that is prepared, begins, and ends when this is dropped.
#[derive(Debug)]
pub(crate) enum Stressor {
    Nothing,
    Process(Child),
}

impl Stressor {
    /// Prepares the stress, and waits until it can begin at once. `folder` is for its files.
    pub(crate) fn prepare(stress: Stress, folder: &Path, tiny: bool) -> Result<Self, Box<dyn Error>> {
        match stress {
            Stress::None => Ok(Self::Nothing),
            Stress::Cpu | Stress::Disk | Stress::OtherDisk | Stress::Gpu => {
                let mut child = Command::new(std::env::current_exe()?)
                    .args(["--stressor", stress.name()])
                    .arg(folder)
                    .args(tiny.then_some("--tiny"))
                    .stdin(Stdio::piped())
                    .stdout(Stdio::piped())
                    .spawn()?;
                let mut line = String::new();
                let output = child.stdout.take().ok_or("no output")?;
                BufReader::new(output).read_line(&mut line)?;
                let stressor = Self::Process(child);
                if line.trim() == "ready" { Ok(stressor) } else { Err("the process with the stress failed".into()) }
            }
        }
    }

    /// Begins.
    pub(crate) fn begin(&mut self) -> Result<(), Box<dyn Error>> {
        match self {
            Self::Nothing => Ok(()),
            Self::Process(child) => Ok(child.stdin.as_mut().ok_or("no input")?.write_all(b"go\n")?),
        }
    }
}

impl Drop for Stressor {
    fn drop(&mut self) {
        match self {
            Self::Nothing => {}
            Self::Process(child) => {
                let _ = child.kill();
                let _ = child.wait();
            }
        }
    }
}

/// The process of its own that causes the stress, until it is killed.
pub(crate) fn run<F: Framework>(
    stress: &str,
    folder: &Path,
    tiny: bool,
    cases: &'static [Case<F>],
) -> Result<(), Box<dyn Error>> {
    let begin = || -> io::Result<()> {
        println!("ready");
        io::stdout().flush()?;
        io::stdin().lock().read_line(&mut String::new()).map(drop)
    };
    // If the training is killed, this ends, too.
    let ended = Arc::new(AtomicBool::new(false));
    let watch = |ended: Arc<AtomicBool>| {
        thread::spawn(move || {
            let _ = io::stdin().lock().read_to_end(&mut Vec::new());
            ended.store(true, Ordering::Relaxed);
        })
    };
    let runs = || !ended.load(Ordering::Relaxed);
    match stress {
        "cpu" => {
            begin()?;
            watch(Arc::clone(&ended));
            thread::scope(|scope| {
                let cpus = thread::available_parallelism().map_or(1, usize::from);
                (0..2 * cpus).for_each(|_| {
                    scope.spawn(|| while runs() {});
                });
            });
            Ok(())
        }
        "disk" | "other-disk" => {
            begin()?;
            watch(Arc::clone(&ended));
            thread::scope(|scope| {
                let writers = (0..WRITERS).map(|number| {
                    scope.spawn(move || {
                        let (piece, file) = (vec![1_u8; 8 << 20], folder.join(number.to_string()));
                        while runs() {
                            let mut file = File::create(&file)?;
                            file.write_all(&piece)?;
                            file.sync_all()?;
                        }
                        Ok::<_, io::Error>(())
                    })
                });
                writers.collect::<Vec<_>>().into_iter().try_for_each(|writer| writer.join().expect("a writer"))
            })?;
            Ok(())
        }
        _ => {
            // The first case is an MLP of ordinary size.
            let setup = Setup { device: F::device(tiny)?, tiny, amount: 1 };
            F::configure(&cases[0], Variant::Fixed);
            let mut step = (cases[0].make)(&setup, Variant::Fixed).map_err(Into::into)?;
            for _ in 0..F::WARM_UP {
                step().map_err(Into::into)?;
            }
            F::synchronize(&setup.device).map_err(Into::into)?;
            begin()?;
            watch(Arc::clone(&ended));
            while runs() {
                step().map_err(Into::into)?;
            }
            Ok(())
        }
    }
}

/// Batches on a disk, read past the page cache, as those of a data set that is larger than memory.
#[derive(Debug)]
pub(crate) struct DiskBatches {
    file: File,
    buffer: Vec<u8>,
    next: u64,
}

impl DiskBatches {
    /// The size of the file, of a batch, and of the units that direct access wants.
    const SIZES: [u64; 3] = [256 << 20, 2 << 20, 4096];

    pub(crate) fn new(folder: &Path) -> io::Result<Self> {
        let [size, batch, unit] = Self::SIZES;
        let path = folder.join("batches");
        let mut written = File::create(&path)?;
        let piece = vec![1_u8; batch as usize];
        (0..size / batch).try_for_each(|_| written.write_all(&piece))?;
        written.sync_all()?;
        let direct = i32::try_from(OFlags::DIRECT.bits()).map_err(io::Error::other)?;
        let file = OpenOptions::new().read(true).custom_flags(direct).open(&path)?;
        Ok(Self { file, buffer: vec![0; (batch + unit) as usize], next: 0 })
    }

    /// Reads a batch.
    pub(crate) fn read(&mut self) -> io::Result<()> {
        let [size, batch, unit] = Self::SIZES;
        let start = self.buffer.as_ptr().align_offset(unit as usize);
        self.file.read_exact_at(&mut self.buffer[start..][..batch as usize], self.next)?;
        // Not in order, so that nothing reads ahead.
        self.next = (self.next + 7 * batch) % size;
        Ok(())
    }
}
