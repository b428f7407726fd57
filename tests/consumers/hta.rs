//! Tests that the numbers of `kernspan::analysis` are those of HolisticTraceAnalysis, for PyTorch's traces and ours.
//!
//! Where HTA is wrong, [`Model`] computes its numbers with the same error, which shows that nothing else differs.

use crate::{
    hta_model::{CallNames, Model, is_queued, is_seen_as_it_is, plain_streams},
    support::{
        readers::{readers, run},
        recorded,
    },
};
use kernspan::{
    Chrome, Exporter, Report, Trace,
    analysis::{Analysis, StreamIdle, launches, queue_lengths, stream_idle},
};
use serde_json::{Value as Json, json};
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    time::Duration,
};

/// Numbers of a trace that are the same as HTA's, without any of HTA's errors.
#[derive(Debug, Default, PartialEq)]
struct Same {
    kernels: bool,
    idle_streams: usize,
    queues: usize,
    launches: usize,
}

/// Compares the numbers of a file with HTA's. Returns which of them are the same.
fn compare(file: &Path, seen: &Json) -> Same {
    let traces = kernspan::read(file).unwrap();
    let [trace] = traces.as_slice() else { panic!("{} traces", traces.len()) };
    let first = trace.work().map(|work| work.start().as_unix_nanos()).min().unwrap();
    let origin = first - seen["first"].as_u64().unwrap();
    let calls: CallNames = serde_json::from_value(seen["calls"].clone()).unwrap();
    for (unit, nanos) in [("ns", 1.0), ("us", 1e3)] {
        compare_model(&Model::new(trace, &calls, origin, nanos), &seen[unit], unit == "us");
    }
    compare_trace(trace, &calls, origin, &seen["ns"])
}

/// Compares HTA's numbers with those of its own definitions.
fn compare_model(model: &Model<'_>, seen: &Json, is_micros: bool) {
    // HTA subtracts sums of large floating-point numbers from each other.
    let tolerance = if is_micros { 1e-4 } else { 0.0 };
    let kernels = seen["kernels"].as_object().unwrap();
    let expected = model.kernels();
    assert!(expected.keys().eq(kernels.keys()), "{:?}", kernels.keys());
    for (name, statistics) in expected {
        assert_near(&statistics, &floats(&kernels[&name]), 1e-6, &name);
    }

    let delay = StreamIdle::KERNEL_DELAY.as_nanos() as f64 / if is_micros { 1e3 } else { 1.0 };
    let idle = idle_of(seen);
    let expected = model.idle(delay);
    assert!(expected.keys().eq(idle.keys()));
    for (stream, sums) in expected {
        // HTA rounds to hundredths.
        assert_near(&sums, &idle[&stream], if is_micros { 0.00501 } else { 0.0 }, "idle");
    }

    let mut queues: BTreeMap<u64, Vec<(f64, i64)>> = BTreeMap::new();
    for row in rows(&seen["queues"]) {
        let changes = queues.entry(row[0].as_u64().unwrap()).or_default();
        let (at, length) = (row[1].as_f64().unwrap(), row[2].as_i64().unwrap());
        // Changes at the same time are in any order.
        if changes.last().is_some_and(|last| last.0 == at) {
            changes.pop();
        }
        changes.push((at, length));
    }
    let expected = model.queues();
    assert_eq!(queues.len(), expected.len());
    for (stream, changes) in expected {
        let expected: Vec<_> = changes.into_iter().map(|(at, length)| (model.at(at), length)).collect();
        assert_eq!(queues[&stream.into()], expected, "stream {stream}");
    }

    let launches = launches_of(seen);
    let expected = model.launches();
    assert!(expected.keys().eq(launches.keys()));
    for (correlation, times) in expected {
        assert_near(&times, &launches[&correlation], tolerance, "launch");
    }
}

/// Compares HTA's numbers in nanoseconds with ours, where HTA is right. Returns which of them these are.
fn compare_trace(trace: &Trace, calls: &CallNames, origin: u64, seen: &Json) -> Same {
    let mut same = Same { kernels: is_seen_as_it_is(trace), ..Same::default() };
    if same.kernels {
        let report = Report::of([trace]);
        let rows = report.kernels().limit(usize::MAX).rows();
        let kernels = seen["kernels"].as_object().unwrap();
        assert_eq!(rows.len(), kernels.len());
        for row in rows {
            let statistics = [row.total, row.longest, row.shortest, row.average, row.deviation].map(nanos);
            // The mean and the deviation are no whole nanoseconds.
            assert_near(&statistics, &floats(&kernels[&row.name]), 0.501, &row.name);
        }
    }

    let plain = plain_streams(trace);
    let idle = idle_of(seen);
    for ours in stream_idle(trace).iter().filter(|idle| plain.contains(&idle.stream)) {
        same.idle_streams += 1;
        assert_eq!([ours.host_wait, ours.kernel_wait, ours.other].map(nanos), idle[&ours.stream]);
    }

    for ours in queue_lengths(trace).iter().filter(|queue| plain.contains(&queue.stream)) {
        let mut work = trace.work().filter(|work| work.stream().number() == ours.stream);
        if !work.all(|work| work.call().is_some_and(|call| is_queued(call, calls))) {
            continue;
        }
        same.queues += 1;
        let theirs = rows(&seen["queues"]).filter(|row| row[0] == ours.stream);
        let theirs: BTreeMap<_, _> = theirs.map(|row| (row[1].as_f64().unwrap() as i64, row[2].as_u64())).collect();
        let ours: BTreeMap<_, _> =
            ours.changes.iter().map(|(at, length)| ((at - origin) as i64, Some(*length))).collect();
        assert_eq!(ours, theirs);
    }

    let theirs = launches_of(seen);
    for launch in launches(trace).iter().filter(|launch| theirs.contains_key(&launch.correlation)) {
        same.launches += 1;
        assert_eq!([launch.host, launch.gpu, launch.delay].map(nanos), theirs[&launch.correlation]);
    }
    assert_eq!(same.launches, theirs.len());
    same
}

fn nanos(duration: Duration) -> f64 {
    duration.as_nanos() as f64
}

fn rows(table: &Json) -> impl Iterator<Item = &Json> {
    table.as_array().unwrap().iter()
}

fn floats(row: &Json) -> Vec<f64> {
    rows(row).map(|value| value.as_f64().unwrap()).collect()
}

/// Returns the host wait, kernel wait and other idle time of each stream.
fn idle_of(seen: &Json) -> BTreeMap<u32, [f64; 3]> {
    let mut streams: BTreeMap<u32, [f64; 3]> = BTreeMap::new();
    for row in rows(&seen["idle"]) {
        let stream = u32::try_from(row[0].as_u64().unwrap()).unwrap();
        let category = ["host_wait", "kernel_wait", "other"].iter().position(|name| row[1] == *name).unwrap();
        streams.entry(stream).or_default()[category] = row[2].as_f64().unwrap();
    }
    streams
}

/// Returns the host's time, the GPU's time and the delay of each launch, by its correlation id.
fn launches_of(seen: &Json) -> BTreeMap<u32, [f64; 3]> {
    let launch = |row: &Json| {
        let values = floats(row);
        (values[0] as u32, [values[1], values[2], values[3]])
    };
    rows(&seen["launches"]).map(launch).collect()
}

#[track_caller]
fn assert_near(ours: &[f64], theirs: &[f64], tolerance: f64, name: &str) {
    assert_eq!(ours.len(), theirs.len());
    let is_near = |(ours, theirs): (&f64, &f64)| (ours - theirs).abs() <= tolerance;
    assert!(ours.iter().zip(theirs).all(is_near), "{name}: {ours:?} instead of {theirs:?}");
}

/// Compares the numbers of files with HTA's; `None` without Python.
fn compare_all(files: &[PathBuf]) -> Option<Vec<Same>> {
    let (python, _) = readers()?;
    let arguments: Vec<_> = files.iter().map(|file| file.to_str().unwrap()).collect();
    let seen = run(python, "hta_numbers.py", &arguments);
    assert_eq!(seen.len(), files.len());
    Some(files.iter().zip(&seen).map(|(file, seen)| compare(file, seen)).collect())
}

#[test]
fn numbers_of_pytorch_are_those_of_hta() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/torch");
    let names = ["convolution-shapes", "graph", "perceptron-stack", "transformer-shapes", "transformer"];
    let files = names.map(|name| folder.join(format!("{name}.pt.trace.json.gz")));
    let Some(same) = compare_all(&files) else { return };
    let expected = |queues, launches| Same { kernels: true, idle_streams: 1, queues, launches };
    // HTA knows no graphs.
    assert_eq!(same, [expected(1, 208), expected(0, 0), expected(1, 112), expected(1, 688), expected(1, 688)]);
}

#[test]
fn numbers_of_recorded_windows_are_those_of_hta() {
    let folder = tempfile::tempdir().unwrap();
    let mut files = Vec::new();
    for name in ["training", "calls", "candle", "burn", "burn-first"] {
        let mut exporter = Chrome::to_dir(folder.path().join(name)).runtime_names(true);
        files.extend(exporter.export(&Analysis::of(&recorded(name))).unwrap());
    }
    let Some(same) = compare_all(&files) else { return };
    let expected = |idle_streams, queues, launches| Same { kernels: true, idle_streams, queues, launches };
    assert_eq!(same[0], Same { kernels: false, ..expected(4, 2, 141) }, "HTA takes waits for work");
    assert_eq!(same[1..], [expected(4, 2, 141), expected(1, 1, 400), expected(1, 1, 34), expected(1, 1, 1012)]);
}

/// Returns a slice, in nanoseconds.
fn slice(cat: &str, name: &str, pid: u64, tid: u64, (start, end): (u64, u64), args: Json) -> Json {
    let [ts, dur] = [1_000_000 + start, end - start].map(|nanos| nanos as f64 / 1e3);
    json!({"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid, "ts": ts, "dur": dur, "args": args})
}

/// Returns a call and its work on a stream of a GPU.
fn launch(kernel: &str, gpu: u64, stream: u64, (asked, start, end): (u64, u64, u64), correlation: u64) -> [Json; 2] {
    let (cat, function) = match kernel {
        _ if kernel.starts_with("Memcpy") => ("gpu_memcpy", "cudaMemcpyAsync"),
        _ => ("kernel", "cudaLaunchKernel"),
    };
    let call = slice("cuda_runtime", function, 50, 51, (asked, asked + 1700), json!({"correlation": correlation}));
    let args = json!({"device": gpu, "context": 1, "stream": stream, "correlation": correlation, "bytes": 4096});
    [call, slice(cat, kernel, gpu, stream, (start, end), args)]
}

fn write_trace(folder: &Path, name: &str, events: &[Json]) -> PathBuf {
    let path = folder.join(name);
    std::fs::write(&path, json!({"schemaVersion": 1, "traceEvents": events}).to_string()).unwrap();
    path
}

const REDUCE: &str = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)";
const COPY: &str = "Memcpy HtoD (Pinned -> Device)";

#[test]
fn numbers_of_communication_are_those_of_hta() {
    // Three streams whose work begins and ends at times that have little in common.
    let mut events = vec![slice("cpu_op", "train", 50, 51, (0, 900_000), json!({}))];
    for (stream, (kernel, every, long)) in
        [("gemm", 7130, 4017), (REDUCE, 11_270, 6011), (COPY, 9_310, 3109)].iter().enumerate()
    {
        for turn in 0..70 {
            let start = 5000 + turn * every;
            // Every third is asked for long before, every second too late.
            let asked = start - if turn % 3 == 0 { 4900 } else { 2400 };
            let correlation = 1 + stream as u64 + 3 * turn;
            events.extend(launch(kernel, 0, 7 + stream as u64, (asked, start, start + long + turn), correlation));
        }
    }
    let folder = tempfile::tempdir().unwrap();
    let file = write_trace(folder.path(), "communication.json", &events);
    let Some(same) = compare_all(std::slice::from_ref(&file)) else { return };
    assert_eq!(same, [Same { kernels: true, idle_streams: 3, queues: 3, launches: 210 }]);
}

#[test]
fn errors_of_hta_are_those_that_are_documented() {
    let step =
        |number: u64, times| slice("user_annotation", &format!("ProfilerStep#{number}"), 50, 51, times, json!({}));
    let mut events = vec![step(4, (0, 50_000)), step(5, (50_000, 100_000))];
    // Streams of two GPUs with the same number.
    events.extend(launch("gemm", 0, 7, (1000, 5000, 9000), 1));
    events.extend(launch("gemm", 1, 7, (3000, 7000, 12_000), 2));
    events.extend(launch("gemm", 1, 7, (15_000, 18_000, 22_300), 3));
    // A kernel that begins while the one before it runs, and ends before it, and one that begins soon after that.
    events.extend(launch("long", 0, 13, (21_000, 25_000, 60_000), 4));
    events.extend(launch("inner", 0, 13, (23_000, 30_000, 31_500), 5));
    events.extend(launch("next", 0, 13, (26_000, 61_000, 62_700), 6));
    // A gap of more than 30 µs before work that was asked for in time.
    events.extend(launch("late", 0, 13, (28_000, 99_000, 99_900), 7));
    events.extend(launch("isSynchronous", 0, 14, (40_000, 45_000, 46_100), 8));
    events.extend(launch(COPY, 0, 14, (42_000, 47_000, 48_900), 9));
    // HTA drops work that is asked for after the last step, and work without a call.
    events.extend(launch("after", 0, 14, (101_000, 105_000, 106_000), 10));
    events.extend(launch("stray", 0, 14, (43_000, 50_000, 51_000), 11));
    events.retain(|event| event["cat"] != "cuda_runtime" || event["args"]["correlation"] != 11);
    // A wait of a stream for an event, which HTA takes for a kernel.
    events.push(slice("cuda_runtime", "cudaStreamWaitEvent", 50, 51, (70_000, 70_500), json!({"correlation": 12})));
    let args =
        json!({"cuda_sync_kind": "Stream Wait Event", "stream": 13, "correlation": 12, "device": 0, "context": 1});
    events.push(slice("cuda_sync", "Stream Wait Event", 0, 13, (70_000, 75_000), args));
    let folder = tempfile::tempdir().unwrap();
    let file = write_trace(folder.path(), "errors.json", &events);
    let Some(same) = compare_all(std::slice::from_ref(&file)) else { return };
    assert_eq!(same, [Same { kernels: false, idle_streams: 0, queues: 0, launches: 9 }]);

    let trace = &kernspan::read(&file).unwrap()[0];
    let micros = Duration::from_micros;
    let idle = stream_idle(trace);
    let idle = idle.iter().find(|idle| idle.stream == 13).unwrap();
    // Not from the end of `inner`, which is HTA's gap.
    assert_eq!((idle.host_wait, idle.kernel_wait, idle.other), (micros(0), micros(1), Duration::from_nanos(36_300)));
}
