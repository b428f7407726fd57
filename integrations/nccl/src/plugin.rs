//! The plugin as a program sees it: its settings, and the guard that keeps it.

use crate::{
    communicators::{COMMUNICATORS, Counts},
    watch::{Watch, Watched, say},
};
use kernspan::{Profiler, framework::HandOver};
use std::{fmt, io, path::PathBuf, time::Duration};

/// Makes kernspan NCCL's profiler plugin, with default settings: see [`Nccl::install`].
///
/// # Errors
///
/// As for [`Nccl::install`].
pub fn install(profiler: &Profiler) -> Result<Plugin, Error> {
    Nccl::new().install(profiler)
}

/// The settings of the plugin.
#[derive(Clone, Debug)]
#[must_use = "nothing is loaded until `install` is called"]
pub struct Nccl {
    channels: bool,
    folder: Option<PathBuf>,
    slow_step: Duration,
    signal: Option<i32>,
}

impl Default for Nccl {
    fn default() -> Self {
        Self::new()
    }
}

impl Nccl {
    /// The default of [`slow_step`](Self::slow_step).
    pub const SLOW_STEP: Duration = Duration::from_secs(60);

    /// Returns the default settings: collectives go to traces, and no files are written.
    pub fn new() -> Self {
        Self { channels: true, folder: None, slow_step: Self::SLOW_STEP, signal: None }
    }

    /// Sets the folder that each rank writes its last collectives to, as `rank00003.nccl`, when a step takes too
    /// long, on a signal, and when the [`Plugin`] is dropped or the process ends by `exit` or `SIGTERM`. By default,
    /// none.
    ///
    /// `SIGTERM` ends the process once the file is written, as it would have without the plugin. If the program handles
    /// or ignores it, or has `save_on_exit`, that decides when the process ends, and the file is written meanwhile.
    ///
    /// The ranks may share the folder: it is what `kernspan ranks hang` reads. A later file replaces the earlier one.
    pub fn hangs_to_dir(mut self, folder: impl Into<PathBuf>) -> Self {
        self.folder = Some(folder.into());
        self
    }

    /// Sets how long a step may take before the file is written. By default, [`Self::SLOW_STEP`].
    pub fn slow_step(mut self, limit: Duration) -> Self {
        self.slow_step = limit;
        self
    }

    /// Sets a signal on which the file is written. By default, none.
    ///
    /// Take one that means nothing else to the program, such as 10, `SIGUSR1`: it no longer ends the process.
    pub fn on_signal(mut self, signal: i32) -> Self {
        self.signal = Some(signal);
        self
    }

    /// Sets whether NCCL tells when kernels start and end on the GPU. By default, yes: without it, it is not known
    /// which collectives have finished, and hangs cannot be told from work. Traces do not need it.
    pub fn channels(mut self, wanted: bool) -> Self {
        self.channels = wanted;
        self
    }

    /// Makes kernspan NCCL's profiler plugin, until the guard is dropped. Call it before the first communicator is
    /// made: NCCL looks for a plugin then.
    ///
    /// # Errors
    ///
    /// [`Error::OtherPlugin`] if `NCCL_PROFILER_PLUGIN` is set, and [`Error::Load`] or [`Error::Watch`] if the system
    /// does not let the library or the thread be made.
    pub fn install(self, profiler: &Profiler) -> Result<Plugin, Error> {
        if let Some(other) = std::env::var_os("NCCL_PROFILER_PLUGIN") {
            return Err(Error::OtherPlugin(other.to_string_lossy().into_owned()));
        }
        #[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
        crate::library::load().map_err(Error::Load)?;
        #[cfg(not(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"))))]
        return Err(Error::Load(io::ErrorKind::Unsupported.into()));
        #[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
        self.follow(profiler.hand_over())
    }

    fn follow(self, profiler: HandOver) -> Result<Plugin, Error> {
        let (folder, slow_step) = (self.folder, self.slow_step);
        let watched = folder.map(|folder| Watched { folder, slow_step, profiler: profiler.clone() });
        let watch = watched.map(|watched| Watch::start(watched, self.signal)).transpose().map_err(Error::Watch)?;
        COMMUNICATORS.set_channels(self.channels);
        Ok(Plugin { profiler: COMMUNICATORS.add_profiler(profiler), watch })
    }
}

/// A guard that keeps kernspan NCCL's profiler plugin. Dropping it writes the file of [`Nccl::hangs_to_dir`], and then
/// collectives go to no trace anymore. The library stays loaded, since NCCL may call it at any time.
#[derive(Debug)]
#[must_use = "dropping the plugin ends it"]
pub struct Plugin {
    profiler: u64,
    watch: Option<Watch>,
}

impl Plugin {
    /// The number of events of NCCL since the process began, whether or not they were recorded. If a program has made
    /// communicators and the count is 0, NCCL has loaded no plugin: see its log with `NCCL_DEBUG=INFO`.
    pub fn counts(&self) -> Counts {
        COMMUNICATORS.counts()
    }

    /// Writes the file with the last collectives now, and returns its path; `None` without a folder.
    ///
    /// # Errors
    ///
    /// If the file cannot be written.
    pub fn write(&self) -> io::Result<Option<PathBuf>> {
        self.watch.as_ref().map(|watch| watch.write("request")).transpose()
    }

    fn write_last(&self) {
        if let Some(watch) = &self.watch
            && let Err(error) = watch.write("end")
        {
            say(watch.folder(), &error);
        }
    }
}

impl Drop for Plugin {
    fn drop(&mut self) {
        self.write_last();
        COMMUNICATORS.remove_profiler(self.profiler);
    }
}

/// Why kernspan could not become NCCL's profiler plugin.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// `NCCL_PROFILER_PLUGIN` names another plugin, which NCCL loads instead.
    OtherPlugin(String),
    /// The library that NCCL opens could not be loaded.
    Load(io::Error),
    /// The thread or the signal handler could not be started.
    Watch(io::Error),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OtherPlugin(name) => {
                write!(f, "NCCL_PROFILER_PLUGIN is {name:?}, which NCCL loads instead of kernspan: unset it")
            }
            Self::Load(error) => write!(f, "cannot load the library that NCCL opens: {error}"),
            Self::Watch(error) => write!(f, "cannot watch for slow steps: {error}"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::OtherPlugin(_) => None,
            Self::Load(error) | Self::Watch(error) => Some(error),
        }
    }
}
