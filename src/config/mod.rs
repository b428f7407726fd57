//! Settings from files, environment variables and the command line.
//!
//! ```no_run
//! use tracing_subscriber::prelude::*;
//!
//! fn main() -> Result<(), kernspan::Error> {
//!     let (layer, profiler) = kernspan::Profiler::from_env()?;
//!     tracing_subscriber::registry().with(layer).init();
//!     for _ in 0..100 {
//!         // … train …
//!         profiler.step();
//!     }
//!     profiler.finish()?;
//!     Ok(())
//! }
//! ```
//!
//! Run it with `KERNSPAN=on`, with `KERNSPAN_SCHEDULE="wait=5,warmup=1,active=3"`, or with
//! `KERNSPAN_CONFIG=train.yaml`, a file with a section as PyTorch projects have it:
//!
//! ```yaml
//! profiling:
//!   wait: 5
//!   warmup: 1
//!   active: 3
//!   activities: [cpu, cuda]
//!   export: [chrome, html]
//!   dir: runs
//! ```
//!
//! If no setting asks for it, nothing is recorded.
//!
//! # Precedence
//!
//! Defaults, file, environment, command line, code: each overrides those before it, key by key. Unknown keys and
//! variables, wrong types and contradictions are errors, with the file, the line and what was probably meant.
//! `docs/configuration.md` has all keys and variables.

mod decode;
mod layer;
mod node;
#[cfg(feature = "clap")]
mod overrides;
mod parts;
mod profiling;
mod requests;
mod run_folder;
mod settings;
mod spelling;
#[cfg(test)]
mod tests;
mod values;
mod visitors;

#[cfg(feature = "clap")]
pub use self::overrides::ProfilingArgs;
pub use self::{
    profiling::Profiling,
    settings::{Explained, Settings},
    values::{Export, Format, StepRange},
};
pub use crate::config_error::{ConfigError, Origin};

use crate::{error::Error, host::ProfilerLayer, profiler::Profiler};

impl Profiler {
    /// Builds a layer and a profiler with the settings of the environment variables, over those of the file that
    /// `KERNSPAN_CONFIG` names: see [`config`](crate::config).
    ///
    /// If no setting asks for it, the profiler is [off](crate::ProfilerBuilder::enabled). A program can so be shipped
    /// with it: it never writes files that nobody expects, and costs nothing.
    ///
    /// ```no_run
    /// # use tracing_subscriber::prelude::*;
    /// let (layer, profiler) = kernspan::Profiler::from_env()?;
    /// tracing_subscriber::registry().with(layer).init();
    /// # profiler.finish()?;
    /// # Ok::<(), kernspan::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Config`] if a setting is unknown, has the wrong type or contradicts another, and those of
    /// [`build`](crate::ProfilerBuilder::build).
    pub fn from_env() -> Result<(ProfilerLayer, Self), Error> {
        Settings::load()?.builder()?.build()
    }
}
