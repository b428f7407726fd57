//! The command `convert`: writes a trace in another format.

use crate::{
    fault::{Fault, say},
    file::{self, cannot_write},
    input::{self, Inputs, cannot_read, name},
};
use kernspan::{Chrome, Exporter, Perfetto, Stacks, TensorBoard, Trace, analysis::Analysis};
use std::{
    fs,
    io::{self, Write},
    path::{Path, PathBuf},
};

/// Convert a trace to the format given by the new file's extension
///
/// An existing file is replaced once the new one is complete. An existing folder must be empty. What the new file
/// cannot hold is counted on standard error.
#[derive(clap::Args)]
#[command(after_help = "\
Endings:
  .json, .json.gz   Chrome JSON, as PyTorch writes it: ui.perfetto.dev, HolisticTraceAnalysis
  .pftrace          Perfetto's protobuf: ui.perfetto.dev
  .gpu.folded       folded stacks of GPU time: inferno, speedscope, flamegraph.pl
  .folded           folded stacks of host time
  none              a folder for TensorBoard and XProf

Examples:
  kernspan convert window.kernspan trace.json.gz
  kernspan convert trace.pt.trace.json.gz trace.pftrace
  kernspan convert trace.json logs/mnist && tensorboard --logdir logs

Exit status: 0 success; 1 a file could not be read or written; 2 usage error, such as an unsupported ending")]
pub(crate) struct Args {
    /// The trace; `-` for standard input
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
    /// Returns the format of a file by its extension.
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
                "unsupported ending of {text}: expected .json, .json.gz, .pftrace, .folded or .gpu.folded, or none for \
                 a TensorBoard folder"
            ))),
        }
    }

    /// Writes a trace in the format of a file.
    fn write(self, trace: &Trace, out: &mut dyn Write) -> io::Result<()> {
        let mut out = out;
        match self {
            Self::Chrome { gzip } => Chrome::to_dir("unused").gzip(gzip).write(trace, &mut out),
            Self::Perfetto => Perfetto::write(trace, &mut out),
            Self::HostStacks => Stacks::write_host(trace, &mut out),
            Self::GpuStacks => Stacks::write_gpu(trace, &mut out),
            Self::TensorBoard => Err(io::ErrorKind::IsADirectory.into()),
        }
    }
}

impl Args {
    pub(crate) fn run(&self) -> Result<(), Fault> {
        let target = Target::of(&self.to)?;
        Inputs::of(vec![self.from.clone()], false).check_output(Some(&self.to))?;
        let had_folder = self.to.is_dir();
        if target == Target::TensorBoard && fs::read_dir(&self.to).is_ok_and(|mut files| files.next().is_some()) {
            return Err(Fault::Failed(format!("cannot write {}: the folder is not empty", self.to.display())));
        }
        let cannot = |error| Fault::Failed(cannot_read(&self.from, &error));
        let traces = input::traces(&self.from).map_err(cannot)?;
        let [trace] = traces.as_slice() else {
            return Err(Fault::Failed(format!(
                "cannot convert {}: expected one trace, found {}",
                name(&self.from),
                traces.len()
            )));
        };
        if target == Target::GpuStacks && trace.work().len() == 0 {
            return Err(Fault::Failed(format!("cannot convert {}: no GPU work was recorded", name(&self.from))));
        }
        if target != Target::TensorBoard {
            file::write(&self.to, |out| target.write(trace, out))?;
        } else {
            self.write_folder(trace, had_folder)?;
        }
        let left_out = left_out(trace, target);
        if !left_out.is_empty() {
            say(&format!("{}: not in the new file: {}", name(&self.from), left_out.join(", ")));
        }
        Ok(())
    }

    /// Writes a folder for TensorBoard, or nothing.
    fn write_folder(&self, trace: &Trace, had_folder: bool) -> Result<(), Fault> {
        let entries = || fs::read_dir(&self.to).into_iter().flatten().flatten().map(|entry| entry.path());
        // The folder was empty, but another program may have written into it in the meantime.
        let before: Vec<_> = entries().collect();
        TensorBoard::to_dir(&self.to).arguments(false).export(&Analysis::of(trace)).map_err(|error| {
            for path in entries().filter(|path| !before.contains(path)) {
                let _ = if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) };
            }
            let _ = if had_folder { Ok(()) } else { fs::remove_dir(&self.to) };
            cannot_write(&self.to, &*error)
        })?;
        say(&format!("wrote {}", self.to.display()));
        Ok(())
    }
}

/// Returns what the new file does not contain, with the number of each kind. Stacks are a summary, so they are not
/// checked.
fn left_out(trace: &Trace, target: Target) -> Vec<String> {
    if matches!(target, Target::HostStacks | Target::GpuStacks) {
        return Vec::new();
    }
    let mut left_out = vec![("events of an unknown kind", trace.losses().unread)];
    if let Some(torch) = trace.torch() {
        left_out.extend(torch.left_out());
        if target == Target::TensorBoard {
            left_out.extend([
                ("forward-backward arrows", torch.backward_links().len() as u64),
                ("changes of CPU memory", torch.host_memory_changes() as u64),
                ("GPU annotations", torch.gpu_annotations() as u64),
            ]);
        }
    }
    left_out.retain(|&(_, count)| count > 0);
    left_out.into_iter().map(|(part, count)| format!("{count} {part}")).collect()
}
