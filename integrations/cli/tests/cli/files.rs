//! Files that are written: whole or not at all, and never in place of a file that is read.

use crate::{Run, command, fixture, run, torch, window};
use std::{
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
    process::{Command, ExitStatus},
    thread,
    time::Instant,
};

/// The arguments of each command that writes a file: those before its name, and those after it.
fn commands() -> Vec<(&'static str, Vec<PathBuf>, &'static str, Vec<PathBuf>)> {
    // Large enough that no file of it fits into the limit.
    let (trace, sides) =
        (torch("convolution-shapes"), ["repaired", "faulty"].map(|it| fixture(&format!("faults/input-{it}.kernspan"))));
    let recorded = sides.clone().map(|side| PathBuf::from(format!("1={}", side.display()))).to_vec();
    vec![
        ("convert", vec![trace.clone()], "new.json", vec![]),
        ("convert", vec![trace.clone()], "new.json.gz", vec![]),
        ("convert", vec![trace.clone()], "new.pftrace", vec![]),
        ("convert", vec![trace.clone()], "new.folded", vec![]),
        ("convert", vec![trace.clone()], "new.gpu.folded", vec![]),
        ("merge", vec![], "new.json", vec![trace.clone()]),
        ("merge", vec![], "new.json.gz", vec![trace.clone()]),
        ("baseline -o", vec![], "new.json", vec![trace.clone()]),
        ("flame -o", vec![], "new.svg", vec![trace.clone()]),
        ("report --html", vec![], "new.html", vec![trace]),
        ("diff --html", vec![], "new.html", sides.to_vec()),
        ("sweep --of BATCH --html", vec![], "new.html", recorded),
    ]
}

/// Returns the arguments of a command, all in one list.
fn arguments(command: &str, before: &[PathBuf], output: &Path, after: &[PathBuf]) -> Vec<OsString> {
    let words = command.split_whitespace().map(OsString::from);
    let paths = before.iter().map(PathBuf::as_path).chain([output]).chain(after.iter().map(PathBuf::as_path));
    words.chain(paths.map(OsString::from)).collect()
}

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<_> =
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// Returns the program, where no file can have more than 512 bytes. It gets an error then, or is killed in the middle
/// of writing.
fn limited(arguments: &[OsString], is_killed: bool) -> Command {
    let script =
        format!("{} ulimit -c 0; ulimit -f 1; exec \"$0\" \"$@\"", if is_killed { "" } else { "trap '' XFSZ;" });
    let mut command = Command::new("sh");
    command.args(["-c", &script, env!("CARGO_BIN_EXE_kernspan")]).args(arguments);
    command
}

/// Returns whether files have no name while they are written to this folder, so that nothing can be left of them.
fn has_unnamed_files(folder: &Path) -> bool {
    let mut is_unnamed = false;
    let list = |_: &mut _| {
        is_unnamed = names(folder).is_empty();
        Ok(())
    };
    kernspan::export::write_file(folder.join("probe"), list).unwrap();
    fs::remove_file(folder.join("probe")).unwrap();
    is_unnamed
}

#[test]
fn commands_say_what_they_wrote() {
    let folder = tempfile::tempdir().unwrap();
    for (command, before, name, after) in commands() {
        let new = folder.path().join(name);
        let run = Run::of(crate::command(&arguments(command, &before, &new, &after)).output().unwrap());
        assert_eq!((run.code, run.out.as_str()), (0, ""), "{command}: {}", run.err);
        // After that comes only what the new file does not have.
        let mut said = run.err.lines();
        let first = said.next().unwrap_or_default();
        assert!(first.starts_with(&format!("kernspan: wrote {}", new.display())), "{command}: {}", run.err);
        assert!(said.all(|line| line.contains(": not in the new file: ")), "{command}: {}", run.err);
        assert_eq!(names(folder.path()), [name], "{command}");
        fs::remove_file(new).unwrap();
    }
}

#[test]
fn a_full_disk_leaves_the_old_file_and_is_named() {
    let folder = tempfile::tempdir().unwrap();
    for (command, before, name, after) in commands() {
        let new = folder.path().join(name);
        fs::write(&new, "old").unwrap();
        let run = Run::of(limited(&arguments(command, &before, &new, &after), false).output().unwrap());
        let message = format!("kernspan: cannot write {}: file too large\n", new.display());
        assert_eq!((run.code, run.err), (1, message), "{command}");
        assert_eq!(fs::read_to_string(&new).unwrap(), "old", "{command}");
        assert_eq!(names(folder.path()), [name], "{command}");
        fs::remove_file(new).unwrap();
    }
    // A folder is gone, or empty if it was there before.
    let [new, old] = ["new", "old"].map(|name| folder.path().join(name));
    fs::create_dir(&old).unwrap();
    for to in [&new, &old] {
        let run = Run::of(limited(&["convert".into(), window("candle").into(), to.into()], false).output().unwrap());
        assert_eq!((run.code, run.err), (1, format!("kernspan: cannot write {}: file too large\n", to.display())));
    }
    assert_eq!((names(folder.path()), names(&old)), (vec!["old".to_owned()], vec![]));
}

#[cfg(target_os = "linux")]
#[test]
fn special_files_are_written_to() {
    for (command, before, name, after) in commands().into_iter().filter(|(command, ..)| command.contains("-")) {
        let run = Run::of(command_to(command, &before, "/dev/full", &after).output().unwrap());
        let message = "kernspan: cannot write /dev/full: no space left on device\n";
        assert_eq!((run.code, run.err.as_str()), (1, message), "{command} {name}");
        let run = Run::of(command_to(command, &before, "/dev/null", &after).output().unwrap());
        assert_eq!(run.code, 0, "{command}: {}", run.err);
    }
    assert!(!fs::metadata("/dev/null").unwrap().is_file());
}

#[cfg(target_os = "linux")]
fn command_to(command: &str, before: &[PathBuf], to: &str, after: &[PathBuf]) -> Command {
    crate::command(&arguments(command, before, to.as_ref(), after))
}

#[cfg(unix)]
#[test]
fn a_process_that_is_killed_while_it_writes_leaves_the_old_file() {
    let folder = tempfile::tempdir().unwrap();
    let is_unnamed = has_unnamed_files(folder.path());
    for (command, before, name, after) in commands() {
        let new = folder.path().join(name);
        fs::write(&new, "old").unwrap();
        let arguments = arguments(command, &before, &new, &after);
        let status = limited(&arguments, true).output().unwrap().status;
        assert!(is_killed(status), "{command}: {status}");
        assert_eq!(fs::read_to_string(&new).unwrap(), "old", "{command}");
        assert!(!is_unnamed || names(folder.path()) == [name], "{command}: {:?}", names(folder.path()));
        let run = Run::of(crate::command(&arguments).output().unwrap());
        assert_eq!((run.code, names(folder.path())), (0, vec![name.to_owned()]), "the next one cleans up");
        fs::remove_file(new).unwrap();
    }
    let board = folder.path().join("board");
    let status = limited(&["convert".into(), window("candle").into(), board.into()], true).output().unwrap().status;
    assert!(is_killed(status));
    assert!(!is_unnamed || names(folder.path()).is_empty(), "{:?}", names(folder.path()));
}

/// Whether a process was killed by a signal, and not by itself.
#[cfg(unix)]
fn is_killed(status: ExitStatus) -> bool {
    std::os::unix::process::ExitStatusExt::signal(&status).is_some()
}

#[cfg(unix)]
#[test]
fn whenever_a_signal_comes_there_is_the_old_file_or_the_new_one() {
    let folder = tempfile::tempdir().unwrap();
    for (index, (command, before, name, after)) in commands().into_iter().enumerate() {
        let new = folder.path().join(name);
        let arguments = arguments(command, &before, &new, &after);
        let start = Instant::now();
        assert!(crate::command(&arguments).output().unwrap().status.success());
        let (took, whole) = (start.elapsed(), fs::read(&new).unwrap());
        for (turn, signal) in ["INT", "TERM", "KILL"].iter().enumerate() {
            fs::write(&new, "old").unwrap();
            let mut child = crate::command(&arguments).spawn().unwrap();
            // Any moment will do, and they are to differ.
            thread::sleep(took.mul_f64(((7 * index + 5 * turn) % 16) as f64 / 16.0));
            let kill = format!("kill -{signal} {}", child.id());
            Command::new("sh").args(["-c", &kill]).output().unwrap();
            child.wait().unwrap();
            let left = fs::read(&new).unwrap();
            assert!(left == b"old" || left == whole, "{signal} in {command}: {} bytes", left.len());
            // Between its two last steps a file has a temporary name, which the next run removes.
            let temporary = names(folder.path()).into_iter().filter(|left| left != name);
            assert!(temporary.into_iter().all(|left| left.ends_with(".kernspan.tmp")), "{signal} in {command}");
        }
        assert!(crate::command(&arguments).output().unwrap().status.success());
        assert_eq!(names(folder.path()), [name], "{command}");
        fs::remove_file(new).unwrap();
    }
}

#[cfg(unix)]
#[test]
fn a_file_that_is_read_is_not_written() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let [file, link, hard_link] = ["a.json", "link.json", "hard.json"].map(|name| folder.join(name));
    assert_eq!(run("convert", &[&window("candle"), &file]).code, 0);
    std::os::unix::fs::symlink("a.json", &link).unwrap();
    fs::hard_link(&file, &hard_link).unwrap();
    let before = fs::read(&file).unwrap();
    let other = torch("graph");
    let also_read = ["a.json", "./a.json", "link.json", "hard.json", "../NAME/a.json"];
    for output in also_read.map(|path| path.replace("NAME", folder.file_name().unwrap().to_str().unwrap())) {
        let other = other.display();
        for arguments in [
            format!("convert a.json {output}"),
            format!("merge {output} a.json"),
            format!("merge {output} {other} a.json"),
            format!("merge {output} ."),
            format!("baseline -o {output} a.json"),
            format!("flame -o {output} a.json"),
            format!("report --html {output} a.json"),
            format!("diff --html {output} {other} a.json"),
            format!("check --baseline {other} -o {output} a.json"),
            format!("check --baseline a.json -o {output} {other}"),
            format!("sweep --of BATCH --html {output} 1=a.json"),
        ] {
            let words: Vec<_> = arguments.split_whitespace().collect();
            let run = Run::of(command(&words).current_dir(folder).output().unwrap());
            assert_eq!((run.code, run.out.as_str()), (2, ""), "{arguments}: {}", run.err);
            let start = format!("kernspan: cannot write {output}: it is also read, as ");
            assert!(run.err.starts_with(&start), "{arguments}: {}", run.err);
            assert!(fs::read(&file).unwrap() == before && link.is_symlink(), "{arguments}");
        }
    }
    assert_eq!(names(folder), ["a.json", "hard.json", "link.json"]);
}

#[test]
fn a_sweep_does_not_copy_a_trace_to_itself() {
    let folder = tempfile::tempdir().unwrap();
    let program = "mkdir -p kept/B=1; cp $FIXTURE kept/B=1/a.kernspan";
    let arguments = ["sweep", "--var", "B=1", "--traces", "kept/B=1", "-o", "kept", "--", "sh", "-c", program];
    let mut command = command(&arguments);
    let trace = window("training").canonicalize().unwrap();
    let run = Run::of(command.current_dir(folder.path()).env("FIXTURE", &trace).output().unwrap());
    assert!(run.code == 2 && run.err.contains("cannot write kept/B=1/a.kernspan: it is also read"), "{}", run.err);
    assert_eq!(fs::read(folder.path().join("kept/B=1/a.kernspan")).unwrap(), fs::read(trace).unwrap());
}

#[cfg(unix)]
#[test]
fn a_new_file_has_the_permissions_of_the_old_one() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let new = folder.path().join("new.json");
    fs::write(&new, "old").unwrap();
    fs::set_permissions(&new, fs::Permissions::from_mode(0o604)).unwrap();
    assert_eq!(run("convert", &[&window("candle"), &new]).code, 0);
    assert_eq!(fs::metadata(new).unwrap().permissions().mode() & 0o777, 0o604);
}

#[cfg(target_os = "linux")]
#[test]
fn standard_input_is_a_file_that_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.json");
    crate::written("convert", &[&crate::window("candle"), &path]);
    let before = fs::read(&path).unwrap();
    let mut convert = crate::command(&[Path::new("convert"), Path::new("-"), &path]);
    let run = Run::of(convert.stdin(fs::File::open(&path).unwrap()).output().unwrap());
    assert!(run.code == 2 && run.err.contains("it is also read, as /dev/stdin"), "{}", run.err);
    assert_eq!(fs::read(&path).unwrap(), before);
}
