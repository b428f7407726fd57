mod followed;
mod units;

use super::{Html, HtmlReport};
use crate::{
    Profiler, Report, Schedule,
    analysis::{Analysis, SampledLine},
    export::{Collected, samples::awkward_trace},
    trace::{
        Detail, Losses, Metadata, Timestamp, Trace,
        sample::{
            gpu_trace, losses_mut, memory_trace, operations_trace, ranks, remove_steps, repeat_work, set_caller,
            set_parent, set_track, spans_trace, stacks_trace,
        },
    },
};
use serde_json::Value;
use std::{fs, sync::Arc};
use tracing_subscriber::prelude::*;

/// Returns the document in a page.
fn document(page: &str) -> Value {
    let start = page.split_once("id=\"data\">\n").unwrap().1;
    serde_json::from_str(start.split_once("\n</script>").unwrap().0).unwrap()
}

fn section<'a>(document: &'a Value, id: &str) -> Option<&'a Value> {
    document["sections"].as_array().unwrap().iter().find(|section| section["id"] == id)
}

/// Returns the cells of a column of a table, by the title.
fn column(document: &Value, id: &str, title: &str) -> Vec<Value> {
    let table = section(document, id).unwrap();
    let columns = table["columns"].as_array().unwrap();
    let index = columns.iter().position(|column| column[0] == title);
    let index = index.unwrap_or_else(|| panic!("{id} has no column {title}: {columns:?}"));
    let cell = |row: &Value| match columns[index][1].as_str().unwrap() {
        "name" | "function" => document["names"][row[index].as_u64().unwrap() as usize].clone(),
        _ => row[index].clone(),
    };
    table["rows"].as_array().unwrap().iter().map(cell).collect()
}

fn page_of(traces: &[Trace]) -> (String, Value) {
    let page = HtmlReport::of(traces).to_string();
    let document = document(&page);
    (page, document)
}

#[test]
fn sections_are_those_that_have_something_to_show() {
    let kinds = |traces: &[Trace]| -> Vec<String> {
        let (_, document) = page_of(traces);
        let text = |section: &Value, key: &str| section[key].as_str().unwrap().to_owned();
        let sections = document["sections"].as_array().unwrap().iter();
        sections.map(|section| format!("{} {}", text(section, "id"), text(section, "kind"))).collect()
    };
    assert_eq!(kinds(&[Trace::default()]), ["answer answer", "findings empty", "run facts"]);
    assert_eq!(
        kinds(&[gpu_trace()]),
        [
            "answer answer",
            "findings findings",
            "steps steps",
            "timeline timeline",
            "spans table",
            "kernels table",
            "gpu series",
            "memory series",
            "peak-of-0 table",
            "host-flame flame",
            "gpu-flame flame",
            "run facts",
        ]
    );
    let of_ranks = kinds(&ranks());
    assert_eq!(of_ranks[2], "ranks table", "{of_ranks:?}");
    assert!(kinds(&[operations_trace()]).contains(&"operations table".to_owned()));
    let mut unstepped = gpu_trace();
    remove_steps(&mut unstepped);
    let unstepped = kinds(&[unstepped]);
    assert!(unstepped.contains(&"timeline timeline".to_owned()) && !unstepped.contains(&"steps steps".to_owned()));
}

#[test]
fn the_answer_is_the_step_that_savings_are_a_part_of() {
    let trace = gpu_trace();
    let (report, (_, document)) = (Report::of([&trace]), page_of(std::slice::from_ref(&trace)));
    let answer = section(&document, "answer").unwrap();
    let first = &report.findings()[0];
    assert_eq!(answer["step"], first.step.as_nanos() as u64);
    let values: u64 = answer["values"].as_array().unwrap().iter().filter_map(Value::as_u64).sum();
    assert_eq!(values, 100_000, "two steps of 100 µs");
    let shown = &section(&document, "findings").unwrap()["items"][0];
    let saving = [first.saving.least, first.saving.likely, first.saving.most].map(|time| time.as_nanos() as u64);
    assert_eq!(shown["saving"], serde_json::json!(saving));
    assert_eq!(shown["remedies"].as_array().unwrap().len(), first.remedies.len());
    assert_eq!(shown["remedies"][0]["change"], first.advice());
    assert_eq!(shown["ranges"][0].as_array().unwrap().len(), 5, "the moment is in the timeline");
    // A window without steps has no such time, and one without GPU work no idle GPU.
    let (_, without) = page_of(&[spans_trace(&[("train_step", None, 0, 10)])]);
    assert_eq!(section(&without, "answer").unwrap()["step"], Value::Null);
}

#[test]
fn percentiles_say_how_exactly_they_are_known() {
    let spans: Vec<_> = (0..5_000_u64).map(|call| ("call", None, 10 * call, 10 * call + 1 + call % 7)).collect();
    let (_, document) = page_of(&[spans_trace(&spans)]);
    let median = column(&document, "spans", "p50")[0].clone();
    let rows = Report::of([&spans_trace(&spans)]).averages().rows();
    assert_eq!(median, serde_json::json!([rows[0].p50_cpu.as_nanos() as u64]), "known to three digits");
    let (_, few) = page_of(&[spans_trace(&spans[..3])]);
    assert_eq!(column(&few, "spans", "p50"), [2_000]);
}

#[test]
fn numbers_are_those_of_the_report() {
    for trace in [gpu_trace(), awkward_trace(), operations_trace()] {
        let (report, (_, document)) = (Report::of([&trace]), page_of(std::slice::from_ref(&trace)));
        let mut expected: Vec<_> = report
            .averages()
            .group_by_stack(usize::MAX)
            .limit(usize::MAX)
            .rows()
            .iter()
            .map(|row| {
                let nanos = [row.total_cpu, row.self_cpu, row.total_gpu, row.self_gpu].map(|time| time.as_nanos());
                (row.name.clone(), nanos.map(|nanos| nanos as u64), row.calls)
            })
            .collect();
        let of = |title| column(&document, "spans", title);
        let titles = ["Total time", "Self time", "CUDA total", "Self CUDA"].map(of);
        let mut found: Vec<_> = of("Name")
            .iter()
            .zip(of("# of Calls"))
            .enumerate()
            .map(|(row, (name, calls))| {
                let nanos = titles.each_ref().map(|cells| cells[row].as_u64().unwrap());
                (name.as_str().unwrap().to_owned(), nanos, calls.as_u64().unwrap())
            })
            .collect();
        expected.sort();
        found.sort();
        assert_eq!(found, expected);
        let kernels: Vec<_> = report.kernels().rows().iter().map(|row| row.total.as_nanos() as u64).collect();
        assert_eq!(column(&document, "kernels", "CUDA total"), kernels);
        let exposed: u128 = Analysis::of(&trace).span_costs().iter().map(|cost| cost.exposed.as_nanos()).sum();
        let shown: u128 = of("Exposed").iter().filter_map(Value::as_u64).map(u128::from).sum();
        assert_eq!(shown, exposed);
        let findings = section(&document, "findings").unwrap()["items"].as_array().map_or(0, Vec::len);
        assert_eq!(findings, report.findings().len());
    }
}

#[test]
fn flame_graphs_have_all_time() {
    let trace = gpu_trace();
    let (_, document) = page_of(std::slice::from_ref(&trace));
    let sum = |id| section(&document, id).unwrap()["values"].as_array().unwrap().iter().filter_map(Value::as_u64).sum();
    let host: u64 = sum("host-flame");
    let gpu: u64 = sum("gpu-flame");
    assert_eq!(u128::from(host), trace.spans().map(|span| span.self_time().as_nanos()).sum());
    assert_eq!(u128::from(gpu), trace.work().map(|work| work.duration().as_nanos()).sum());
}

#[test]
fn spans_are_inside_those_that_they_work_for() {
    let spans = [("task", None, 20, 30), ("piece", Some(0), 22, 24), ("request", None, 0, 10)];
    let mut trace = spans_trace(&spans);
    [0, 1].into_iter().for_each(|span| set_track(&mut trace, span, "worker"));
    set_caller(&mut trace, 0, Some(2));
    let (_, document) = page_of(&[trace]);
    assert_eq!(column(&document, "spans", "Name"), ["request", "task", "piece"]);
    assert_eq!(section(&document, "spans").unwrap()["parents"], serde_json::json!([-1, 0, 1]));
}

#[test]
fn memory_is_counted_for_the_spans_that_allocated_it() {
    let records = [(1, Some(50), 150, None), (2, Some(70), 220, None), (2, None, 150, None), (3, Some(5), 155, None)];
    let (_, document) = page_of(&[memory_trace(&records)]);
    let lines = section(&document, "memory").unwrap()["charts"][0]["lines"].as_array().unwrap();
    let most = |line: &Value| line["values"].as_array().unwrap().iter().filter_map(Value::as_u64).max();
    assert_eq!(lines[0]["name"], "[allocated before the window]");
    assert_eq!(lines.iter().map(most).collect::<Vec<_>>(), [Some(100), Some(120)]);
}

#[test]
fn names_stay_text_whatever_they_are() {
    const BAD: [&str; 4] = ["</script><script>alert(1)</script>", "<!--", "]]>&\"'\\\u{2028}", "<img src=x onerror=x>"];
    let spans: Vec<_> =
        BAD.iter().enumerate().map(|(at, &name)| (name, None, 10 * at as u64, 10 * at as u64 + 9)).collect();
    let (page, document) = page_of(&[spans_trace(&spans)]);
    let mut names = column(&document, "spans", "Name");
    names.sort_by_key(Value::to_string);
    let mut expected = BAD.map(Value::from);
    expected.sort_by_key(Value::to_string);
    assert_eq!(names, expected);
    for bad in ["<script>alert", "<!--", "<img"] {
        assert!(!page.contains(bad), "{bad}");
    }
    assert_eq!(page.matches("</script>").count(), 2);
}

#[test]
fn a_huge_name_is_cut() {
    let name: &'static str = Box::leak("模".repeat(1 << 20).into_boxed_str());
    let (page, document) = page_of(&[spans_trace(&[(name, None, 0, 9)])]);
    let shown = column(&document, "spans", "Name")[0].as_str().unwrap().chars().count();
    assert_eq!(shown, 1_001);
    // The report as text has it in full.
    assert!(page.len() < 2 * name.len() + 200_000, "{}", page.len());
}

#[test]
fn kernels_have_short_names_and_keep_their_full_ones() {
    let full = "void at::vectorized_elementwise_kernel<4, at::AbsFunctor<float> >(int, at::AbsFunctor<float>)";
    let mut trace = gpu_trace();
    for work in &mut trace.work {
        if let Detail::Kernel(kernel) = &mut work.detail
            && &*kernel.name == "gemm"
        {
            kernel.name = full.into();
        }
    }
    let (_, document) = page_of(&[trace]);
    assert!(column(&document, "kernels", "Kernel").contains(&full.into()));
    let names = document["names"].as_array().unwrap();
    let index = names.iter().position(|name| name == full).unwrap();
    assert_eq!(document["short"], serde_json::json!([[index, "elementwise_kernel<Abs>"]]));
}

/// Returns a window of one step in which spans are nested this deep.
fn recursion(depth: usize) -> Trace {
    let mut trace = gpu_trace();
    let span = trace.spans[0].clone();
    trace.spans.truncate(1);
    trace.spans.extend((1..depth).map(|_| span.clone()));
    (1..depth).for_each(|span| set_parent(&mut trace, span, span - 1));
    trace.spans.iter_mut().for_each(|span| span.self_nanos = 10);
    (trace.work, trace.api_calls, trace.allocations) = Default::default();
    trace
}

#[test]
fn a_page_of_deep_recursion_is_small_and_says_what_it_leaves_out() {
    let (page, document) = page_of(&[recursion(20_000)]);
    assert!(page.len() < 1_000_000, "{}", page.len());
    let spans = section(&document, "spans").unwrap();
    assert_eq!(spans["leftOut"], 19_800);
    assert_eq!(spans["rows"].as_array().unwrap().len(), 200);
    let flame = section(&document, "host-flame").unwrap();
    let note = flame["note"].as_str().unwrap();
    assert!(note.starts_with("19800 frames are left out") && note.contains("200 deep"), "{note}");
    let values = flame["values"].as_array().unwrap();
    assert_eq!((values.len(), values.iter().filter_map(Value::as_u64).sum::<u64>()), (200, 200_000));
    let notes = &section(&document, "timeline").unwrap()["windows"][0]["notes"];
    assert_eq!(*notes, serde_json::json!(["19900 items nested more than 100 deep are left out"]));
}

#[test]
fn losses_are_at_the_top() {
    let (_, document) = page_of(&[gpu_trace()]);
    assert_eq!(document.get("losses"), None);
    let mut trace = gpu_trace();
    *losses_mut(&mut trace) = Losses { over_memory: 1_000, ..Losses::default() };
    let (_, document) = page_of(&[trace]);
    let losses = document["losses"].as_array().unwrap();
    assert!(losses[0].as_str().unwrap().contains("% of all records were dropped"), "{losses:?}");
    assert!(losses[1].as_str().unwrap().starts_with("memory limit reached: 1000 records dropped; "), "{losses:?}");
}

#[test]
fn a_page_is_named_after_its_file_or_its_run() {
    let mut trace = gpu_trace();
    let title = |page: HtmlReport| document(&page.to_string())["title"].as_str().unwrap().to_owned();
    assert_eq!(title(HtmlReport::of([&trace]).named("a.json")), "a.json – kernspan");
    trace.metadata = Arc::new(Metadata { process: "train".to_owned(), ..(*trace.metadata).clone() });
    trace.start = Timestamp::from_unix_nanos(1_794_735_000_123_456_789);
    assert_eq!(title(HtmlReport::of([&trace])), "train, 2026-11-15 09:30:00 UTC – kernspan");
    assert_eq!(title(HtmlReport::default()), "kernspan");
}

#[test]
fn a_hundred_thousand_kernels_are_all_there() {
    let mut trace = gpu_trace();
    repeat_work(&mut trace, 1, 100_000);
    let work = trace.work().len() as u64;
    let (page, document) = page_of(&[trace]);
    let window = &section(&document, "timeline").unwrap()["windows"][0];
    assert_eq!(window["notes"], serde_json::json!([]));
    let rows = window["rows"].as_array().unwrap().iter().filter(|row| row[1] == 1);
    let shown: u64 = rows.flat_map(|row| row[2].as_array().unwrap()).filter_map(Value::as_u64).sum();
    assert_eq!(shown, work);
    assert!(page.len() < 3_000_000, "{}", page.len());
}

#[test]
fn a_run_has_one_page_with_all_its_steps() {
    let folder = tempfile::tempdir().unwrap();
    let collected = Collected::new();
    let (layer, profiler) = Profiler::builder()
        .schedule(Schedule::new().wait(3).active(2).repeat(2))
        .export(Html::to_dir(folder.path()))
        .export(collected.clone())
        .build()
        .unwrap();
    tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
        for _ in 0..12 {
            tracing::info_span!("train_step").in_scope(|| ());
            profiler.step();
        }
    });
    let report = profiler.finish().unwrap();
    let [path] = report.files() else { panic!("{:?}", report.files()) };
    let document = document(&fs::read_to_string(path).unwrap());
    let steps = section(&document, "steps").unwrap();
    assert_eq!(steps["first"], serde_json::json!((0..12).collect::<Vec<_>>()));
    assert_eq!(steps["windows"], serde_json::json!([[3, 4, 0], [8, 9, 1]]));
    assert_eq!(column(&document, "spans", "# of Calls"), [4]);
    let facts = section(&document, "run").unwrap()["items"].to_string();
    assert!(facts.contains("schedule"), "{facts}");
    // Kernels and copies were asked for, too, but recorded only if there is a GPU.
    let recorded = if report.gpu().is_available() { "Host, Kernels, Copies" } else { "Host" };
    assert!(facts.contains(&format!("[\"recorded\",\"{recorded}\"]")), "{facts}");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing else is left");
    // The same windows, kept: the steps that were not recorded are not known.
    let (_, kept) = page_of(&collected.traces().iter().map(|trace| (**trace).clone()).collect::<Vec<_>>());
    assert_eq!(section(&kept, "steps").unwrap()["first"], serde_json::json!([3, 4, 8, 9]));
}

#[test]
fn the_page_and_the_report_say_the_same_of_the_overhead() {
    let folder = tempfile::tempdir().unwrap();
    let (layer, profiler) = Profiler::builder()
        .schedule(Schedule::new().wait(8).active(6).repeat(1))
        .export(Html::to_dir(folder.path()))
        .build()
        .unwrap();
    tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
        for _ in 0..20 {
            tracing::info_span!("train_step").in_scope(|| ());
            profiler.step();
        }
    });
    let report = profiler.finish().unwrap();
    let [path] = report.files() else { panic!("{:?}", report.files()) };
    let document = document(&fs::read_to_string(path).unwrap());
    let notes = &section(&document, "run").unwrap()["notes"];
    let cost = report.recording_cost().expect("there are enough steps of both kinds").to_string();
    assert_eq!(notes[0], cost, "{notes}");
}

#[test]
fn a_page_that_cannot_be_written_is_reported_and_harms_nobody() {
    let folder = tempfile::tempdir().unwrap();
    let runs = folder.path().join("runs");
    let (layer, profiler) = Profiler::builder().export(Html::to_dir(&runs)).build().unwrap();
    fs::remove_dir(&runs).unwrap();
    fs::write(&runs, "a file").unwrap();
    tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
        tracing::info_span!("train_step").in_scope(|| ());
    });
    let error = profiler.finish().unwrap_err().to_string();
    assert!(error.contains("Html"), "{error}");
}

#[test]
fn sampled_lines_and_functions_are_tables() {
    let (_, document) = page_of(&[stacks_trace()]);
    let report = Report::of([&stacks_trace()]);
    let lines = report.lines().rows();
    let spans: Vec<_> = lines.iter().map(|line| line.span.as_deref().unwrap_or("[outside spans]")).collect();
    assert_eq!(column(&document, "lines", "Span"), spans);
    let nanos: Vec<_> = lines.iter().map(|line| line.time.cpu.as_nanos() as u64).collect();
    assert_eq!(column(&document, "lines", "CPU"), nanos);
    let shares: Vec<_> = lines.iter().map(SampledLine::percent).collect();
    assert_eq!(column(&document, "lines", "CPU %").iter().map(Value::as_f64).collect::<Vec<_>>(), shares);
    let hot: Vec<_> = (0..lines.len()).filter(|&row| lines[row].is_hot()).collect();
    assert!(!hot.is_empty() && hot.len() < lines.len(), "{hot:?}");
    assert_eq!(section(&document, "lines").unwrap()["marked"], serde_json::json!(hot));
    let functions: Vec<_> = report.functions().rows().iter().map(|row| row.function.clone()).collect();
    assert_eq!(column(&document, "functions", "Function"), functions);
    let softmax =
        document["names"].as_array().unwrap().iter().position(|name| name == "train::model::softmax").unwrap();
    let short = section(&document, "functions").unwrap()["short"].as_array().unwrap().clone();
    assert!(short.contains(&serde_json::json!([softmax, "model::softmax"])), "{short:?}");
    let (_, without) = page_of(&[gpu_trace()]);
    assert!(section(&without, "lines").is_none() && section(&without, "functions").is_none());
}
