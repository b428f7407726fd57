use super::{UNTOUCHED, UnfinishedFile, is_of_host, remove_abandoned};
use crate::{
    file::{safe, write_first_free},
    trace::Metadata,
};
use std::{
    env,
    fs::{self, Permissions},
    io::{self, BufRead, BufReader, Read, Write},
    os::unix::fs::PermissionsExt,
    path::Path,
    process::{Child, Command, Stdio},
    time::SystemTime,
};

/// Returns the names in a folder, in order.
fn names(folder: &Path) -> Vec<String> {
    let names = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<_> = names.collect();
    names.sort();
    names
}

fn host() -> String {
    safe(&Metadata::of_this_process().host)
}

/// Writes a file of this host, of a few bytes.
fn write(folder: &Path, name: &str, content: impl FnOnce(&mut dyn Write) -> io::Result<()>) {
    write_first_free(|_| folder.join(format!("{}_{name}", host())), |out| content(out)).unwrap();
}

const FOLDER: &str = "KERNSPAN_TEST_UNFINISHED";
const UNNAMED: &str = "KERNSPAN_TEST_UNNAMED";

/// The process that is killed. Without the variable there is nothing to test.
#[test]
fn a_writer_that_blocks() {
    let Some(folder) = env::var_os(FOLDER) else { return };
    let block = |out: &mut dyn Write| {
        out.write_all(&[0; 1 << 17])?;
        println!("writing");
        io::stdin().read_to_end(&mut Vec::new()).map(drop)
    };
    if env::var_os(UNNAMED).is_some() {
        return write(Path::new(&folder), "killed", block);
    }
    let mut unfinished = UnfinishedFile::create(&Path::new(&folder).join(format!("{}_killed", host())));
    block(unfinished.as_mut().unwrap().as_mut().unwrap().writer()).unwrap();
}

/// Starts the process, and returns when it has written half of its file.
fn start_writer(folder: &Path, variables: &[&str]) -> Child {
    let mut writer = Command::new(env::current_exe().unwrap())
        .args(["file::unfinished::tests::a_writer_that_blocks", "--exact", "--nocapture"])
        .env(FOLDER, folder)
        .envs(variables.iter().map(|name| (name, "1")))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let output = BufReader::new(writer.stdout.take().unwrap());
    assert!(output.lines().any(|line| line.unwrap().ends_with("writing")));
    writer
}

#[test]
fn a_file_of_a_killed_process_is_removed_by_the_next_one() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let mut writer = start_writer(folder, &[]);
    let unfinished = [format!("{}_killed.kernspan.tmp", host())];
    remove_abandoned(folder);
    assert_eq!(names(folder), unfinished, "its writer is alive");
    writer.kill().unwrap();
    writer.wait().unwrap();
    assert_eq!(names(folder), unfinished);
    write(folder, "next", |_| Ok(()));
    assert_eq!(names(folder), [format!("{}_next", host())]);
}

#[test]
fn nothing_is_left_of_an_unnamed_file() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    if UnfinishedFile::unnamed(folder).is_none() {
        println!("this file system has no files without names");
        return;
    }
    let mut writer = start_writer(folder, &[UNNAMED]);
    assert!(names(folder).is_empty());
    writer.kill().unwrap();
    writer.wait().unwrap();
    assert!(names(folder).is_empty());
}

#[test]
fn a_file_replaces_another() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("summary");
    let unfinished = [UnfinishedFile::temporary(folder.path()).ok(), UnfinishedFile::unnamed(folder.path())];
    for (index, mut unfinished) in unfinished.into_iter().flatten().enumerate() {
        fs::write(&path, "old").unwrap();
        write!(unfinished.writer(), "{index}").unwrap();
        let permissions = Permissions::from_mode(0o640);
        unfinished.replace(&path, Some(permissions.clone())).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), index.to_string());
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, permissions.mode());
        assert_eq!(names(folder.path()), ["summary"]);
    }
}

#[test]
fn files_of_others_are_left() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let old = SystemTime::now() - 2 * UNTOUCHED;
    let (host, other) = (host(), "another-machine_1.kernspan.tmp");
    let [mine, theirs] = [format!("{host}_1.json.tmp"), format!("{host}.tmp")];
    for name in [&*mine, &*theirs, other] {
        let file = fs::File::create(folder.join(name)).unwrap();
        file.set_modified(if name == other { SystemTime::now() } else { old }).unwrap();
    }
    fs::create_dir(folder.join(format!("{host}_folder.kernspan.tmp"))).unwrap();
    std::os::unix::fs::symlink(folder.join(&mine), folder.join(format!("{host}_link.kernspan.tmp"))).unwrap();
    let before = names(folder);
    remove_abandoned(folder);
    assert_eq!(names(folder), before);
    fs::File::options().write(true).open(folder.join(other)).unwrap().set_modified(old).unwrap();
    remove_abandoned(folder);
    assert_eq!(names(folder), before.into_iter().filter(|name| name != other).collect::<Vec<_>>());
}

#[test]
fn a_file_is_removed_if_it_is_not_finished() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace");
    let first = UnfinishedFile::create(&path).unwrap().unwrap();
    assert!(UnfinishedFile::create(&path).unwrap().is_none(), "it reserves the name");
    drop(first);
    assert!(names(folder.path()).is_empty());
    UnfinishedFile::create(&path).unwrap().unwrap().rename(&path).unwrap();
    assert_eq!(names(folder.path()), ["trace"]);
}

#[test]
fn names_begin_with_the_whole_host() {
    let is_of = |name: &str| is_of_host(name.as_ref(), "node-1");
    assert!(is_of("node-1_42.7.pftrace.kernspan.tmp") && is_of("node-1.xplane.pb.kernspan.tmp"));
    assert!(!is_of("node-12_42.7.pftrace.kernspan.tmp") && !is_of("another_42.7.kernspan.tmp"));
}
