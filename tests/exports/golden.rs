//! A test of the exported files against golden files, with values that differ from run to run masked.
//! `KERNSPAN_BLESS=1 cargo test --test exports golden` writes the golden files anew.

use crate::support::profiled;
use kernspan::{Activity, Chrome, Schedule, Stacks, export::Flavor};
use std::path::Path;
use tracing::{info, info_span};

fn program(profiler: &kernspan::Profiler) {
    let _run = info_span!("run", seed = 7).entered();
    for step in 0..3_u64 {
        profiler.step();
        let _step = info_span!("train_step", step).entered();
        let shape = [64, 512];
        info_span!("linear", op.shape.input = ?shape, op.dtype.input = "f32", op.flops = 65_536).in_scope(|| ());
        info_span!("\"quoted\"").in_scope(|| info!(answer = 42, "inside; of a span"));
        info!(counter.loss = 0.5);
    }
}

/// Compares `content` with a file of `tests/golden`, or writes it there.
fn check(name: &str, content: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
    if std::env::var_os("KERNSPAN_BLESS").is_some() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, content).unwrap();
    }
    let golden = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(content, golden, "{name} has changed: if that is right, run with KERNSPAN_BLESS=1");
}

/// Replaces the number or string after each of these keys.
fn mask(text: &str, keys: &[&str]) -> String {
    let mut masked = String::new();
    let mut rest = text;
    while let Some((at, key)) = keys.iter().filter_map(|key| Some((rest.find(key)?, key))).min() {
        let (before, after) = rest.split_at(at + key.len());
        let end = after.find([',', '}', '\n']).unwrap_or(after.len());
        masked = masked + before + "*";
        rest = &after[end..];
    }
    masked + rest
}

#[test]
fn files_are_as_they_were() {
    let folder = tempfile::tempdir().unwrap();
    let run = || {
        profiled(
            |builder| {
                let builder = builder.schedule(Schedule::steps(1..=2)).rank(1, 2).metadata("model", "mlp");
                // The GPU's description differs from machine to machine.
                let builder = builder.activities([Activity::Host]);
                let chrome = Chrome::to_dir(folder.path());
                let builder = builder.export(chrome.clone()).export(chrome.flavor(Flavor::TorchTensorBoard));
                builder.export(Stacks::to_dir(folder.path()))
            },
            program,
        )
    };
    // The thread's name is in the files, and the name of a test's thread is not always the same.
    let named = || std::thread::Builder::new().name("training".to_owned());
    let (_, report) = std::thread::scope(|scope| named().spawn_scoped(scope, run).unwrap().join().unwrap());
    let read = |index: usize| std::fs::read_to_string(&report.files()[index]).unwrap();
    let keys = [
        "\"ts\":",
        "\"dur\":",
        "\"pid\":",
        "\"tid\":",
        "\"trace_id\":",
        "\"host_name\":",
        "\"process_name\":",
        "\"baseTimeNanoseconds\":",
        "\"traceName\":",
        "\"sort_index\":",
        "\"kernspan_version\":",
        "\"kernspan_start\":",
        "\"kernspan_end\":",
        "\"process_name\",\"pid\":*,\"tid\":*,\"args\":{\"name\":",
    ];
    for (index, name) in ["chrome.json", "torch.json"].into_iter().enumerate() {
        let json = mask(&mask(&read(index), &keys), &keys[13..]);
        serde_json::from_str::<serde_json::Value>(&read(index)).unwrap();
        check(name, &json);
    }

    let mut stacks: Vec<_> = read(2).lines().map(|line| line.rsplit_once(' ').unwrap().0.to_owned()).collect();
    stacks.sort();
    check("stacks.folded", &(stacks.join("\n") + "\n"));
}
