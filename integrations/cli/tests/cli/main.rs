//! Runs the real program on recorded files.

mod advise;
mod check;
mod config;
mod convert;
mod counters;
mod diff;
mod efficiency;
mod files;
mod hang;
mod html;
mod inputs;
#[cfg(unix)]
mod live;
mod memory;
mod ranks;
mod report;
mod runs;
mod stacks;
mod sweep;
mod tables;
#[cfg(unix)]
mod top;

use std::{
    ffi::OsStr,
    io::Write,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

/// The traces that PyTorch has recorded, each with the rows of its table.
const TORCH: [&str; 5] = ["convolution-shapes", "graph", "perceptron-stack", "transformer-shapes", "transformer"];
/// The windows that kernspan has recorded.
const WINDOWS: [&str; 5] = ["burn-first", "burn", "calls", "candle", "training"];

/// A run of the program.
struct Run {
    code: i32,
    out: String,
    err: String,
}

fn torch(name: &str) -> PathBuf {
    fixture(&format!("torch/{name}.pt.trace.json.gz"))
}

fn window(name: &str) -> PathBuf {
    fixture(&format!("gpu/{name}.kernspan"))
}

fn fixture(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures").join(path)
}

fn command(arguments: &[impl AsRef<OsStr>]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kernspan"));
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Runs the program with arguments in one text, and files.
fn run(arguments: &str, files: &[&Path]) -> Run {
    let arguments = arguments.split_whitespace().map(OsStr::new);
    let arguments: Vec<_> = arguments.chain(files.iter().map(|file| file.as_os_str())).collect();
    Run::of(command(&arguments).output().unwrap())
}

/// Runs the program, which must end well and say nothing on standard error. Returns what it printed.
#[track_caller]
fn printed(arguments: &str, files: &[&Path]) -> String {
    let run = run(arguments, files);
    assert_eq!((run.code, run.err.as_str()), (0, ""), "{arguments}");
    run.out
}

/// Runs the program, which must end well, print nothing, and say only what it wrote.
#[track_caller]
fn written(arguments: &str, files: &[&Path]) {
    let run = run(arguments, files);
    assert_eq!((run.code, run.out.as_str()), (0, ""), "{arguments}: {}", run.err);
    assert!(run.err.starts_with("kernspan: wrote ") && run.err.lines().count() == 1, "{arguments}: {}", run.err);
}

#[track_caller]
fn printed_json(arguments: &str, files: &[&Path]) -> serde_json::Value {
    serde_json::from_str(&printed(arguments, files)).unwrap()
}

/// Runs the program with something on its standard input.
fn run_with_input(arguments: &str, input: &[u8]) -> Run {
    let arguments: Vec<_> = arguments.split_whitespace().collect();
    let mut child = command(&arguments).stdin(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(input).unwrap();
    Run::of(child.wait_with_output().unwrap())
}

/// Compares a text with a golden file, or writes it anew.
#[track_caller]
fn assert_golden(name: &str, text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
    if std::env::var_os("KERNSPAN_BLESS").is_some() {
        std::fs::write(&path, text).unwrap();
    }
    let golden = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(text, golden, "{name} has changed: if that is right, run with KERNSPAN_BLESS=1");
}

impl Run {
    fn of(output: Output) -> Self {
        let text = |bytes| String::from_utf8(bytes).unwrap();
        Self { code: output.status.code().unwrap(), out: text(output.stdout), err: text(output.stderr) }
    }
}
