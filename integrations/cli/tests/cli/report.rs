//! Tables: against golden files, against PyTorch's own, and in all formats.

use crate::{TORCH, WINDOWS, assert_golden, fixture, printed, printed_json, run, run_with_input, torch, window};
use kernspan::{Report, analysis::FindingKind};
use serde_json::{Value, json};
use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};

#[test]
fn tables_are_as_they_were() {
    for width in [80, 200] {
        let options = |command: &str| format!("{command} --width {width}");
        for (name, command, file) in [
            ("candle", "report", window("candle")),
            ("burn", "report", window("burn")),
            ("transformer", "report --limit 20", torch("transformer-shapes")),
            ("transformer_torch", "report --torch --limit 20", torch("transformer-shapes")),
            ("transformer_top", "top", torch("transformer")),
            ("candle_tree", "report --tree", window("candle")),
            ("transformer_tree", "report --tree --depth 4", torch("transformer")),
            ("training_launches", "report --launches --streams", window("training")),
            ("training_steps", "steps", window("training")),
            ("training_breakdown", "steps --breakdown", window("training")),
            ("transformer_breakdown", "steps --breakdown", torch("transformer")),
            ("scalar_read_advise", "advise", fixture("faults/scalar-read-faulty.kernspan")),
            ("host_work_advise", "advise", fixture("faults/host-work-faulty.kernspan")),
            ("transformer_advise", "advise -n 2", torch("transformer")),
        ] {
            let text = printed(&options(command), &[&file]);
            assert_golden(&format!("{name}_{width}.txt"), &text);
            // Names, shapes and stacks are shortened, and columns left out, until it fits.
            let too_wide = text.lines().find(|line| line.chars().count() > width);
            assert_eq!(too_wide, None, "{name}");
        }
    }
    assert_golden("candle.md", &printed("report --format md", &[&window("candle")]));
}

#[test]
fn an_overview_is_the_report_that_programs_print() {
    for name in WINDOWS.into_iter().chain(["counters"]) {
        let traces = kernspan::read(window(name)).unwrap();
        let report = Report::of(&traces);
        // With operations, there are two lines between tables.
        let expected = report.width(100).to_string().replace("\n\n\n", "\n\n");
        assert_eq!(printed("report --width 100", &[&window(name)]), expected, "{name}");
        let rows = printed_json("report --json", &[&window(name)]);
        assert_eq!(rows["spans"], report.spans(), "{name}");
        assert_eq!(rows["averages"].as_array().unwrap().len(), report.averages().limit(usize::MAX).rows().len());
    }
}

#[test]
fn launches_and_streams_are_those_of_the_analysis() {
    use kernspan::analysis::{launches, stream_idle};
    let file = torch("transformer");
    let traces = kernspan::read(&file).unwrap();
    let rows = printed_json("report --json --launches --streams", &[&file]);
    let sum =
        |key: &str| rows["launches"].as_array().unwrap().iter().map(|row| row[key].as_u64().unwrap()).sum::<u64>();
    let all: Vec<_> = traces.iter().flat_map(launches).collect();
    assert_eq!(
        (sum("launches"), sum("pieces")),
        (all.len() as u64, all.iter().map(|launch| launch.pieces).sum::<u64>())
    );
    assert_eq!(sum("host"), all.iter().map(|launch| launch.host.as_nanos() as u64).sum::<u64>());
    assert_eq!(sum("short"), all.iter().filter(|launch| launch.is_short()).count() as u64);
    let idle = &stream_idle(&traces[0])[0];
    assert_eq!(rows["streams"][0]["host_wait"], idle.host_wait.as_nanos() as u64);
    assert_eq!(rows["streams"][0]["longest_queue"], kernspan::analysis::queue_lengths(&traces[0])[0].longest());
}

#[test]
fn each_kind_of_finding_is_explained() {
    let list = printed("explain", &[]);
    for kind in FindingKind::ALL {
        assert!(list.lines().any(|line| line.starts_with(&format!("{kind} "))), "{kind}: {list}");
        let text = printed(&format!("explain --width 80 {kind}"), &[]);
        assert!(text.starts_with(&format!("{kind}: ")) && text.contains("\nReported when"), "{text}");
        assert!(!text.contains("**") && !text.contains("]("), "{text}");
        let too_wide = text.lines().find(|line| line.chars().count() > 80 && line.trim().contains(' '));
        assert_eq!(too_wide, None, "{kind}");
    }
    let text = printed("explain no-tensor-cores", &[]);
    assert!(text.contains("set_float32_matmul_precision") && text.contains("- Candle: "), "{text}");
    assert!(printed("explain --format md no-tensor-cores", &[]).starts_with("## no-tensor-cores\n\n**Reported when**"));
    let json = printed_json("explain --json", &[]);
    assert_eq!(json["findings"].as_array().unwrap().len(), FindingKind::ALL.len());
    let unknown = run("explain no-tensor-core", &[]);
    assert_eq!(unknown.code, 2);
    assert!(unknown.err.contains("a similar value exists: 'no-tensor-cores'"), "{}", unknown.err);
    // Shells complete the kinds.
    assert!(printed("completions bash", &[]).contains("no-tensor-cores"));
}

#[test]
fn advice_speaks_the_framework_of_the_file() {
    let advice = |file: &Path| printed("advise", &[file]);
    let pytorch = advice(&torch("transformer"));
    assert!(pytorch.contains("torch") && !pytorch.contains("Candle") && !pytorch.contains("Burn"), "{pytorch}");
    let candle = advice(&window("candle"));
    assert!(candle.contains("`Tensor::gelu`") && !candle.contains("torch"), "{candle}");
    let burn = advice(&window("burn"));
    assert!(!burn.contains("Candle") && !burn.contains("torch"), "{burn}");
    let cuda = advice(&fixture("faults/scalar-read-faulty.kernspan"));
    assert!(cuda.contains("`cuMemcpyDtoHAsync`") && !cuda.contains("Candle"), "{cuda}");
    assert!(cuda.contains("more: kernspan explain host-sync"), "{cuda}");
}

/// Returns a trace of PyTorch on a CPU, whose steps take 10 ms, of which they load data for this many.
fn training_on_cpu(loading: u32) -> String {
    let mut events = Vec::new();
    for step in 0..6_u32 {
        let mut add = |name: &str, category: &str, from: u32, to: u32| {
            let (ts, dur) = (1000 * (10 * step + from), 1000 * (to - from));
            events.push(json!({
                "ph": "X", "cat": category, "name": name, "pid": 1, "tid": 1, "ts": ts, "dur": dur, "args": {},
            }));
        };
        add(&format!("ProfilerStep#{step}"), "user_annotation", 0, 10);
        add("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", "user_annotation", 0, loading);
        add("aten::linear", "cpu_op", loading, 10);
    }
    json!({"schemaVersion": 1, "traceEvents": events}).to_string()
}

#[test]
fn a_training_on_a_cpu_has_advice() {
    let slow = run_with_input("advise -", training_on_cpu(8).as_bytes());
    assert!(slow.out.contains("each step waits 8.00 ms for its data"), "{}", slow.out);
    assert!(slow.out.contains("[input-bound]") && slow.out.contains("about host spans only"), "{}", slow.out);
    let told = run_with_input("advise --step-time 5ms -", training_on_cpu(8).as_bytes());
    assert!(told.err.contains("--step-time 5.00 ms is not used: no GPU activity was recorded"), "{}", told.err);
    let fast = run_with_input("advise -", training_on_cpu(0).as_bytes());
    assert!(fast.out.starts_with("a step takes "), "{}", fast.out);
    assert!(fast.out.contains("\n\nno findings: no rule about host spans"), "{}", fast.out);
}

/// Returns a trace of PyTorch on a GPU, whose steps of 20 ms wait for a data loader of this type for so many
/// milliseconds, compute for 4, and exchange data for the rest of the time, if it is one of three ranks.
fn training_on_gpu(loader: &str, loading: u32, rank: Option<u32>) -> String {
    let mut events = Vec::new();
    for step in 0..6_u32 {
        let mut add = |name: &str, category: &str, micros: (u32, u32), args: Value| {
            let (ts, dur) = (20_000 * step + micros.0, micros.1);
            let row = if category == "kernel" { 0 } else { 1 };
            events.push(json!({
                "ph": "X", "cat": category, "name": name, "pid": row, "tid": 7, "ts": ts, "dur": dur, "args": args,
            }));
        };
        add(&format!("ProfilerStep#{step}"), "user_annotation", (0, 20_000), json!({}));
        let name = format!("enumerate(DataLoader)#{loader}.__next__");
        add(&name, "user_annotation", (10, 1000 * loading), json!({}));
        let mut launch = |name: &str, index: u32, start: u32, end: u32| {
            let correlation = 1 + 5 * step + index;
            add("cudaLaunchKernel", "cuda_runtime", (start - 50, 20), json!({"correlation": correlation}));
            let args = json!({
                "device": 0, "context": 1, "stream": 7, "correlation": correlation, "grid": [500, 1, 1],
                "block": [128, 1, 1], "registers per thread": 32, "shared memory": 0,
            });
            add(name, "kernel", (start, end - start), args);
        };
        for kernel in 0..4 {
            let start = 1000 * (loading + 1 + kernel) + 150;
            launch("sgemm", kernel, start, start + 900);
        }
        if rank.is_some() {
            launch("ncclDevKernel_AllReduce_Sum_f32_RING_LL", 4, 1000 * (loading + 5) + 150, 19_500);
        }
    }
    let mut trace = json!({"schemaVersion": 1});
    if let Some(rank) = rank {
        trace["distributedInfo"] = json!({"backend": "nccl", "rank": rank, "world_size": 3});
    }
    trace["traceEvents"] = events.into();
    trace.to_string()
}

#[test]
fn a_rank_that_the_others_wait_for_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let files: Vec<_> = (0..3)
        .map(|rank| {
            let file = folder.path().join(format!("rank{rank}.json"));
            let loading = if rank == 1 { 12 } else { 2 };
            std::fs::write(&file, training_on_gpu("_SingleProcessDataLoaderIter", loading, Some(rank))).unwrap();
            file
        })
        .collect();
    let files: Vec<&Path> = files.iter().map(PathBuf::as_path).collect();
    let findings = printed_json("advise --json", &files);
    let of = |kind: &str| findings["findings"].as_array().unwrap().iter().find(|it| it["kind"] == kind).cloned();
    let slow = of("slow-rank").unwrap();
    let title = slow["title"].as_str().unwrap();
    assert!(
        title.starts_with("rank 1 keeps the others waiting for 10.0 ms") && title.contains("DataLoader"),
        "{title}"
    );
    // It is not divided by the number of ranks.
    let alone = printed_json("advise --json", &[files[1]]);
    let input = of("input-bound").unwrap();
    assert!(input["title"].as_str().unwrap().ends_with(", on rank 1"), "{input}");
    assert_eq!(
        input["saving"],
        alone["findings"].as_array().unwrap().iter().find(|it| it["kind"] == "input-bound").unwrap()["saving"]
    );
}

#[test]
fn the_data_loader_of_pytorch_is_the_input_of_a_step() {
    for loader in ["_SingleProcessDataLoaderIter", "_MultiProcessingDataLoaderIter"] {
        let trace = training_on_gpu(loader, 12, None);
        let steps = run_with_input("steps --breakdown -", trace.as_bytes()).out;
        assert!(steps.contains("input 60.0 %") || steps.contains("input 60.0 %"), "{steps}");
        let advice = run_with_input("advise -n 1 -", trace.as_bytes()).out;
        assert!(advice.contains("[input-bound]") && advice.contains("num_workers"), "{advice}");
    }
}

#[test]
fn torchs_table_is_that_of_torch() {
    for name in TORCH {
        let rows = std::fs::read_to_string(fixture(&format!("torch/{name}.rows.json"))).unwrap();
        let expected: Vec<Value> = serde_json::from_str(&rows).unwrap();
        let printed = printed_json("report --torch --json", &[&torch(name)]);
        let seen = printed["key_averages"].as_array().unwrap();
        assert!(!expected.is_empty());
        for (index, (seen, expected)) in seen.iter().zip(&expected).enumerate() {
            assert_eq!(seen, expected, "row {index} of {name}");
        }
        assert_eq!(seen.len(), expected.len(), "{name}");
        let sum = |rows: &[Value], key: &str| rows.iter().map(|row| row[key].as_u64().unwrap()).sum::<u64>();
        assert_eq!(printed["self_cpu_time_total"], sum(&expected, "self_cpu_time"), "{name}");
    }
}

#[test]
fn torchs_table_can_be_sorted_and_limited_and_adds_files_up() {
    let rows = |arguments: &str, files: &[&Path]| {
        let printed = printed_json(&format!("report --torch --json {arguments}"), files);
        printed["key_averages"].as_array().unwrap().clone()
    };
    let (first, second) = (torch("transformer"), torch("graph"));
    let sorted = rows("--sort self --limit 5", &[&first]);
    let times: Vec<_> = sorted.iter().map(|row| row["self_cpu_time"].as_u64().unwrap()).collect();
    assert!(times.len() == 5 && times.is_sorted_by(|a, b| a >= b), "{times:?}");
    let sum = |rows: &[Value]| rows.iter().map(|row| row["count"].as_u64().unwrap()).sum::<u64>();
    assert_eq!(sum(&rows("", &[&first, &second])), sum(&rows("", &[&first])) + sum(&rows("", &[&second])));
}

#[test]
fn columns_that_are_all_zero_are_left_out_of_torchs_table() {
    let titles = |name| {
        let text = printed("report --torch --width 1000", &[&torch(name)]);
        text.lines().nth(1).unwrap().split("  ").map(str::trim).filter(|it| !it.is_empty()).map(str::to_owned).collect()
    };
    let with_memory: Vec<String> = titles("transformer-shapes");
    assert_eq!(
        with_memory.join(", "),
        "Name, Self CPU %, Self CPU, CPU total %, CPU total, CPU time avg, Self CUDA, Self CUDA %, CUDA total, CUDA \
         time avg, CPU Mem, Self CPU Mem, CUDA Mem, Self CUDA Mem, # of Calls, Total FLOPs"
    );
    let without: Vec<String> = titles("transformer");
    assert!(!without.iter().any(|title| title.ends_with("Mem") || title == "Total FLOPs"), "{without:?}");
}

#[test]
fn callers_and_callees_are_two_sides_of_the_same_calls() {
    let file = torch("transformer");
    let rows = |direction: &str, name: &str| {
        let printed = printed_json(&format!("report --json --{direction} {name}"), &[&file]);
        let rows = printed[direction].as_array().unwrap().clone();
        rows.into_iter().map(|row| (row["name"].as_str().unwrap().to_owned(), row)).collect::<Vec<_>>()
    };
    let callers = rows("callers", "aten::mm");
    assert_eq!(callers.iter().map(|(_, row)| row["calls"].as_u64().unwrap()).sum::<u64>(), 40);
    let times = callers.iter().map(|(_, row)| row["total_cpu"].as_u64().unwrap());
    assert!(times.clone().count() > 1 && times.is_sorted_by(|a, b| a >= b));
    for (caller, row) in &callers {
        let callees = rows("callees", caller);
        let (_, other) = callees.iter().find(|(name, _)| name == "aten::mm").unwrap();
        for key in ["calls", "self_cpu", "total_cpu", "total_gpu"] {
            assert_eq!(row[key], other[key], "{key} of {caller}");
        }
    }
    let none = rows("callees", "aten::mm");
    assert!(none.is_empty(), "{none:?}");
    let text = printed("report --callees aten::mm", &[&file]);
    assert_eq!(text, "it calls no other span\n");
    let wrong = run("report --callers mm", &[&file]);
    assert_eq!((wrong.code, wrong.out.as_str()), (1, ""));
    assert!(
        wrong.err.starts_with("kernspan: no span is named \"mm\"; similar names: AddmmBackward0, "),
        "{}",
        wrong.err
    );
}

#[test]
fn spans_can_be_sorted_limited_and_grouped() {
    let file = torch("transformer-shapes");
    let rows = |arguments: &str| {
        let printed = printed_json(&format!("report --json {arguments}"), &[&file]);
        printed["averages"].as_array().unwrap().clone()
    };
    let all = rows("");
    assert!(rows("--by-shape").len() > all.len() && rows("--by-stack 1").len() > all.len());
    let names: Vec<_> = rows("--sort name --limit 7").iter().map(|row| row["name"].to_string()).collect();
    assert!(names.len() == 7 && names.is_sorted(), "{names:?}");
    let modules = printed_json("report --json --by-module", &[&window("candle")]);
    let modules: Vec<_> = modules["averages"].as_array().unwrap().iter().map(|row| &row["module"]).collect();
    assert!(modules.iter().any(|module| module.is_string()), "{modules:?}");
}

#[test]
fn csv_and_markdown_can_be_parsed() {
    let sections = ["", "--kernels", "--operations", "--memory", "--steps", "--torch", "--callees train_step"];
    for (options, file) in sections.iter().flat_map(|options| WINDOWS.map(|name| (options, window(name)))) {
        if *options == "--callees train_step" && !printed("report -n 1000", &[&file]).contains("train_step") {
            continue;
        }
        let text = printed(&format!("report --format csv {options}"), &[&file]);
        let mut reader = csv::Reader::from_reader(text.as_bytes());
        let titles: BTreeSet<_> = reader.headers().unwrap().iter().map(str::to_owned).collect();
        // Fails if a row has more or fewer fields than there are titles.
        let rows = reader.records().collect::<Result<Vec<_>, _>>().unwrap();
        let json = printed_json(&format!("report --json {options}"), &[&file]);
        // The overview has many members, and any other table is the first.
        let is_table = |key: &str| !options.is_empty() || key == "averages";
        let (_, list) = json.as_object().unwrap().iter().find(|(key, _)| is_table(key)).unwrap();
        assert_eq!(rows.len(), list.as_array().unwrap().len(), "{options} of {}", file.display());
        assert!(titles.len() > 1 || rows.is_empty(), "{options} of {}", file.display());

        let text = printed(&format!("report --format md {options}"), &[&file]);
        let table: Vec<_> = text.lines().skip_while(|line| !line.starts_with('|')).collect();
        let table: Vec<_> = table.into_iter().take_while(|line| line.starts_with('|')).collect();
        let columns = |line: &str| line.replace("\\|", "").matches('|').count();
        assert!(table.iter().all(|line| columns(line) == columns(table[0])), "{options} of {}", file.display());
    }
    let two = run("report --format csv --kernels --memory", &[&window("candle")]);
    assert_eq!((two.code, two.out.as_str()), (2, ""));
    assert!(two.err.contains("CSV holds a single table"), "{}", two.err);
}

#[test]
fn steps_have_a_line_each() {
    let json = printed_json("steps --json", &[&window("training")]);
    let steps: Vec<_> = json["steps"].as_array().unwrap().iter().map(|row| row["step"].as_u64().unwrap()).collect();
    assert_eq!(steps, [2, 3, 4]);
    let durations = json["steps"].as_array().unwrap().iter().map(|row| row["duration"].as_u64().unwrap());
    assert_eq!(json["percentiles"]["longest"], durations.max().unwrap());
    // One number everywhere: that of findings.
    let advice = printed_json("advise --json", &[&window("training")]);
    assert_eq!(json["step_time"], advice["step_time"]);
    assert_eq!(json["step_time"]["mean"], advice["findings"][0]["step"], "{advice}");
    let both = printed("steps --width 200", &[&window("training"), &window("candle")]);
    let folder = window("training").parent().unwrap().display().to_string();
    assert!(both.starts_with(&format!("Files in {folder}:\n")) && both.matches(&folder).count() == 1, "{both}");
    assert!(both.contains("\ncandle ") && both.contains("5 steps: p50 "), "{both}");
}

#[test]
fn the_parts_of_a_step_are_all_of_it() {
    let parts = [
        "compute",
        "exposed_communication",
        "exposed_copies",
        "between_kernels",
        "input",
        "synchronizing",
        "launching",
        "host",
    ];
    for name in WINDOWS {
        let json = printed_json("steps --breakdown --json", &[&window(name)]);
        let steps = printed_json("steps --json", &[&window(name)]);
        assert_eq!(json["steps"].as_array().unwrap().len(), steps["steps"].as_array().unwrap().len(), "{name}");
        for row in json["steps"].as_array().unwrap() {
            let nanos = |part: &str| row[part].as_u64().unwrap();
            assert_eq!(parts.map(nanos).iter().sum::<u64>() + nanos("other"), nanos("duration"), "{name}: {row}");
            let spans = row["host_by_span"].as_array().unwrap().iter().map(|span| span[1].as_u64().unwrap());
            assert_eq!(spans.sum::<u64>(), nanos("host"), "{name}: {row}");
        }
    }
    let both = printed("steps --breakdown --width 300", &[&window("training"), &window("candle")]);
    assert!(both.contains("\ncandle ") && both.contains("of the time of all steps: compute "), "{both}");
    assert_eq!(printed("steps --breakdown --format csv", &[&window("training")]).lines().count(), 4);
}

#[test]
fn slow_steps_are_marked() {
    let event = |index: u64, start: u64, micros: u64| {
        format!(
            r#"{{"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#{index}", "pid": 1, "tid": 1,
                "ts": {start}, "dur": {micros}}}"#
        )
    };
    let events: Vec<_> =
        (0..6).map(|index| event(index, 10_000 * index, if index == 4 { 9_000 } else { 1_000 })).collect();
    let input = format!(r#"{{"traceEvents": [{}]}}"#, events.join(","));
    let run = crate::run_with_input("steps -", input.as_bytes());
    let marked: Vec<_> = run.out.lines().filter(|line| line.contains("outlier: ")).collect();
    assert_eq!(marked.len(), 1, "{}", run.out);
    assert!(run.out.contains("; 1 outlier is left out (2.33 ms with it)\n"), "{}", run.out);
    assert!(marked[0].trim_start().starts_with("4  ") && marked[0].ends_with("outlier: 9.0x median"), "{}", run.out);
}
