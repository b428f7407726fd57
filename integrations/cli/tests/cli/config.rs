//! Settings of profilers: checked, explained, and given to a program that is run.

use crate::{Run, assert_golden, command};
use kernspan::Profiler;
use std::{
    fs,
    io::{BufRead, BufReader},
    path::Path,
    process::Command,
};
use tracing_subscriber::prelude::*;

/// The program that is run: not a test.
#[test]
#[ignore = "run by the other tests"]
fn program() -> Result<(), kernspan::Error> {
    let (layer, profiler) = Profiler::from_env()?;
    tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
        for _ in 0..20 {
            tracing::info_span!("train_step").in_scope(|| ());
            profiler.step();
        }
    });
    match std::env::var_os("PRINTS") {
        Some(_) => profiler.finish_and_print()?,
        None => profiler.finish()?,
    };
    println!("trained");
    match std::env::var("EXIT") {
        Ok(code) if code == "killed" => std::process::abort(),
        Ok(code) => std::process::exit(code.parse().unwrap()),
        Err(_) => Ok(()),
    }
}

fn in_folder(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = command(arguments);
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("KERNSPAN")) {
        command.env_remove(name);
    }
    command.current_dir(folder);
    command
}

/// Runs the program with options of `kernspan run`.
fn run(folder: &Path, options: &str, variables: &[(&str, &str)]) -> Run {
    let program = std::env::current_exe().unwrap();
    let program = [program.to_str().unwrap(), "--ignored", "--exact", "config::program", "--nocapture"];
    let arguments: Vec<_> =
        ["run"].into_iter().chain(options.split_whitespace()).chain(["--"]).chain(program).collect();
    Run::of(in_folder(folder, &arguments).envs(variables.iter().copied()).output().unwrap())
}

#[test]
fn a_program_runs_with_these_settings() {
    let folder = tempfile::tempdir().unwrap();
    let options = "--schedule wait=1,active=2,repeat=3 --export chrome,stacks --activities cpu --dir out";
    let run = run(folder.path(), options, &[]);
    assert_eq!(run.code, 0, "{}", run.err);
    assert!(
        run.out.contains("trained\n") && !run.out.contains("train_step"),
        "the output is the program's: {}",
        run.out
    );
    assert!(run.err.contains("train_step") && run.err.contains("6 spans in 3 windows"), "{}", run.err);
    let wrote = run.err.lines().filter(|line| line.starts_with("kernspan: wrote out/cli-")).count();
    assert_eq!(wrote, 6, "{}", run.err);

    let run = self::run(folder.path(), "--schedule steps=3..4 --activities cpu --no-report", &[]);
    assert!(run.code == 0 && !run.err.contains("train_step"), "{}", run.err);
    let endings = [".pt.trace.json", ".html"].map(|ending| run.err.matches(&format!("{ending}\n")).count());
    assert_eq!(endings, [1, 1], "only new files: {}", run.err);
}

#[test]
fn the_exit_status_is_that_of_the_program() {
    let folder = tempfile::tempdir().unwrap();
    for (exit, code) in [("0", 0), ("1", 1), ("42", 42), ("killed", 128 + 6)] {
        let run = run(folder.path(), "--activities cpu", &[("EXIT", exit)]);
        assert_eq!(run.code, code, "{}", run.err);
        assert!(run.err.contains("kernspan: wrote runs/cli-"), "{}", run.err);
    }
    let arguments = ["run", "--", "./no-such-program"];
    let run = Run::of(in_folder(folder.path(), &arguments).output().unwrap());
    assert_eq!(
        (run.code, run.err.as_str()),
        (1, "kernspan: cannot run ./no-such-program: no such file or directory\n")
    );
}

#[test]
fn a_program_that_records_nothing_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    let run = run(folder.path(), "--schedule steps=100..110 --export chrome --activities cpu", &[]);
    let problem = "kernspan: the program wrote nothing to runs: it must build its profiler with Profiler::from_env(), \
                   and reach the first recorded step\n";
    assert_eq!((run.code, run.err.contains(problem)), (0, true), "{}", run.err);
}

#[test]
fn mistakes_are_found_before_the_program_runs() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("train.yaml"), "profiling: {actve: 3}\n").unwrap();
    for (options, variables, problem) in [
        ("--schedule wiat=1", &[][..], "--schedule: unknown key `wiat`: did you mean `wait`?"),
        ("--export chrom", &[], "--export: unknown format `chrom`: did you mean `chrome`?"),
        ("", &[("KERNSPAN_EXPORT", "chrom")], "KERNSPAN_EXPORT: unknown format `chrom`: did you mean `chrome`?"),
        ("--config train.yaml", &[], "train.yaml:1:13: unknown key `actve`: did you mean `active`?"),
    ] {
        let run = run(folder.path(), options, variables);
        assert_eq!((run.code, run.out.as_str()), (2, ""), "{options}");
        assert!(run.err.ends_with(&format!("{problem}\n")), "{}", run.err);
    }
}

#[test]
fn settings_are_checked_and_explained() {
    let folder = tempfile::tempdir().unwrap();
    let files = [
        ("good.yaml", "model: {}\nprofiling:\n  wait: 5\n  warmup: 1\n  active: 3\n  export: [html]\n"),
        ("bad.toml", "[profiling]\nactive = 'three'\n"),
        ("empty.yaml", "profiling:\n"),
    ];
    files.iter().for_each(|(name, text)| fs::write(folder.path().join(name), text).unwrap());
    let check = in_folder(folder.path(), &["config", "check", "good.yaml", "bad.toml", "empty.yaml"]);
    let check = Run::of({ check }.output().unwrap());
    let good = "good.yaml: valid; schedule: wait 5, warmup 1, active 3, repeat until the end\n";
    assert_eq!((check.code, check.out), (1, format!("{good}empty.yaml: valid; records nothing\n")));
    assert_eq!(check.err, "kernspan: bad.toml:2:10: `active`: expected a whole number, found \"three\"\n");

    let mut explain = in_folder(folder.path(), &["config", "explain", "good.yaml", "--width", "120"]);
    let explain = explain.env("KERNSPAN_SCHEDULE", "active=2").env("KERNSPAN_ACTIVITIES", "cpu,cuda,memory");
    let explained = Run::of(explain.output().unwrap());
    assert_eq!((explained.code, explained.err.as_str()), (0, ""));
    assert_golden("config_explain_120.txt", &explained.out);
    let json = explain.arg("--json").output().unwrap().stdout;
    let json: serde_json::Value = serde_json::from_slice(&json).unwrap();
    let from = json["settings"].as_array().unwrap().iter().find(|row| row["key"] == "wait").unwrap();
    assert_eq!(from["from"], "good.yaml:3:3");
    let nothing = Run::of(in_folder(folder.path(), &["config", "explain"]).output().unwrap());
    assert!(nothing.out.ends_with("records nothing: set KERNSPAN=on, or any other setting\n"), "{}", nothing.out);
}

#[test]
fn the_table_is_printed_once() {
    let folder = tempfile::tempdir().unwrap();
    let options = "--schedule wait=1,active=2,repeat=1 --export chrome --activities cpu --dir out";
    for (variables, by_program) in [(&[][..], false), (&[("PRINTS", "1")], true)] {
        let run = run(folder.path(), options, variables);
        assert_eq!(run.code, 0, "{}", run.err);
        assert_eq!([&run.out, &run.err].map(|text| text.contains("train_step")), [by_program, !by_program]);
        assert!(run.err.contains("wrote out/"), "{}", run.err);
    }
}

#[cfg(unix)]
#[test]
fn signals_are_for_the_program() {
    let folder = tempfile::tempdir().unwrap();
    let script = "trap 'exit 7' TERM; echo ready; while :; do sleep 0.05; done";
    let mut running = in_folder(folder.path(), &["run", "--", "sh", "-c", script]).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(running.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n");
    // A terminal would have sent the first to both.
    for signal in ["-INT", "-TERM"] {
        let status = Command::new("kill").args([signal, &running.id().to_string()]).status().unwrap();
        assert!(status.success());
    }
    assert_eq!(running.wait().unwrap().code(), Some(7));
}
