//! The command `flame`: a flame graph.

use crate::{
    fault::Fault,
    file::{self, cannot_write},
    input::Inputs,
};
use inferno::flamegraph::{self, Options};
use kernspan::Stacks;
use std::{io, path::PathBuf};

/// Draw a flame graph as SVG: the time of each stack of spans
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  kernspan flame trace.json -o host.svg
  kernspan flame --gpu runs/mnist -o gpu.svg

Exit status: 0 success; 1 a file could not be read or written, or nothing was found; 2 usage error")]
pub(crate) struct Args {
    #[command(flatten)]
    inputs: Inputs,
    /// Output file; `-` for standard output
    #[arg(long, short, value_name = "SVG")]
    output: PathBuf,
    /// Draw the time of kernels and copies, inside the spans that launched them
    #[arg(long, conflicts_with = "host")]
    gpu: bool,
    /// Draw host time (the default)
    #[arg(long)]
    host: bool,
}

impl Args {
    pub(crate) fn run(&self) -> Result<(), Fault> {
        self.inputs.check_output(Some(&self.output))?;
        let read = self.inputs.read()?;
        let mut folded = Vec::new();
        for trace in read.traces() {
            let write = if self.gpu { Stacks::write_gpu } else { Stacks::write_host };
            write(trace, &mut folded)?;
        }
        if folded.is_empty() {
            let what = if self.gpu { "no GPU work was recorded" } else { "no spans were recorded" };
            return Err(Fault::Failed(what.to_owned()));
        }
        let graph = self.draw(&String::from_utf8_lossy(&folded)).map_err(|error| cannot_write(&self.output, &error))?;
        file::write(&self.output, |out| out.write_all(&graph))?;
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
