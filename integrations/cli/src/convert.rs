//! The command `convert`: a trace in another format.

use crate::{
    fault::Fault,
    file::{failed, folder_beside},
    input::{self, name},
};
use kernspan::{Chrome, Exporter, Perfetto, Stacks, TensorBoard, Trace};
use std::{
    fs,
    path::{Path, PathBuf},
};

/// Convert a trace to another format, which the ending of the new file says
///
/// A file that exists is replaced. A folder must not exist, or be empty.
#[derive(clap::Args)]
#[command(after_help = "\
Endings:
  .json, .json.gz   Chrome's JSON, as PyTorch writes it: ui.perfetto.dev, HolisticTraceAnalysis
  .pftrace          Perfetto's protobuf: ui.perfetto.dev
  .gpu.folded       folded stacks of GPU time: inferno, speedscope, flamegraph.pl
  .folded           folded stacks of the host's time
  none              a folder for TensorBoard and XProf

Examples:
  kernspan convert window.kernspan trace.json.gz
  kernspan convert trace.pt.trace.json.gz trace.pftrace
  kernspan convert trace.json logs/mnist && tensorboard --logdir logs

Exit status: 0 fine; 1 a file could not be read or written; 2 wrong usage, such as an unknown ending")]
pub(crate) struct Args {
    /// The trace; `-` is standard input
    #[arg(value_name = "FILE")]
    from: PathBuf,
    /// The new file or folder
    #[arg(value_name = "NEW")]
    to: PathBuf,
}

/// A format that can be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Target {
    Chrome { gzip: bool },
    Perfetto,
    HostStacks,
    GpuStacks,
    TensorBoard,
}

impl Target {
    /// Returns the format that a file's ending says.
    fn of(path: &Path) -> Result<Self, Fault> {
        const ENDINGS: [(&str, Target); 5] = [
            (".json", Target::Chrome { gzip: false }),
            (".json.gz", Target::Chrome { gzip: true }),
            (".pftrace", Target::Perfetto),
            (".gpu.folded", Target::GpuStacks),
            (".folded", Target::HostStacks),
        ];
        let text = path.display().to_string();
        match ENDINGS.iter().find(|(ending, _)| text.ends_with(ending)) {
            Some((_, target)) => Ok(*target),
            None if path.is_dir() || path.extension().is_none() => Ok(Self::TensorBoard),
            None => Err(Fault::Usage(format!(
                "{text}: no format has this ending: expected .json, .json.gz, .pftrace, .folded, or none for a folder"
            ))),
        }
    }

    fn exporter(self, folder: &Path) -> Box<dyn Exporter> {
        match self {
            Self::Chrome { gzip } => Box::new(Chrome::to_dir(folder).gzip(gzip)),
            Self::Perfetto => Box::new(Perfetto::to_dir(folder)),
            Self::HostStacks | Self::GpuStacks => Box::new(Stacks::to_dir(folder)),
            Self::TensorBoard => Box::new(TensorBoard::to_dir(folder).arguments(false)),
        }
    }
}

impl Args {
    pub(crate) fn run(&self) -> Result<(), Fault> {
        let target = Target::of(&self.to)?;
        if target == Target::TensorBoard && fs::read_dir(&self.to).is_ok_and(|mut files| files.next().is_some()) {
            return Err(Fault::Failed(format!("{}: the folder is not empty", self.to.display())));
        }
        let cannot = |error| Fault::Failed(format!("{}: {error}", name(&self.from)));
        let traces = input::traces(&self.from).map_err(cannot)?;
        let [trace] = traces.as_slice() else {
            return Err(Fault::Failed(format!("{}: has {} traces, not one", name(&self.from), traces.len())));
        };
        let folder = folder_beside(&self.to)?;
        let inside = folder.path().join("new");
        let files = export(target, trace, &inside).map_err(|error| failed(&self.to, error))?;
        let made = match target {
            Target::TensorBoard => inside,
            Target::GpuStacks => files
                .into_iter()
                .find(|file| is_gpu(file))
                .ok_or_else(|| Fault::Failed(format!("{}: no GPU work was recorded", name(&self.from))))?,
            _ => files.into_iter().find(|file| !is_gpu(file)).ok_or_else(|| failed(&self.to, "nothing was written"))?,
        };
        fs::rename(made, &self.to).map_err(|error| failed(&self.to, error))
    }
}

fn is_gpu(file: &Path) -> bool {
    file.display().to_string().ends_with(".gpu.folded")
}

/// Writes the folded stacks of a trace into a folder, and returns the files: the host's, and the GPU's if it did
/// anything.
pub(crate) fn stacks(trace: &Trace, folder: &Path) -> Result<(Option<PathBuf>, Option<PathBuf>), String> {
    let (gpu, host): (Vec<_>, Vec<_>) =
        export(Target::HostStacks, trace, folder)?.into_iter().partition(|file| is_gpu(file));
    Ok((host.into_iter().next(), gpu.into_iter().next()))
}

/// Writes Chrome's JSON of a trace into a folder, and returns the file.
pub(crate) fn chrome(trace: &Trace, folder: &Path) -> Result<Option<PathBuf>, String> {
    Ok(export(Target::Chrome { gzip: false }, trace, folder)?.into_iter().next())
}

fn export(target: Target, trace: &Trace, folder: &Path) -> Result<Vec<PathBuf>, String> {
    target.exporter(folder).export(trace).map_err(|error| error.to_string())
}
