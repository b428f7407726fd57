//! Tests in which Perfetto's trace processor, the Firefox Profiler, pprof and inferno read sampled stacks.

use crate::support::{
    downloads, eventually, missing,
    readers::{readers, run},
};
use kernspan::{
    Chrome, Exporter, Perfetto, Stacks, Trace,
    analysis::Analysis,
    export::{Firefox, Pprof},
    trace::{StackFrame, sample::stacks_trace},
};
use serde_json::Value as Json;
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    process::{Child, Command},
};
use tempfile::TempDir;

/// The file that an exporter writes for a trace.
fn file(mut exporter: impl Exporter, trace: &Trace, ending: &str) -> String {
    let files = exporter.export(&Analysis::of(trace)).unwrap();
    let files: Vec<_> = files.iter().map(|file| file.to_str().unwrap()).collect();
    (*files.iter().find(|file| file.ends_with(ending)).unwrap()).to_owned()
}

/// The number of samples on the CPU of each stack of functions, outermost first, by thread.
fn stacks(trace: &Trace) -> BTreeMap<(String, Vec<String>), u64> {
    let mut stacks = BTreeMap::new();
    for sample in trace.stack_samples().filter(|sample| !sample.is_waiting()) {
        let mut functions: Vec<_> = sample.stack().map(|frame| frame.function().to_owned()).collect();
        functions.reverse();
        *stacks.entry((sample.track().thread_name().to_owned(), functions)).or_default() += 1;
    }
    stacks
}

#[test]
fn perfetto_has_the_stacks_of_each_thread() {
    let Some((python, node)) = readers() else { return };
    let (trace, folder) = (stacks_trace(), tempfile::tempdir().unwrap());
    let pftrace = file(Perfetto::to_dir(folder.path()), &trace, ".pftrace");
    let queries = [
        "with recursive stack(sample, depth, callsite) as (
           select id, 0, callsite_id from perf_sample where callsite_id is not null
           union all
           select sample, stack.depth + 1, parent_id from stack join stack_profile_callsite c on c.id = callsite
           where parent_id is not null)
         select sample, stack.depth depth, f.name function, m.name library, thread.name thread from stack
         join stack_profile_callsite c on c.id = callsite join stack_profile_frame f on f.id = c.frame_id
         join stack_profile_mapping m on m.id = f.mapping join perf_sample p on p.id = sample
         join thread using (utid) order by sample, depth desc",
        "select count(*) n, sum(callsite_id is null) without, sum(unwind_error is not null) truncated, min(ts) first
         from perf_sample",
    ];
    let mut arguments = vec![node.to_str().unwrap(), &pftrace];
    arguments.extend(queries);
    let answers = run(python, "perfetto_sql.py", &arguments);
    let mut samples: BTreeMap<u64, (String, Vec<String>)> = BTreeMap::new();
    for row in answers[0].as_array().unwrap() {
        let text = |key: &str| row[key].as_str().unwrap().to_owned();
        let sample = samples.entry(row["sample"].as_u64().unwrap()).or_insert((text("thread"), Vec::new()));
        sample.1.push(text("function"));
    }
    let mut found = BTreeMap::new();
    samples.into_values().for_each(|sample| *found.entry(sample).or_insert(0) += 1);
    let mut expected = stacks(&trace);
    expected.retain(|(_, functions), _| !functions.is_empty());
    assert_eq!(found, expected);
    let libraries: Vec<_> = answers[0].as_array().unwrap().iter().map(|row| row["library"].as_str().unwrap()).collect();
    assert!(libraries.iter().any(|library| library.ends_with("libcuda.so.1")), "{libraries:?}");
    let counts = &answers[1][0];
    let on_cpu = || trace.stack_samples().filter(|sample| !sample.is_waiting());
    assert_eq!(counts["n"], on_cpu().count());
    assert_eq!(counts["without"], on_cpu().filter(|sample| sample.stack().next().is_none()).count());
    assert_eq!(counts["truncated"], on_cpu().filter(|sample| sample.is_truncated()).count());
    assert_eq!(counts["first"], on_cpu().next().unwrap().at().as_unix_nanos());
}

/// Perfetto's importer of JSON leaves samples out, and finds no error in them.
#[test]
fn perfetto_opens_json_with_samples() {
    let Some((python, node)) = readers() else { return };
    let (trace, folder) = (stacks_trace(), tempfile::tempdir().unwrap());
    let json = file(Chrome::to_dir(folder.path()), &trace, ".json");
    let query = "select count(*) n from slice where category = 'cpu_op'";
    let answers = run(python, "perfetto_sql.py", &[node.to_str().unwrap(), &json, query]);
    assert_eq!(answers[0][0]["n"], trace.spans().len());
}

/// The Firefox Profiler's own command line: the code of profiler.firefox.com, without its pages.
const FIREFOX_PROFILER: &str = "@firefox-devtools/profiler-cli@0.10.0";

/// Returns a way to ask the Firefox Profiler about a file, until it is dropped; `None` without npm.
fn firefox_profiler(file: &str) -> Option<FirefoxProfiler> {
    let (_, node) = readers()?;
    let installed = downloads::folder("firefox-profiler", FIREFOX_PROFILER.as_bytes(), |folder| {
        let mut npm = Command::new("npm");
        npm.args(["install", "--silent", "--no-audit", "--no-fund", "--prefix"]).arg(folder).arg(FIREFOX_PROFILER);
        let output = npm.output().ok()?;
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Some(())
    });
    let Some(installed) = installed else {
        missing("no npm: the Firefox Profiler does NOT check the exports");
        return None;
    };
    let program = installed.join("node_modules/@firefox-devtools/profiler-cli/dist/profiler-cli.js");
    let sessions = tempfile::tempdir().unwrap();
    let mut profiler = Command::new(node);
    // It would ask a server for the names of functions.
    profiler.env("PROFILER_CLI_NO_SYMBOLICATE", "1").env("PROFILER_CLI_SESSION_DIR", sessions.path());
    // As its own command `load` starts it, which gives up after half a second on a busy machine.
    let loaded = profiler.arg(&program).args(["--daemon", file, "--session", "test"]).spawn().unwrap();
    let profiler = FirefoxProfiler { node, program, sessions, loaded };
    // Whoever asks before this last file of a session is there removes the socket that the process has just made.
    let session = profiler.sessions.path().join("current.txt");
    eventually("the profiler listens", || session.exists().then_some(()));
    eventually("the profile is loaded", || profiler.ask(&["thread", "list"]));
    Some(profiler)
}

struct FirefoxProfiler {
    node: &'static Path,
    program: PathBuf,
    /// Where the process that has loaded the file can be reached.
    sessions: TempDir,
    loaded: Child,
}

impl FirefoxProfiler {
    fn ask(&self, question: &[&str]) -> Option<Json> {
        let mut command = Command::new(self.node);
        command.env("PROFILER_CLI_SESSION_DIR", self.sessions.path()).arg(&self.program).args(question);
        let output = command.args(["--session", "test", "--json"]).output().unwrap();
        output.status.success().then(|| serde_json::from_slice(&output.stdout).unwrap())
    }
}

impl Drop for FirefoxProfiler {
    fn drop(&mut self) {
        let _ = self.loaded.kill();
        let _ = self.loaded.wait();
    }
}

#[test]
fn the_firefox_profiler_has_the_time_of_each_function_and_the_spans_as_markers() {
    let (trace, folder) = (stacks_trace(), tempfile::tempdir().unwrap());
    let Some(profiler) = firefox_profiler(&file(Firefox::to_dir(folder.path()), &trace, ".json")) else { return };
    // By thread and function: the time of its own, and with the functions that it calls.
    let mut expected: BTreeMap<(String, String), [f64; 2]> = BTreeMap::new();
    for sample in trace.stack_samples().filter(|sample| !sample.is_waiting()) {
        let millis = sample.duration().as_secs_f64() * 1e3;
        let functions: Vec<_> = sample.stack().map(StackFrame::function).collect();
        for (index, function) in functions.iter().enumerate().filter(|(at, it)| !functions[..*at].contains(it)) {
            let key = (sample.track().thread_name().to_owned(), (*function).to_owned());
            let times = expected.entry(key).or_default();
            times[0] += if index == 0 { millis } else { 0.0 };
            times[1] += millis;
        }
    }
    let text = |value: &Json| value.as_str().unwrap().to_owned();
    let threads = profiler.ask(&["thread", "list"]).unwrap();
    let mut found = BTreeMap::new();
    let mut markers = BTreeMap::new();
    for thread in threads["threads"].as_array().unwrap() {
        let handle = text(&thread["threadHandle"]);
        let of_thread = |what| profiler.ask(&["thread", what, "--limit", "0", "--thread", &handle]).unwrap();
        for function in of_thread("functions")["functions"].as_array().unwrap() {
            let millis = |key: &str| function[key].as_f64().unwrap();
            let times = [millis("selfSamples"), millis("totalSamples")];
            found.insert((text(&thread["name"]), text(&function["name"])), times);
        }
        for group in of_thread("markers")["byType"].as_array().unwrap() {
            *markers.entry(text(&group["markerName"])).or_insert(0) += group["count"].as_u64().unwrap();
        }
    }
    for (key, times) in &expected {
        let found = found.get(key).unwrap_or_else(|| panic!("{key:?} in {found:?}"));
        assert!(times.iter().zip(found).all(|(it, found)| (it - found).abs() < 1e-6), "{key:?}: {times:?}, {found:?}");
    }
    for span in trace.spans() {
        let spans = trace.spans().filter(|other| other.name() == span.name()).count() as u64;
        assert!(markers.get(span.name()).is_some_and(|count| *count >= spans), "{} in {markers:?}", span.name());
    }
}

#[test]
fn pprof_has_the_time_of_each_function_and_span() {
    let (trace, folder) = (stacks_trace(), tempfile::tempdir().unwrap());
    let profile = file(Pprof::to_dir(folder.path()), &trace, ".pb.gz");
    let pprof = |arguments: &[&str]| {
        let output = Command::new("go").args(["tool", "pprof"]).args(arguments).arg(&profile).output().ok()?;
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Some(String::from_utf8(output.stdout).unwrap())
    };
    let Some(top) = pprof(&["-top", "-unit=ns", "-nodecount=100", "-nodefraction=0"]) else {
        return missing("no Go: pprof does NOT check the exports");
    };
    // Its own time, its share, the sum of shares, the total time, its share, the name.
    let row = |name: &str| {
        let line = top.lines().find(|line| line.trim_end().ends_with(name)).unwrap_or_else(|| panic!("{name}: {top}"));
        let fields: Vec<_> = line.split_whitespace().collect();
        (fields[0].to_owned(), fields[3].to_owned())
    };
    let time = |own: u64, total: u64| {
        let text = |nanos: u64| if nanos == 0 { "0".to_owned() } else { format!("{nanos}ns") };
        (text(own), text(total))
    };
    assert_eq!(row("train::grad::walk"), time(56_000, 56_000));
    assert_eq!(row("candle_core::tensor::Tensor::matmul"), time(0, 24_000));
    assert_eq!(row("train::main"), time(2_000, 118_000));
    let tags = pprof(&["-tags", "-unit=ns"]).unwrap();
    for tag in ["forward", "backward", "train_step > forward", "main", "device"] {
        assert!(tags.contains(tag), "{tag} in {tags}");
    }
    let lines = pprof(&["-top", "-unit=ns", "-lines", "-tagfocus=span=forward", "-nodefraction=0"]).unwrap();
    assert!(lines.contains("train::model::softmax src/model.rs:57"), "{lines}");
    assert!(!lines.contains("train::grad::walk"), "{lines}");
    let waiting = pprof(&["-top", "-unit=ns", "-sample_index=waiting", "-nodefraction=0"]).unwrap();
    assert!(waiting.contains("124000ns total"), "{waiting}");
    let rooted = pprof(&["-traces", "-unit=ns", "-tagroot=spans"]).unwrap();
    assert!(rooted.contains("train_step > forward"), "{rooted}");
}

#[test]
fn inferno_draws_functions_inside_spans() {
    let (trace, folder) = (stacks_trace(), tempfile::tempdir().unwrap());
    let folded = std::fs::read_to_string(file(Stacks::to_dir(folder.path()), &trace, ".cpu.folded")).unwrap();
    let mut graph = Vec::new();
    let mut options = inferno::flamegraph::Options::default();
    inferno::flamegraph::from_lines(&mut options, folded.lines(), &mut graph).unwrap();
    let graph = String::from_utf8(graph).unwrap();
    let functions = trace.stack_sampling().unwrap().frames().iter().map(StackFrame::function);
    for function in functions.filter(|function| function.starts_with("train::")).chain(["forward", "backward"]) {
        assert!(graph.contains(&format!("<title>{function} (")), "{function}");
    }
}
