//! The command `convert`: writes a trace in another format.

use crate::{
    fault::{Fault, say},
    file::{self, cannot_write},
    input::{self, Inputs, cannot_read, name},
};
use kernspan::{
    Chrome, Exporter, Perfetto, Stacks, TensorBoard, Trace,
    analysis::Analysis,
    export::{Firefox, Pprof},
    read,
};
use std::{
    cmp::Reverse,
    fs,
    io::{self, Write},
    path::{Path, PathBuf},
};

/// Convert a trace to the format given by the new file's extension
///
/// Of a folder, the last window of the newest run is converted. `kernspan merge` puts several windows into one file.
///
/// An existing file is replaced once the new one is complete. An existing folder must be empty. What the new file
/// cannot hold is counted on standard error.
#[derive(clap::Args)]
#[command(after_help = "\
Endings:
  .json, .json.gz   Chrome JSON, as PyTorch writes it: ui.perfetto.dev, HolisticTraceAnalysis
  .pftrace          Perfetto's protobuf: ui.perfetto.dev
  .firefox.json     the Firefox Profiler's JSON: profiler.firefox.com
  .pb.gz            sampled stacks for pprof: go tool pprof
  .gpu.folded       folded stacks of GPU time: inferno, speedscope, flamegraph.pl
  .cpu.folded       folded stacks of sampled CPU time
  .waiting.folded   folded stacks of sampled waits
  .folded           folded stacks of host time
  none              a folder for TensorBoard and XProf

Examples:
  kernspan convert window.kernspan trace.json.gz
  kernspan convert trace.pt.trace.json.gz trace.pftrace
  kernspan convert runs/mnist mnist.pftrace
  kernspan convert trace.json logs/mnist && tensorboard --logdir logs

Exit status: 0 success; 1 a file could not be read or written; 2 usage error, such as an unsupported ending")]
pub(crate) struct Args {
    /// The trace, or a folder of traces; `-` for standard input
    #[arg(value_name = "FILE")]
    from: PathBuf,
    /// The new file or folder
    #[arg(value_name = "NEW")]
    to: PathBuf,
    /// Search folders recursively
    #[arg(long, short)]
    recursive: bool,
    /// Convert this run of a folder: its name, a process id, or a file's name [default: the newest]
    #[arg(long, value_name = "NAME")]
    run: Option<String>,
}

/// A format that can be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Target {
    Chrome { gzip: bool },
    Perfetto,
    Firefox,
    Pprof,
    HostStacks,
    CpuStacks,
    WaitingStacks,
    GpuStacks,
    TensorBoard,
}

impl Target {
    /// Returns the format of a file by its extension.
    fn of(path: &Path) -> Result<Self, Fault> {
        const ENDINGS: [(&str, Target); 9] = [
            (".firefox.json", Target::Firefox),
            (".json", Target::Chrome { gzip: false }),
            (".json.gz", Target::Chrome { gzip: true }),
            (".pftrace", Target::Perfetto),
            (".pb.gz", Target::Pprof),
            (".gpu.folded", Target::GpuStacks),
            (".cpu.folded", Target::CpuStacks),
            (".waiting.folded", Target::WaitingStacks),
            (".folded", Target::HostStacks),
        ];
        let text = path.display().to_string();
        match ENDINGS.iter().find(|(ending, _)| text.ends_with(ending)) {
            Some((_, target)) => Ok(*target),
            None if path.is_dir() || path.extension().is_none() => Ok(Self::TensorBoard),
            None => Err(Fault::Usage(format!(
                "unsupported ending of {text}: expected .json, .json.gz, .pftrace, .firefox.json, .pb.gz, .folded, \
                 .gpu.folded, .cpu.folded or .waiting.folded, or none for a TensorBoard folder"
            ))),
        }
    }

    /// Returns why a trace has nothing for this format, if so.
    fn nothing_in(self, trace: &Trace) -> Option<&'static str> {
        let sampled = |waiting: bool| trace.stack_samples().any(|sample| sample.is_waiting() == waiting);
        match self {
            Self::GpuStacks if trace.work().len() == 0 => Some("no GPU work was recorded"),
            Self::Pprof if trace.stack_samples().next().is_none() => Some("no stacks were sampled"),
            Self::CpuStacks if !sampled(false) => Some("no stacks were sampled on the CPU"),
            Self::WaitingStacks if !sampled(true) => Some("no waits were sampled"),
            _ => None,
        }
    }

    /// Writes a trace in the format of a file.
    fn write(self, trace: &Trace, out: &mut dyn Write) -> io::Result<()> {
        let mut out = out;
        match self {
            Self::Chrome { gzip } => Chrome::to_dir("unused").gzip(gzip).write(trace, &mut out),
            Self::Perfetto => Perfetto::write(trace, &mut out),
            Self::Firefox => Firefox::write(trace, &mut out),
            Self::Pprof => Pprof::write(trace, &mut out),
            Self::HostStacks => Stacks::write_host(trace, &mut out),
            Self::CpuStacks => Stacks::write_cpu(trace, &mut out),
            Self::WaitingStacks => Stacks::write_waiting(trace, &mut out),
            Self::GpuStacks => Stacks::write_gpu(trace, &mut out),
            Self::TensorBoard => Err(io::ErrorKind::IsADirectory.into()),
        }
    }
}

impl Args {
    pub(crate) fn run(&self) -> Result<(), Fault> {
        let target = Target::of(&self.to)?;
        let inputs = Inputs::of(vec![self.from.clone()], self.recursive).named_run(self.run.clone());
        inputs.check_output(Some(&self.to))?;
        let had_folder = self.to.is_dir();
        if target == Target::TensorBoard && fs::read_dir(&self.to).is_ok_and(|mut files| files.next().is_some()) {
            return Err(Fault::Failed(format!("cannot write {}: the folder is not empty", self.to.display())));
        }
        let from = self.window(&inputs)?;
        let cannot = |error| Fault::Failed(cannot_read(&from, &error));
        let traces = input::traces(&from).map_err(cannot)?;
        let [trace] = traces.as_slice() else {
            return Err(Fault::Failed(format!(
                "cannot convert {}: expected one trace, found {}",
                name(&from),
                traces.len()
            )));
        };
        if let Some(nothing) = target.nothing_in(trace) {
            return Err(Fault::Failed(format!("cannot convert {}: {nothing}", name(&from))));
        }
        if target != Target::TensorBoard {
            file::write(&self.to, |out| target.write(trace, out))?;
        } else {
            self.write_folder(trace, had_folder)?;
        }
        let left_out = left_out(trace, target);
        if !left_out.is_empty() {
            say(&format!("{}: not in the new file: {}", name(&from), left_out.join(", ")));
        }
        Ok(())
    }

    /// Returns the file to convert: of a folder, that of the last window.
    fn window(&self, inputs: &Inputs) -> Result<PathBuf, Fault> {
        let (files, _) = inputs.find()?;
        let last = |path: &PathBuf| read::origin(path).map(|origin| (Reverse(origin.metadata.rank), origin.start)).ok();
        match files.as_slice() {
            [] => Err(Fault::Incomplete),
            [file] => Ok(file.clone()),
            files => {
                let window = files.iter().max_by_key(|path| last(path)).unwrap_or(&self.from);
                let (from, count) = (name(&self.from), files.len());
                say(&format!(
                    "the run in {from} has {count} windows; converting {}. kernspan merge puts all into one JSON file",
                    name(window)
                ));
                Ok(window.clone())
            }
        }
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
    use Target::{CpuStacks, GpuStacks, HostStacks, Pprof, WaitingStacks};
    if matches!(target, HostStacks | GpuStacks | CpuStacks | WaitingStacks | Pprof) {
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
