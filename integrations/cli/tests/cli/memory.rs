//! The command `memory`, and the snapshots that it writes for PyTorch's viewer.

use crate::{assert_golden, fixture, printed, printed_json, run, torch, window, written};
use serde_json::Value;
use std::{
    collections::HashMap,
    fs,
    io::BufRead,
    path::{Path, PathBuf},
    process::Command,
};

/// All recordings with GPU memory.
fn recordings() -> Vec<PathBuf> {
    let windows = ["burn-first", "candle", "training"].map(window);
    let traces = ["convolution-shapes", "perceptron-stack", "transformer-shapes"].map(torch);
    windows.into_iter().chain(traces).chain([fixture("faults/allocations-faulty.kernspan")]).collect()
}

/// Reads a snapshot as PyTorch's viewer does: blocks that are freed or in use at the end without having been allocated
/// were in use from the beginning. Each GPU has its live bytes, its peak after an event, and the live bytes after all
/// events have been replayed.
const READER: &str = r#"
import json, pickle, sys
def read(path):
    snapshot = pickle.load(open(path, "rb"))
    for segment in snapshot["segments"]:
        block, = segment["blocks"]
        sizes = {segment[key] for key in ["total_size", "allocated_size", "active_size", "requested_size"]}
        assert sizes == {block["size"]} == {block["requested_size"]} and block["size"] > 0, segment
        assert block["state"] == "active_allocated" and block["address"] == segment["address"], segment
        assert segment["segment_pool_id"] == (0, 0) and segment["is_expandable"] is False and segment["stream"] == 0
    ranges = sorted((s["device"], s["address"], s["address"] + s["total_size"]) for s in snapshot["segments"])
    assert all(a[0] < b[0] or a[2] <= b[1] for a, b in zip(ranges, ranges[1:])), "segments overlap"
    gpus = []
    for device, events in enumerate(snapshot["device_traces"]):
        if not events:
            gpus.append(None)
            continue
        live, initial, categories = {}, 0, set()
        for event in events:
            assert {"addr", "size", "stream", "time_us", "frames"} <= event.keys(), event
            assert all(frame.keys() == {"filename", "line", "name"} for frame in event["frames"]), event
            categories.add(event.get("category"))
            if event["action"] == "alloc":
                assert event["addr"] not in live, event
                live[event["addr"]] = event["size"]
            elif event["action"] == "free_completed" and live.pop(event["addr"], None) is None:
                initial += event["size"]
        at_end = {s["address"]: s["total_size"] for s in snapshot["segments"] if s["device"] == device}
        assert live.items() <= at_end.items(), "what was allocated and not freed is in use at the end"
        initial += sum(size for address, size in at_end.items() if address not in live)
        now, peak = initial, 0
        for event in events:
            change = {"alloc": 1, "free_completed": -1}.get(event["action"])
            if change:
                now += change * event["size"]
                peak = max(peak, now)
        assert events[-1]["action"] == "snapshot" and "unknown" in categories, "the viewer needs this category"
        assert [e["time_us"] for e in events] == sorted(e["time_us"] for e in events)
        frames = [frame["name"] for frame in events[0]["frames"]]
        gpus.append({"live": sum(at_end.values()), "replayed": now, "peak": peak, "first": frames})
    return gpus
for path in sys.argv[1:]:
    print(json.dumps(read(path)))
"#;

/// Returns what Python reads from a snapshot; `None` without Python, which fails if `CI=true`.
fn read(snapshot: &Path) -> Option<Value> {
    read_all(&[snapshot.to_owned()]).map(|mut read| read.remove(0))
}

fn read_all(snapshots: &[PathBuf]) -> Option<Vec<Value>> {
    let Ok(output) = Command::new("python3").args(["-c", READER]).args(snapshots).output() else {
        assert_ne!(std::env::var("CI").as_deref(), Ok("true"), "no python3: it does NOT read snapshots");
        eprintln!("\n*** no python3: it does NOT read snapshots ***\n");
        return None;
    };
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{snapshots:?}: {said}");
    Some(output.stdout.lines().map(|line| serde_json::from_str(&line.unwrap()).unwrap()).collect())
}

/// Gives snapshots to PyTorch's own `torch/cuda/_memory_viz.py`, which needs nothing else of PyTorch. It prints the
/// live bytes of each, and writes the snapshot that its plots contain next to it.
const TORCH: &str = r#"
import base64, importlib.util, pickle, re, sys
spec = importlib.util.spec_from_file_location("_memory_viz", sys.argv[1])
viz = importlib.util.module_from_spec(spec)
spec.loader.exec_module(viz)
for path in sys.argv[2:]:
    snapshot = pickle.load(open(path, "rb"))
    lines = viz.memory(snapshot, format_flamegraph=str).splitlines()
    allocations = sum(e["action"] == "alloc" for events in snapshot["device_traces"] for e in events)
    assert viz.trace(snapshot).count(" = cudaMalloc(") == allocations
    for page in [viz.trace_plot(snapshot), viz.trace_plot(snapshot, plot_segments=True), viz.segment_plot(snapshot)]:
        assert page.strip().startswith("<!DOCTYPE html>"), page[:100]
        encoded, = re.findall(r'"base64": "([^"]*)"', page)
        assert pickle.loads(base64.b64decode(encoded)) == snapshot
    open(path + ".torch", "wb").write(base64.b64decode(encoded))
    print(sum(int(line.rsplit(" ", 1)[1]) for line in lines))
"#;

fn sum(rows: &Value, key: &str) -> u64 {
    rows.as_array().unwrap().iter().map(|row| row[key].as_u64().unwrap()).sum()
}

#[test]
fn tables_of_recorded_programs_stay_as_they_are() {
    for (name, file) in [("candle", window("candle")), ("transformer", torch("transformer-shapes"))] {
        for width in [80, 200] {
            let arguments = format!("memory --width {width} -n 5 --batch 64,100000000 --recorded-batch 32");
            assert_golden(&format!("{name}_memory_{width}.txt"), &printed(&arguments, &[&file]));
        }
    }
    assert_golden("candle_memory.md", &printed("memory --format md -n 5", &[&window("candle")]));
}

#[test]
fn a_snapshot_has_the_bytes_that_are_printed() {
    let folder = tempfile::tempdir().unwrap();
    let new = folder.path().join("new.pickle");
    for file in recordings() {
        written(&format!("memory --snapshot {}", new.display()), &[&file]);
        let Some(gpus) = read(&new) else { return };
        let printed = printed_json("memory --json", &[&file]);
        let last = printed["timeline"].as_array().unwrap().last().unwrap()["in_use"].as_u64();
        assert_eq!(gpus.as_array().unwrap().len(), 1, "{}", file.display());
        assert_eq!(gpus[0]["peak"].as_u64(), Some(sum(&printed["categories"], "bytes")), "{}", file.display());
        // These recordings are short enough for a point after each change.
        assert_eq!(gpus[0]["live"].as_u64(), last, "{}", file.display());
        assert_eq!(gpus[0]["replayed"], gpus[0]["live"], "{}", file.display());
    }
    written(&format!("memory --snapshot {}", new.display()), &[&window("candle")]);
    assert_eq!(read(&new).unwrap()[0]["first"], serde_json::json!(["data"]), "a stack of spans");
}

#[test]
#[ignore = "needs PyTorch's wheel: .ci/run torch"]
fn torch_plots_snapshots_with_the_peak_that_is_printed() {
    let viz = std::env::var_os("KERNSPAN_TORCH_VIZ").expect("the path of torch/cuda/_memory_viz.py");
    let folder = tempfile::tempdir().unwrap();
    for file in recordings() {
        let new = folder.path().join("new.pickle");
        written(&format!("memory --snapshot {}", new.display()), &[&file]);
        let output = Command::new("python3").args(["-c", TORCH]).arg(&viz).arg(&new).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{}: {said}", file.display());
        let live: u64 = String::from_utf8(output.stdout).unwrap().trim().parse().unwrap();
        let plotted = read(&folder.path().join("new.pickle.torch")).unwrap();
        let printed = printed_json("memory --json", &[&file]);
        assert_eq!(plotted[0]["peak"].as_u64(), Some(sum(&printed["categories"], "bytes")), "{}", file.display());
        assert_eq!(plotted[0]["live"].as_u64(), Some(live), "{}", file.display());
    }
}

#[test]
fn a_snapshot_of_an_incomplete_recording_still_adds_up() {
    // A second allocation at an address in use, more and less in use than the changes explain, a free of memory from
    // before, and one without bytes.
    let changes = [
        (1000, 512, 2512),
        (1000, 1024, 3536),
        (1000, -1024, 2512),
        (5000, 100, 5000),
        (9999, -700, 4000),
        (7000, 0, 4000),
        (6000, 100, 3600),
    ];
    let event = |(at, (address, bytes, in_use)): (usize, (u64, i64, u64))| {
        serde_json::json!({
            "ph": "i", "cat": "cpu_instant_event", "name": "[memory]", "pid": 7, "tid": 7, "ts": at + 1, "s": "t",
            "args": {"Addr": address, "Bytes": bytes, "Total Allocated": in_use, "Device Type": 1, "Device Id": 1},
        })
    };
    let events: Vec<_> = changes.into_iter().enumerate().map(event).collect();
    let folder = tempfile::tempdir().unwrap();
    let [old, new] = ["old.json", "new.pickle"].map(|name| folder.path().join(name));
    fs::write(&old, serde_json::json!({"schemaVersion": 1, "traceEvents": events}).to_string()).unwrap();
    written(&format!("memory --snapshot {}", new.display()), &[&old]);
    assert_eq!(sum(&printed_json("memory --json", &[&old])["categories"], "bytes"), 5000);
    let Some(gpus) = read(&new) else { return };
    assert_eq!(gpus[0], Value::Null, "the second GPU is the second in the list");
    let figures = ["peak", "live", "replayed"].map(|key| gpus[1][key].as_u64().unwrap());
    assert_eq!(figures, [5000, 3600, 3600]);
}

/// Addresses that are allocated or freed twice, or were never allocated, memory that overlaps, and addresses, sizes and
/// times that no GPU has.
#[test]
fn snapshots_of_contradictory_recordings_can_be_read_and_add_up() {
    const RUNS: u64 = 120;
    let folder = tempfile::tempdir().unwrap();
    let (mut snapshots, mut expected) = (Vec::new(), Vec::new());
    for run in 0..RUNS {
        let mut state = run + 1;
        let mut random = |below: u64| {
            // xorshift64*
            state ^= state >> 12;
            state ^= state << 25;
            state ^= state >> 27;
            (state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % below
        };
        let (mut live, mut used) = (HashMap::new(), random(5_000));
        let mut peak = 0;
        let mut events = Vec::new();
        for at in 0..1 + random(40) {
            let address = if random(8) == 0 { u64::MAX - random(600) } else { 256 * random(12) };
            let mut args = serde_json::json!({"Addr": address, "Device Type": 1, "Device Id": 0});
            if random(5) < 3 {
                let bytes = match random(12) {
                    0 => 0,
                    1 => 1 << (40 + random(10)),
                    _ => random(1_000),
                };
                live.insert(address, bytes);
                used += bytes;
                args["Bytes"] = bytes.into();
            } else {
                let bytes = live.remove(&address);
                used -= bytes.unwrap_or(0);
                args["Bytes"] = (-(bytes.unwrap_or(0) as i64)).into();
                let unknown = if bytes.is_none() { "Bytes unknown" } else { "Freed" };
                args[unknown] = true.into();
            }
            peak = peak.max(used);
            args["Total Allocated"] = used.into();
            let event = serde_json::json!({
                "ph": "i", "cat": "cpu_instant_event", "name": "[memory]", "pid": 7, "tid": 7, "ts": at / 3, "s": "t",
                "args": args,
            });
            events.push(event);
        }
        let [old, new] = ["json", "pickle"].map(|ending| folder.path().join(format!("{run}.{ending}")));
        fs::write(&old, serde_json::json!({"schemaVersion": 1, "traceEvents": events}).to_string()).unwrap();
        written(&format!("memory --snapshot {}", new.display()), &[&old]);
        snapshots.push(new);
        expected.push([peak, used, used]);
    }
    let Some(read) = read_all(&snapshots) else { return };
    assert_eq!(read.len(), expected.len());
    for (run, (gpus, expected)) in read.iter().zip(expected).enumerate() {
        let figures = ["peak", "live", "replayed"].map(|key| gpus[0][key].as_u64().unwrap_or(u64::MAX));
        // The peak is that of the events, of which there may be none with bytes.
        let is_same = figures == expected || (figures[0] == 0 && figures[1..] == expected[1..]);
        assert!(is_same, "run {run}: {figures:?} instead of {expected:?}");
    }
}

#[test]
fn json_has_the_same_peak_as_the_report() {
    for file in recordings() {
        let memory = printed_json("memory --json --batch 1,2 --recorded-batch 1", &[&file]);
        let report = printed_json("report --memory --json", &[&file]);
        let peak = Some(sum(&report["memory"], "bytes"));
        assert_eq!(Some(sum(&memory["categories"], "bytes")), peak, "{}", file.display());
        assert_eq!(memory["estimates"][0]["bytes"].as_u64(), peak, "the recorded batch size");
        let double = &memory["estimates"][1];
        assert!(double["bytes"].as_u64() >= peak && double["fits"] == true, "{double}");
        assert_eq!(memory["categories"][0]["category"], "before");
        let count = memory["lifetimes"].as_array().unwrap().len();
        assert_eq!(count, 8, "empty ranges are in JSON, too");
    }
}

#[test]
fn memory_that_outlives_its_step_is_listed_by_span() {
    let step = |step: u64| {
        let (start, bytes) = (1000 * step, 4096 * (step + 1));
        let span = |name: &str, start: u64, length: u64| {
            let (cat, args) = ("user_annotation", serde_json::json!({}));
            serde_json::json!({
                "ph": "X", "cat": cat, "name": name, "pid": 7, "tid": 7, "ts": start, "dur": length, "args": args,
            })
        };
        let memory = serde_json::json!({
            "ph": "i", "cat": "cpu_instant_event", "name": "[memory]", "pid": 7, "tid": 7, "ts": start + 20, "s": "t",
            "args": {"Addr": 8192 * (step + 1), "Bytes": 4096, "Total Allocated": bytes, "Device Type": 1,
                "Device Id": 0},
        });
        [span(&format!("ProfilerStep#{step}"), start, 990), span("cache", start + 10, 100), memory]
    };
    let events: Vec<_> = (0..4).flat_map(step).collect();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("leak.json");
    fs::write(&file, serde_json::json!({"schemaVersion": 1, "traceEvents": events}).to_string()).unwrap();
    let kept = &printed_json("memory --json", &[&file])["kept"];
    assert_eq!(kept.as_array().unwrap().len(), 1);
    assert_eq!((kept[0]["path"][0].as_str(), kept[0]["bytes"].as_u64()), (Some("cache"), Some(3 * 4096)));
    let text = printed("memory", &[&file]);
    assert!(text.contains("12.0 KiB                 3           3\n"), "{text}");
    assert!(text.contains("3 steps were followed until the end of the next one"), "{text}");
    assert!(text.contains("parameters and caches     12.0 KiB"), "{text}");
}

#[test]
fn windows_of_a_run_are_added_up() {
    let both = printed_json("memory --json", &[&window("candle"), &window("training")]);
    let [candle, training] = ["candle", "training"].map(|name| printed_json("memory --json", &[&window(name)]));
    assert_eq!(both["categories"], candle["categories"], "those of the higher peak");
    let allocations = |json: &Value| sum(&json["lifetimes"], "allocations");
    assert_eq!(allocations(&both), allocations(&candle) + allocations(&training));
}

#[test]
fn a_trace_without_memory_says_how_to_record_it() {
    for file in [window("calls"), torch("transformer")] {
        let run = run("memory", &[&file]);
        assert_eq!((run.code, run.out.as_str()), (1, ""));
        assert!(run.err.contains("Activity::Memory") && run.err.contains("profile_memory=True"), "{}", run.err);
    }
}

#[test]
fn wrong_options_are_usage_errors() {
    let folder = tempfile::tempdir().unwrap();
    let copy = folder.path().join("window.kernspan");
    fs::copy(window("candle"), &copy).unwrap();
    let snapshot = format!("--snapshot {}", copy.display());
    for (arguments, message) in [
        ("--batch 64", "--recorded-batch"),
        ("--recorded-batch 64", "--batch"),
        ("--batch 0 --recorded-batch 64", "at least 1"),
        ("--batch 64,0 --recorded-batch 64", "at least 1"),
        ("--batch 64 --recorded-batch 0", "at least 1"),
        ("--batch 64,x --recorded-batch 1", "at least 1"),
        ("--snapshot a.pickle --json", "cannot be used with"),
        ("--format csv", "use --json"),
        (&snapshot, "it is also read"),
    ] {
        let run = run(&format!("memory {arguments}"), &[&copy]);
        assert_eq!((run.code, run.out.as_str()), (2, ""), "{arguments}: {}", run.err);
        assert!(run.err.contains(message), "{arguments}: {}", run.err);
    }
    assert_eq!(fs::read(&copy).unwrap(), fs::read(window("candle")).unwrap(), "the input is untouched");
}
