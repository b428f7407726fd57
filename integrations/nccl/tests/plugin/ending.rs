//! Tests of processes that end without dropping the plugin.

use super::{Nvidia, calls};
use kernspan::Profiler;
use kernspan_nccl::Nccl;
use serde_json::Value;
use std::{
    io::{BufRead, BufReader, Read},
    os::unix::process::ExitStatusExt,
    path::Path,
    process::{Child, Command, ExitStatus, Stdio},
    ptr::null_mut,
};
use tracing_subscriber::prelude::*;

/// The variable that makes [`a_process_that_ends`] one: how it ends, and the folder of its file.
const CHILD: &str = "KERNSPAN_TEST_ENDS";

/// A process with a plugin that it does not drop. It ends as [`CHILD`] says.
#[test]
#[ignore = "other tests run it"]
fn a_process_that_ends() {
    let how = std::env::var(CHILD).unwrap();
    let (how, folder) = how.split_once(' ').unwrap();
    let (layer, profiler) = Profiler::builder().build().unwrap();
    let plugin = Nccl::new().hangs_to_dir(folder).install(&profiler).unwrap();
    let nccl = Nvidia::versions()[2];
    let (context, _) = nccl.init(7, 2, 1);
    tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
        let _span = tracing::info_span!("backward").entered();
        nccl.all_reduce(context, null_mut(), 3);
        match how {
            "exit" => std::process::exit(3),
            "dropped" => drop(plugin),
            _ => {}
        }
        // The test ends it.
        println!("ready");
        std::thread::sleep(std::time::Duration::from_secs(600));
    });
}

fn child(how: &str, folder: &Path) -> Child {
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", "ending::a_process_that_ends", "--ignored", "--nocapture", "--test-threads", "1"]);
    child.env(CHILD, format!("{how} {}", folder.display()));
    child.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap()
}

/// Ends a process by `SIGTERM` as soon as it is ready.
fn terminate(mut child: Child) -> ExitStatus {
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    while !line.ends_with("ready\n") {
        line.clear();
        assert!(out.read_line(&mut line).unwrap() > 0, "it has ended");
    }
    assert!(Command::new("kill").args(["-TERM", &child.id().to_string()]).status().unwrap().success());
    out.read_to_string(&mut line).unwrap();
    child.wait().unwrap()
}

fn file_in(folder: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(folder.join("rank00001.nccl")).unwrap()).unwrap()
}

#[test]
fn the_file_is_written_when_the_process_ends_without_dropping_the_plugin() {
    let folder = tempfile::tempdir().unwrap();
    assert_eq!(child("exit", folder.path()).wait().unwrap().code(), Some(3));
    let file = file_in(folder.path());
    assert_eq!((file["reason"].as_str(), calls(&file)), (Some("exit"), vec!["AllReduce 3 launched".to_owned()]));
    // `exit` destroys the thread-locals of its thread first, so that the thread itself may be gone already.
    assert!(file["communicators"].to_string().contains("backward"), "{file}");
}

#[test]
fn a_terminated_process_writes_its_file_and_ends_as_usual() {
    let folder = tempfile::tempdir().unwrap();
    assert_eq!(terminate(child("SIGTERM", folder.path())).signal(), Some(15));
    let file = file_in(folder.path());
    assert_eq!((file["reason"].as_str(), calls(&file)), (Some("SIGTERM"), vec!["AllReduce 3 launched".to_owned()]));
    assert!(file["threads"].to_string().contains("backward"), "{file}");
    // Without a plugin, the signal has its usual effect again.
    assert_eq!(terminate(child("dropped", folder.path())).signal(), Some(15));
    assert_eq!(file_in(folder.path())["reason"], "end");
}
