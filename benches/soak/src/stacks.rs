//! The stacks of all threads of a process that does not get on.

use std::{
    fs,
    path::Path,
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

/// Returns the stack of every thread of a process, by a debugger if there is one, or else what the system says of each
/// thread: its name, the system call that it is in, and where in the kernel it waits.
pub fn stacks_of(process: u32) -> String {
    let id = process.to_string();
    let commands = ["-batch", "-p", &id, "-ex", "thread apply all bt", "-ex", "info sharedlibrary"];
    for debugger in ["gdb", "cuda-gdb", "/usr/local/cuda/bin/cuda-gdb"] {
        if let Ok(output) = Command::new(debugger).args(commands).output()
            && output.status.success()
        {
            return String::from_utf8_lossy(&output.stdout).into_owned();
        }
    }
    let mut text = String::new();
    let tasks = fs::read_dir(Path::new("/proc").join(id).join("task")).into_iter().flatten().flatten();
    for task in tasks {
        let read = |name| fs::read_to_string(task.path().join(name)).unwrap_or_default().trim().to_owned();
        let thread = task.file_name();
        text += &format!("{} {}: {}, {}\n", thread.display(), read("comm"), read("syscall"), read("wchan"));
    }
    text
}

/// Ends a process that does not get on, after printing the stacks of its threads.
#[derive(Clone, Debug)]
pub struct Watchdog(Arc<AtomicU64>);

impl Watchdog {
    /// Starts to watch: the process is aborted if it neither [gets on](Self::gets_on) for so long nor ends.
    ///
    /// # Panics
    ///
    /// If no thread can be started.
    pub fn start(limit: Duration) -> Self {
        let progress = Arc::<AtomicU64>::default();
        let watched = Arc::clone(&progress);
        let watch = move || {
            let (mut seen, mut since) = (0, Instant::now());
            while since.elapsed() < limit {
                thread::sleep(Duration::from_millis(200));
                let now = watched.load(Ordering::Relaxed);
                if now != seen {
                    (seen, since) = (now, Instant::now());
                }
            }
            eprintln!("no progress for {limit:?}:\n{}", stacks_of(std::process::id()));
            std::process::abort();
        };
        thread::Builder::new().name("watchdog".to_owned()).spawn(watch).expect("a thread");
        Self(progress)
    }

    /// Says that the process gets on.
    pub fn gets_on(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}
