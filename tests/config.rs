//! A real program that is driven by variables and files alone.

#![cfg(feature = "config")]

use kernspan::{Profiler, trace::Gpu};
use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};
use tracing_subscriber::prelude::*;

/// The number of steps that the program takes.
const STEPS: u32 = 20;

/// The program: not a test, but what the tests below run in another process.
#[test]
#[ignore = "run by the other tests"]
fn program() -> Result<(), kernspan::Error> {
    let before = threads();
    let (layer, profiler) = Profiler::from_env()?;
    println!("new threads: {}, {}", threads() - before, profiler.gpu() == Gpu::NotAsked);
    tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
        println!("spans: {}", !tracing::info_span!("probe").is_disabled());
        for _ in 0..STEPS {
            tracing::info_span!("train_step").in_scope(|| tracing::info_span!("forward").in_scope(|| ()));
            profiler.step();
        }
        println!("started: {}", profiler.start());
        #[cfg(all(feature = "control", unix))]
        println!("listens: {}", kernspan::control::Client::of_process(std::process::id()).is_ok());
    });
    let report = profiler.finish()?;
    println!("report: {report}");
    Ok(())
}

/// The number of threads of this process, where that is known.
fn threads() -> usize {
    fs::read_dir("/proc/self/task").map_or(0, Iterator::count)
}

/// Runs the program in a folder.
fn run(folder: &Path, variables: &[(&str, &str)]) -> Output {
    let mut command = Command::new(std::env::current_exe().unwrap());
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("KERNSPAN")) {
        command.env_remove(name);
    }
    command.args(["--ignored", "--exact", "program", "--nocapture"]).current_dir(folder);
    command.envs(variables.iter().copied()).output().unwrap()
}

/// Runs the program, which must succeed, and returns what it printed.
fn printed(folder: &Path, variables: &[(&str, &str)]) -> String {
    let output = run(folder, variables);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    text
}

/// Returns all files in a folder and its subfolders, in the order of their names.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { found.extend(files(&path)) } else { found.push(path) }
    }
    found.sort();
    found
}

fn ending(files: &[PathBuf], ending: &str) -> usize {
    files.iter().filter(|file| file.to_string_lossy().ends_with(ending)).count()
}

#[test]
fn variables_decide_what_is_recorded_and_where() {
    let folder = tempfile::tempdir().unwrap();
    let text = printed(
        folder.path(),
        &[
            ("KERNSPAN_SCHEDULE", "wait=1,warmup=1,active=2,repeat=3"),
            ("KERNSPAN_EXPORT", "chrome,perfetto:for perfetto"),
            ("KERNSPAN_ACTIVITIES", "cpu"),
            ("KERNSPAN_DIR", "out"),
        ],
    );
    assert!(text.contains("in 3 windows") && text.contains("spans: true"), "{text}");
    let runs: Vec<_> = fs::read_dir(folder.path().join("out")).unwrap().map(|entry| entry.unwrap().path()).collect();
    let [run] = &runs[..] else { panic!("{runs:?}") };
    assert!(run.file_name().unwrap().to_str().unwrap().starts_with("config-"), "{}", run.display());
    assert_eq!(ending(&files(run), ".pt.trace.json"), 3);
    assert_eq!(files(&folder.path().join("for perfetto")).len(), 3);
    assert_eq!(files(folder.path()).len(), 6);
}

#[test]
fn a_file_decides_and_variables_override_it() {
    let folder = tempfile::tempdir().unwrap();
    let yaml = "\
model: {layers: 3}
profiling:
  wait: 2
  warmup: 1
  active: 3
  repeat: 2
  activities: [cpu]
  with_stack: False
  record_shapes: True
  export: [chrome]
";
    fs::write(folder.path().join("train.yaml"), yaml).unwrap();
    let toml = "[profiling]\nsteps = '4..9'\nactivities = 'ProfilerActivity.CPU'\nexport = ['stacks', 'html']\n";
    fs::write(folder.path().join("train.toml"), toml).unwrap();
    let text = printed(folder.path(), &[("KERNSPAN_CONFIG", "train.yaml")]);
    assert!(text.contains("12 spans in 2 windows"), "{text}");
    let text = printed(folder.path(), &[("KERNSPAN_CONFIG", "train.yaml"), ("KERNSPAN_SCHEDULE", "active=1")]);
    assert!(text.contains("4 spans in 2 windows"), "{text}");
    let text = printed(folder.path(), &[("KERNSPAN_CONFIG", "train.toml")]);
    assert!(text.contains("10 spans in 1 window"), "{text}");
    let found = files(&folder.path().join("runs"));
    assert_eq!([".pt.trace.json", ".folded", ".html"].map(|name| ending(&found, name)), [4, 1, 1], "{found:?}");
}

#[test]
fn ranks_have_folders_of_their_own() {
    let folder = tempfile::tempdir().unwrap();
    for rank in ["0", "1"] {
        let variables = [("RANK", rank), ("WORLD_SIZE", "2"), ("KERNSPAN_RUN_ID", "7"), ("KERNSPAN_ACTIVITIES", "cpu")];
        printed(folder.path(), &variables);
    }
    let found = files(folder.path());
    for rank in ["rank_0", "rank_1"] {
        let of_rank = found.iter().filter(|file| file.parent().unwrap().ends_with(rank)).count();
        assert_eq!(of_rank, 2, "a trace and a page: {found:?}");
    }
    let runs = fs::read_dir(folder.path().join("runs")).unwrap().count();
    assert_eq!(runs, 1, "the ranks of a run share its folder");
}

#[test]
fn a_profiler_that_is_off_leaves_no_trace() {
    let off = "the profiler is off, and recorded nothing";
    for (variables, because) in [
        (&[][..], "no setting asks for it: set KERNSPAN=on"),
        (&[("KERNSPAN", "off"), ("KERNSPAN_SCHEDULE", "active=3")][..], "KERNSPAN=off"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let text = printed(folder.path(), variables);
        assert!(text.contains("new threads: 0, true\nspans: false\nstarted: false\n"), "{text}");
        assert!(text.contains(&format!("report: {off} ({because})\n\n")), "{text}");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }
    // It can fail: a profiler that is on has threads.
    let folder = tempfile::tempdir().unwrap();
    let text = printed(folder.path(), &[("KERNSPAN", "on"), ("KERNSPAN_ACTIVITIES", "cpu")]);
    assert!(!text.contains("new threads: 0") || threads() == 0, "{text}");
    assert_eq!(files(folder.path()).len(), 2, "a trace and a page");
}

#[test]
fn a_mistake_ends_the_program_with_its_place() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("train.yaml"), "profiling:\n  actve: 3\n").unwrap();
    let output = run(folder.path(), &[("KERNSPAN_CONFIG", "train.yaml")]);
    let text = String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout);
    assert!(!output.status.success());
    assert!(text.contains("train.yaml:2:3: unknown key `actve`: did you mean `active`?"), "{text}");
}

#[test]
fn the_files_of_old_windows_are_removed() {
    let folder = tempfile::tempdir().unwrap();
    let schedule = [("KERNSPAN_SCHEDULE", "wait=1,active=1"), ("KERNSPAN_ACTIVITIES", "cpu")];
    let export = ("KERNSPAN_EXPORT", "chrome:out,perfetto:out,tensorboard:out,html:out,stacks:out");
    let all = [schedule[0], schedule[1], export];
    let is_removable = |file: &&PathBuf| {
        let name = file.to_string_lossy();
        !name.ends_with(".html") && !name.contains(".tfevents.") && !name.ends_with("mine.pt.trace.json")
    };
    let out = folder.path().join("out");
    fs::create_dir_all(&out).unwrap();
    fs::write(out.join("mine.pt.trace.json"), vec![b' '; 1 << 20]).unwrap();
    printed(folder.path(), &all);
    let first = files(&out);
    let sizes = first.iter().filter(is_removable).map(|file| fs::metadata(file).unwrap().len());
    let of_a_run: u64 = sizes.sum();

    // The files of three windows of ten.
    let limit = of_a_run * 35 / 100;
    let text = printed(folder.path(), &[&all[..], &[("KERNSPAN_DISK_LIMIT_BYTES", &limit.to_string())]].concat());
    let second = files(&out);
    assert!(first.iter().all(|file| second.contains(file)), "files of another run are left alone");
    let new: Vec<_> = second.iter().filter(|file| !first.contains(file)).collect();
    let kept: Vec<_> = new.iter().copied().filter(is_removable).collect();
    assert_eq!(kept.len(), 3 * 4, "{kept:?}");
    assert_eq!(new.len(), kept.len() + 2, "the page and the events stay: {new:?}");
    assert!(kept.iter().map(|file| fs::metadata(file).unwrap().len()).sum::<u64>() <= limit);
    let profiles = fs::read_dir(out.join("plugins/profile")).unwrap().count();
    assert_eq!(profiles, 10 + 3, "empty folders of profiles are removed");
    assert!(text.contains("removed the files of the 7 oldest windows ("), "{text}");
    assert!(text.contains("wrote 3 Perfetto traces"), "{text}");

    // A limit that is less than one window: the last stays.
    let text = printed(folder.path(), &[&all[..], &[("KERNSPAN_DISK_LIMIT_BYTES", "1 B")]].concat());
    assert!(text.contains("removed the files of the 9 oldest windows (") && text.contains(".pftrace"), "{text}");
}

#[cfg(all(feature = "control", unix))]
#[test]
fn a_variable_lets_the_program_be_asked() {
    let folder = tempfile::tempdir().unwrap();
    let runtime = ("XDG_RUNTIME_DIR", folder.path().to_str().unwrap());
    let listens = |variables: &[(&str, &str)]| {
        let text = printed(folder.path(), &[&[runtime], variables].concat());
        text.contains("listens: true") && !text.contains("listens: false")
    };
    assert!(listens(&[("KERNSPAN_CONTROL", "1")]));
    assert!(listens(&[("KERNSPAN_CONTROL", "1"), ("KERNSPAN_FLIGHT_RECORDER", "5")]));
    assert!(!listens(&[("KERNSPAN", "on")]));
    assert!(!listens(&[("KERNSPAN", "off"), ("KERNSPAN_CONTROL", "1")]));
    assert!(!run(folder.path(), &[("KERNSPAN_FLIGHT_SLOW_STEP", "step_time > 1s")]).status.success());
}
