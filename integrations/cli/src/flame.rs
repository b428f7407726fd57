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
  kernspan flame --cpu runs/mnist -o cpu.svg

Exit status: 0 success; 1 a file could not be read or written, or nothing was found; 2 usage error")]
pub(crate) struct Args {
    #[command(flatten)]
    inputs: Inputs,
    /// Output file; `-` for standard output
    #[arg(long, short, value_name = "SVG")]
    output: PathBuf,
    /// Draw the time of kernels and copies, inside the spans that launched them
    #[arg(long, group = "time")]
    gpu: bool,
    /// Draw sampled time on the CPU: functions inside the spans that they ran in
    #[arg(long, group = "time")]
    cpu: bool,
    /// Draw sampled waits: functions inside the spans that waited
    #[arg(long, group = "time")]
    waiting: bool,
    /// Draw host time (the default)
    #[arg(long, group = "time")]
    host: bool,
}

impl Args {
    pub(crate) fn run(&self) -> Result<(), Fault> {
        self.inputs.check_output(Some(&self.output))?;
        let read = self.inputs.read()?;
        let mut folded = Vec::new();
        for trace in read.traces() {
            match self {
                Self { gpu: true, .. } => Stacks::write_gpu(trace, &mut folded)?,
                Self { cpu: true, .. } => Stacks::write_cpu(trace, &mut folded)?,
                Self { waiting: true, .. } => Stacks::write_waiting(trace, &mut folded)?,
                _ => Stacks::write_host(trace, &mut folded)?,
            }
        }
        if folded.is_empty() {
            let what = match self {
                Self { gpu: true, .. } => "no GPU work was recorded",
                Self { cpu: true, .. } => "no stacks were sampled on the CPU",
                Self { waiting: true, .. } => "no waits were sampled",
                _ => "no spans were recorded",
            };
            return Err(Fault::Failed(what.to_owned()));
        }
        let graph = self.draw(&String::from_utf8_lossy(&folded)).map_err(|error| cannot_write(&self.output, &error))?;
        file::write(&self.output, |out| out.write_all(&graph))?;
        read.end()
    }

    fn draw(&self, folded: &str) -> io::Result<Vec<u8>> {
        let mut options = Options::default();
        let title = match self {
            Self { gpu: true, .. } => "GPU time by span and kernel",
            Self { cpu: true, .. } => "CPU time by span and function",
            Self { waiting: true, .. } => "Waiting by span and function",
            _ => "Time by span",
        };
        title.clone_into(&mut options.title);
        "ns".clone_into(&mut options.count_name);
        let mut graph = Vec::new();
        flamegraph::from_lines(&mut options, folded.lines(), &mut graph).map_err(io::Error::other)?;
        Ok(graph)
    }
}
