//! Files that are written: other formats, merged files, flame graphs.

use crate::{WINDOWS, printed, run, torch, window, written};
use serde_json::Value;
use std::{collections::BTreeSet, fs, path::Path};

#[test]
fn a_converted_trace_has_the_same_report() {
    let folder = tempfile::tempdir().unwrap();
    for name in WINDOWS {
        for ending in ["json", "json.gz"] {
            let new = folder.path().join(format!("{name}.{ending}"));
            written("convert", &[&window(name), &new]);
            for table in [
                "report",
                "report --by-stack 2 --by-shape",
                "report --memory",
                "report --kernels",
                "steps",
                "steps --breakdown",
            ] {
                let text = |file: &Path| printed(table, &[file]);
                assert_eq!(text(&new), text(&window(name)), "{table} of {name}.{ending}");
            }
        }
    }
    let left = fs::read_dir(folder.path()).unwrap().count();
    assert_eq!(left, 2 * WINDOWS.len(), "no temporary folder stays");
}

#[test]
fn a_converted_trace_of_pytorch_has_the_same_tables() {
    let folder = tempfile::tempdir().unwrap();
    let new = folder.path().join("new.json");
    for name in ["transformer", "transformer-shapes", "convolution-shapes", "perceptron-stack", "graph"] {
        assert_eq!(run("convert", &[&torch(name), &new]).code, 0);
        for table in ["report --torch --json --limit 10000", "report", "report --kernels", "steps", "steps --breakdown"]
        {
            let text = |file: &Path| printed(table, &[file]);
            assert_eq!(text(&new), text(&torch(name)), "{table} of {name}");
        }
    }
}

#[test]
fn parts_of_a_pytorch_trace_that_are_left_out_are_counted() {
    let folder = tempfile::tempdir().unwrap();
    let said = |new: &str| run("convert", &[&torch("transformer-shapes"), &folder.path().join(new)]).err;
    // `zgrep -c` finds as many in the file; of the 1479 ends of `ac2g`, 59 lead nowhere.
    let arguments = "2962 Ev Idx, 678 Fwd thread id, 2962 Record function id, 678 Sequence number, 59 ends of arrows";
    for new in ["a.json", "a.json.gz", "a.pftrace"] {
        let said = said(new);
        assert!(said.contains(&format!("not in the new file: {arguments}\n")), "{new}: {said}");
    }
    let said_of_board = said("board");
    let also = "196 forward-backward arrows, 672 changes of CPU memory, 16 GPU annotations";
    assert!(said_of_board.contains(&format!("{arguments}, {also}\n")), "{said_of_board}");
    assert!(!said("a.folded").contains("not in the new file"), "a summary is meant to have less");
    // The converted file has lost nothing more.
    let again = run("convert", &[&folder.path().join("a.json"), &folder.path().join("b.json")]).err;
    assert!(again.starts_with("kernspan: wrote ") && again.lines().count() == 1, "{again}");
}

#[test]
fn a_profile_of_pytorch_s_trace_has_a_host() {
    let folder = tempfile::tempdir().unwrap();
    let board = folder.path().join("board");
    assert_eq!(run("convert", &[&torch("graph"), &board]).code, 0);
    let captures = fs::read_dir(board.join("plugins/profile")).unwrap();
    let files = captures.flat_map(|capture| fs::read_dir(capture.unwrap().path()).unwrap());
    let names: Vec<_> = files.map(|file| file.unwrap().file_name().into_string().unwrap()).collect();
    assert_eq!(names, ["localhost.xplane.pb"]);
}

#[test]
fn the_ending_says_the_format() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str| {
        let new = folder.path().join(name);
        written("convert", &[&window("candle"), &new]);
        new
    };
    let first = |name: &str| fs::read(write(name)).unwrap()[..2].to_vec();
    assert_eq!(first("a.json")[0], b'{');
    assert_eq!(first("a.json.gz"), [0x1f, 0x8b]);
    // A packet of Perfetto's.
    assert_eq!(first("a.pftrace")[0], 0x0a);
    let stacks = |name: &str| fs::read_to_string(write(name)).unwrap();
    assert!(stacks("a.folded").contains(";train_step;forward "));
    assert!(stacks("a.gpu.folded").contains(";badd_f32 "));
    let board = write("board");
    let found =
        |folder: &Path| fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name()).collect::<Vec<_>>();
    assert_eq!(found(&board.join("plugins/profile")).len(), 1);
    let again = run("convert", &[&window("candle"), &board]);
    assert!(again.code == 1 && again.err.contains("the folder is not empty"), "{}", again.err);
    // A file is replaced.
    fs::write(folder.path().join("a.json"), "old").unwrap();
    assert_eq!(first("a.json")[0], b'{');
    let nowhere = run("convert", &[&window("candle"), &folder.path().join("missing/a.json")]);
    assert!(
        nowhere.code == 1 && nowhere.err.contains("missing/a.json: no such file or directory\n"),
        "{}",
        nowhere.err
    );
}

#[test]
fn merged_traces_keep_processes_apart() {
    let folder = tempfile::tempdir().unwrap();
    let [first, second] = ["first.json", "second.json"].map(|name| folder.path().join(name));
    let trace = |rank: u32, base: u64| {
        format!(
            r#"{{"schemaVersion": 1, "distributedInfo": {{"rank": {rank}, "world_size": 2}},
            "baseTimeNanoseconds": {base}, "traceEvents": [
            {{"ph": "M", "name": "process_name", "pid": 7, "tid": 0, "args": {{"name": "python"}}}},
            {{"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 7, "tid": 7, "ts": 10.125, "dur": 5.000,
              "args": {{"External id": 1}}}},
            {{"ph": "s", "cat": "ac2g", "name": "ac2g", "id": 3, "pid": 7, "tid": 7, "ts": 10.125}},
            {{"ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "tid": 7, "ts": 12.001, "dur": 2.000,
              "args": {{"device": 0, "stream": 7, "correlation": 3, "External id": 1}}}},
            {{"ph": "f", "cat": "ac2g", "name": "ac2g", "id": 3, "pid": 0, "tid": 7, "ts": 12.001, "bp": "e"}}]}}"#
        )
    };
    fs::write(&first, trace(0, 1_700_000_000_000_000_000)).unwrap();
    fs::write(&second, trace(1, 1_700_000_000_000_002_500)).unwrap();
    let new = folder.path().join("merged.json");
    written("merge", &[&new, &first, &second]);
    let merged: Value = serde_json::from_str(&fs::read_to_string(&new).unwrap()).unwrap();
    // A folder is as good as its files.
    let of_folder = new.with_file_name("of_folder.json.gz");
    fs::rename(&new, folder.path().join("merged.other")).unwrap();
    written("merge", &[&of_folder, folder.path()]);
    let plain = flate2::read::GzDecoder::new(fs::File::open(of_folder).unwrap());
    assert_eq!(serde_json::from_reader::<_, Value>(plain).unwrap(), merged);
    assert_eq!(merged["baseTimeNanoseconds"], 1_700_000_000_000_000_000_u64);
    let events = merged["traceEvents"].as_array().unwrap();
    assert_eq!(events.len(), 10);
    let all = |key: &str| events.iter().filter_map(|event| event.get(key)).collect::<Vec<_>>();
    let processes: BTreeSet<_> = all("pid").iter().map(|pid| pid.as_u64().unwrap()).collect();
    assert_eq!(processes.len(), 4, "a host and a GPU of each rank: {processes:?}");
    let of_kernels: Vec<_> = events.iter().filter(|event| event["name"] == "gemm").map(|event| &event["ts"]).collect();
    assert_eq!(of_kernels, [12.001, 14.501], "the second began 2.5 µs later");
    let arrows: BTreeSet<_> = all("id").iter().map(|id| id.as_u64().unwrap()).collect();
    assert_eq!((arrows.len(), all("id").len()), (2, 4), "each end has its start");
    let names: Vec<_> = events.iter().filter(|event| event["ph"] == "M").map(|event| &event["args"]["name"]).collect();
    assert_eq!(names, ["rank 0: python", "rank 1: python"]);
}

#[test]
fn windows_of_one_process_stay_together_when_merged() {
    let folder = tempfile::tempdir().unwrap();
    let new = folder.path().join("merged.json.gz");
    written("merge", &[&new, &window("candle"), &window("candle")]);
    let once = folder.path().join("once.json");
    written("convert", &[&window("candle"), &once]);
    let plain = flate2::read::GzDecoder::new(fs::File::open(new).unwrap());
    let merged: Value = serde_json::from_reader(plain).unwrap();
    let once: Value = serde_json::from_str(&fs::read_to_string(once).unwrap()).unwrap();
    let events = |document: &Value| document["traceEvents"].as_array().unwrap().len();
    assert_eq!(events(&merged), 2 * events(&once));
    let processes = |document: &Value| -> BTreeSet<_> {
        document["traceEvents"].as_array().unwrap().iter().map(|event| event["pid"].to_string()).collect()
    };
    assert_eq!(processes(&merged), processes(&once));
    let name = |document: &Value| document["traceEvents"][0]["args"]["name"].clone();
    assert_eq!(name(&merged), name(&once), "there is but one process");
}

#[test]
fn flame_graphs_have_spans_and_kernels() {
    let folder = tempfile::tempdir().unwrap();
    let draw = |options: &str| {
        let new = folder.path().join("graph.svg");
        written(&format!("flame {options} -o"), &[&new, &window("candle"), &window("training")]);
        fs::read_to_string(new).unwrap()
    };
    let (host, gpu) = (draw("--host"), draw("--gpu"));
    assert!(host == draw("") && host.contains("train_step") && !host.contains("badd_f32"));
    assert!(gpu.contains("<svg") && gpu.contains("train_step") && gpu.contains("badd_f32"));
    let out = printed("flame -o -", &[&window("candle")]);
    assert!(out.contains("<svg") && out.trim_end().ends_with("</svg>"));
}
