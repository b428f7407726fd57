//! Files that can be read, and files that cannot.

use crate::{command, printed, run, run_with_input, torch, window, written};
use std::{fs, io::Read, path::Path, process::Stdio};

/// The decompressed text of a trace.
fn plain(path: &Path) -> Vec<u8> {
    let mut plain = Vec::new();
    flate2::read::GzDecoder::new(fs::File::open(path).unwrap()).read_to_end(&mut plain).unwrap();
    plain
}

#[test]
fn files_that_cannot_be_read_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let (json, recorded) = (plain(&torch("graph")), fs::read(window("candle")).unwrap());
    let packed = fs::read(torch("graph")).unwrap();
    let binary: Vec<_> = (0..1000_u32).map(|index| (index * 7 % 251) as u8).collect();
    for (name, bytes) in [
        ("truncated.json", &json[..json.len() / 2]),
        ("truncated.json.gz", &packed[..packed.len() / 2]),
        ("truncated.kernspan", &recorded[..recorded.len() / 2]),
        ("empty.json", &[]),
        ("binary.json", &binary),
        ("binary.kernspan", &binary),
        ("other.json", br#"{"weights": [1, 2]}"#),
        ("list.json", br#"[{"key": "aten::mm"}]"#),
    ] {
        let file = folder.path().join(name);
        fs::write(&file, bytes).unwrap();
        let new = folder.path().join("new.json");
        for arguments in ["report", "report --json", "steps", "top", "flame -o x.svg"] {
            let run = run(arguments, &[&file]);
            assert_eq!((run.code, run.out.as_str()), (1, ""), "{arguments} {name}");
            assert!(run.err.contains(name) && run.err.starts_with("kernspan: "), "{arguments} {name}: {}", run.err);
            assert_eq!(run.err.lines().count(), 1, "{arguments} {name}: {}", run.err);
        }
        if name != "list.json" {
            let run = run("convert", &[&file, &new]);
            assert!(run.code == 1 && run.err.contains(name) && !new.exists(), "{name}: {}", run.err);
            let run = crate::run("merge", &[&new, &file]);
            assert!(run.code == 1 && run.err.contains(name) && !new.exists(), "{name}: {}", run.err);
        }
    }
    let left: Vec<_> = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(!left.iter().any(|name| name.to_string_lossy().starts_with('.')), "nothing unfinished stays: {left:?}");
    let missing = run("report", &[&folder.path().join("missing.json")]);
    assert!(missing.code == 1 && missing.err.ends_with("missing.json: no such file or directory\n"), "{}", missing.err);
}

#[test]
fn the_other_files_are_read_all_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let broken = folder.path().join("broken.json");
    fs::write(&broken, "{").unwrap();
    let run = run("report", &[&broken, &window("candle")]);
    assert_eq!(run.code, 1);
    assert_eq!(run.out, printed("report", &[&window("candle")]));
    assert!(run.err.contains("broken.json: not a JSON trace: "), "{}", run.err);
}

#[test]
fn standard_input_is_a_file() {
    for file in [torch("transformer"), window("candle")] {
        let run = run_with_input("report -", &fs::read(&file).unwrap());
        assert_eq!((run.code, run.err.as_str()), (0, ""));
        assert_eq!(run.out, printed("report", &[&file]));
    }
    let empty = run_with_input("report -", b"");
    assert!(empty.code == 1 && empty.err.contains("standard input: "), "{}", empty.err);
}

#[test]
fn folders_have_traces_and_other_files() {
    let folder = tempfile::tempdir().unwrap();
    let inner = folder.path().join("inner");
    fs::create_dir(&inner).unwrap();
    let nothing = |arguments: &str, why: &str| {
        let run = run(arguments, &[folder.path()]);
        let message = format!("kernspan: no readable traces in {}: found {why}\n", folder.path().display());
        assert_eq!((run.code, run.out.as_str(), run.err), (1, "", message), "{arguments}");
    };
    nothing("report", "no files; expected .json, .json.gz or .kernspan");
    fs::write(folder.path().join("notes.txt"), "x").unwrap();
    nothing("report", "1 .txt; expected .json, .json.gz or .kernspan");
    for name in
        ["1.pftrace", "2.pftrace", "run.html", "1.folded", "1.gpu.folded", "host.xplane.pb", "events.tfevents.7.0"]
    {
        fs::write(folder.path().join(name), "x").unwrap();
    }
    let merged = format!("merge {}", folder.path().join("new.json").display());
    let chrome = format!("add .export(Chrome::to_dir({:?})) to the profiler", folder.path().to_str().unwrap());
    for arguments in ["report", "steps --recursive", "baseline", &merged] {
        nothing(arguments, &format!("2 .folded, 1 .html, 2 .pftrace, 1 .tfevents, 1 .txt, 1 .xplane.pb; {chrome}"));
    }

    fs::copy(window("burn"), inner.join("c.kernspan")).unwrap();
    let counts = "2 .folded, 1 .html, 2 .pftrace, 1 .tfevents, 1 .txt, 1 .xplane.pb";
    nothing("report", &format!("{counts}; add --recursive to search its subfolders"));

    fs::copy(window("candle"), folder.path().join("a.kernspan")).unwrap();
    fs::copy(torch("graph"), folder.path().join("b.json.gz")).unwrap();
    let flat = printed("report --all", &[folder.path()]);
    assert_eq!(flat, printed("report", &[&window("candle"), &torch("graph")]));
    let deep = printed("report --all --recursive", &[folder.path()]);
    assert_eq!(deep, printed("report", &[&window("candle"), &window("burn"), &torch("graph")]));
}

#[test]
fn a_window_counts_once() {
    let folder = tempfile::tempdir().unwrap();
    let copy = folder.path().join("copy.json");
    written("convert", &[&window("candle"), &copy]);
    let run = run("report", &[&window("candle"), &copy]);
    assert_eq!((run.code, run.out), (0, printed("report", &[&window("candle")])));
    assert!(run.err.contains("copy.json: same window as "), "{}", run.err);
}

#[test]
fn a_reader_that_has_seen_enough_is_no_failure() {
    for arguments in ["report", "report --json", "report --torch", "completions", "steps --format csv"] {
        let file = torch("transformer");
        let arguments: Vec<_> = arguments.split_whitespace().map(std::ffi::OsStr::new).collect();
        let last = if arguments[0] == "completions" { "bash".as_ref() } else { file.as_os_str() };
        let mut child = command(&[&arguments[..], &[last]].concat()).spawn().unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        assert_eq!((output.status.code(), output.stderr), (Some(0), Vec::new()), "{arguments:?}");
    }
}

#[test]
fn there_are_colours_on_terminals_only() {
    let coloured = |variables: &[(&str, &str)]| {
        let mut command = command(&["report".as_ref(), window("candle").as_os_str()]);
        command.env_remove("NO_COLOR").envs(variables.iter().copied()).stderr(Stdio::null());
        String::from_utf8(command.output().unwrap().stdout).unwrap().contains('\x1b')
    };
    assert!(!coloured(&[]));
    assert!(coloured(&[("CLICOLOR_FORCE", "1")]), "somebody wants them all the same");
    assert!(!coloured(&[("NO_COLOR", "1")]));
}

#[test]
fn wrong_usage_has_a_status_of_its_own() {
    for arguments in ["", "report", "report --sort nothing x", "unknown", "flame x", "convert x y.png", "merge y.png x"]
    {
        let run = run(arguments, &[]);
        assert_eq!((run.code, run.out.as_str()), (2, ""), "{arguments}");
        assert!(!run.err.is_empty(), "{arguments}");
    }
    for command in ["report", "steps", "top", "advise", "diff"] {
        let run = run(&format!("{command} --limit 0"), &[&window("candle")]);
        assert_eq!((run.code, run.out.as_str()), (2, ""), "{command}");
        assert!(run.err.contains("expected a number of at least 1"), "{command}: {}", run.err);
    }
    for arguments in ["--help", "report --help", "steps --help", "convert --help", "merge --help", "completions zsh"] {
        assert!(!printed(arguments, &[]).is_empty());
    }
    assert!(printed("--help", &[]).contains("Exit status:"));
}
