//! Runs to compare: traces, or statistics written earlier.

use crate::{
    fault::Fault,
    input::{self, Inputs, Read, cannot_read},
    progress::Progress,
};
use kernspan::Trace;
use kernspan_check::Baseline;
use std::{fs, io::Read as _, path::Path};

/// The statistics of all files.
pub(crate) struct Runs {
    pub(crate) baseline: Baseline,
    /// The traces, if some of the files contain any.
    read: Option<Read>,
}

impl Runs {
    /// Reads files and folders: traces, and files written by the command `baseline` or by a program.
    pub(crate) fn read(inputs: &Inputs, machine: Option<&str>) -> Result<Self, Fault> {
        Self::read_with(inputs, machine, &Progress::new())
    }

    /// Reads files and folders, sharing a progress bar with others.
    pub(crate) fn read_with(inputs: &Inputs, machine: Option<&str>, progress: &Progress) -> Result<Self, Fault> {
        let (mut all, mut traces) = (Baseline::of([]), Vec::new());
        for path in inputs.files() {
            match may_be_baseline(path).then(|| read_baseline(path)) {
                Some(Ok(baseline)) => all.merge(baseline),
                _ => traces.push(path.clone()),
            }
        }
        let read = if traces.is_empty() { None } else { Some(inputs.with_files(traces).read_with(progress)?) };
        if let Some(read) = &read {
            all.merge(Baseline::of(read.traces()));
        }
        if let Some(machine) = machine {
            all.set_machine_kind(machine);
        }
        Ok(Self { baseline: all, read })
    }

    /// Returns all traces. Statistics written earlier have none.
    pub(crate) fn traces(&self) -> impl Iterator<Item = &Trace> {
        self.read.iter().flat_map(Read::traces)
    }

    /// Returns the fault that some files could not be read, if so.
    pub(crate) fn end(&self) -> Result<(), Fault> {
        self.read.as_ref().map_or(Ok(()), Read::end)
    }
}

/// Returns whether a file starts like those written by the command `baseline`, so that no large trace is read twice.
fn may_be_baseline(path: &Path) -> bool {
    let mut start = Vec::new();
    let mut read = || fs::File::open(path)?.take(64).read_to_end(&mut start);
    let is_read = path.is_file() && read().is_ok();
    let text = String::from_utf8_lossy(&start);
    let member = text.trim_start().strip_prefix('{').map(str::trim_start);
    is_read && member.is_some_and(|member| member.starts_with("\"format\""))
}

/// Reads a file written by the command `baseline`.
pub(crate) fn read_baseline(path: &Path) -> Result<Baseline, Fault> {
    // Standard input can be read only once, as a trace.
    if path.as_os_str() == "-" {
        return Err(Fault::Usage("cannot read a baseline from standard input: expected a file".to_owned()));
    }
    let bytes = input::bytes(path).map_err(|error| Fault::Failed(cannot_read(path, &error)))?;
    Baseline::from_json(&bytes).map_err(|error| Fault::Failed(format!("cannot read {}: {error}", path.display())))
}
