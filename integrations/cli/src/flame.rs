//! The command `flame`: a flame graph.

use crate::{
    convert::{folder_beside, stacks},
    fault::Fault,
    input::Inputs,
};
use inferno::flamegraph::{self, Options};
use std::{
    fs,
    io::{self, Write},
    path::{Path, PathBuf},
};

/// Draw a flame graph, an SVG that browsers show: how much time each stack of spans took
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  kernspan flame trace.json -o host.svg
  kernspan flame --gpu runs/mnist -o gpu.svg

Exit status: 0 fine; 1 a file could not be read or written, or nothing was found; 2 wrong usage")]
pub(crate) struct Args {
    #[command(flatten)]
    inputs: Inputs,
    /// The new file; `-` is standard output
    #[arg(long, short, value_name = "SVG")]
    output: PathBuf,
    /// Draw the time of kernels and copies, on top of the spans that launched them
    #[arg(long, conflicts_with = "host")]
    gpu: bool,
    /// Draw the time of the host; this is the default
    #[arg(long)]
    host: bool,
}

impl Args {
    pub(crate) fn run(&self) -> Result<(), Fault> {
        let read = self.inputs.read()?;
        let to_output = self.output.as_os_str() == "-";
        let cannot = |error: String| Fault::Failed(format!("{}: cannot be written: {error}", self.output.display()));
        let folder = match to_output {
            true => tempfile::tempdir().map_err(|error| cannot(error.to_string()))?,
            false => folder_beside(&self.output)?,
        };
        let mut folded = String::new();
        for trace in read.traces() {
            let (host, gpu) = stacks(trace, folder.path()).map_err(cannot)?;
            if let Some(file) = if self.gpu { gpu } else { host } {
                folded += &fs::read_to_string(file).map_err(|error| cannot(error.to_string()))?;
            }
        }
        if folded.is_empty() {
            let what = if self.gpu { "no GPU work was recorded" } else { "no spans were recorded" };
            return Err(Fault::Failed(what.to_owned()));
        }
        let graph = self.draw(&folded).map_err(|error| cannot(error.to_string()))?;
        if to_output {
            let mut out = io::stdout().lock();
            out.write_all(&graph)?;
            out.flush()?;
        } else {
            write_whole(folder.path(), &self.output, &graph).map_err(|error| cannot(error.to_string()))?;
        }
        read.end()
    }

    fn draw(&self, folded: &str) -> io::Result<Vec<u8>> {
        let mut options = Options::default();
        options.title = if self.gpu { "GPU time by span and kernel" } else { "Time by span" }.to_owned();
        "ns".clone_into(&mut options.count_name);
        let mut graph = Vec::new();
        flamegraph::from_lines(&mut options, folded.lines(), &mut graph).map_err(io::Error::other)?;
        Ok(graph)
    }
}

/// Writes a file in a folder beside it, then renames it, so that it appears whole or not at all.
fn write_whole(folder: &Path, path: &Path, bytes: &[u8]) -> io::Result<()> {
    let unfinished = folder.join("unfinished");
    fs::write(&unfinished, bytes)?;
    fs::rename(unfinished, path)
}
