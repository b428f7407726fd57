//! Tests in which Perfetto's trace processor, HolisticTraceAnalysis and inferno read exported files.

use crate::support::{
    awkward::awkward_program,
    profiled,
    readers::{readers, run},
};
use kernspan::{Chrome, Perfetto, Schedule, Stacks, Trace, analysis::Analysis};
use serde_json::Value as Json;
use std::{collections::BTreeMap, path::Path, sync::Arc};
use tracing::info_span;

struct Exported {
    trace: Arc<Trace>,
    folder: tempfile::TempDir,
    json: String,
    json_gz: String,
    pftrace: String,
    folded: String,
}

fn exported(program: impl FnOnce(&kernspan::Profiler)) -> Exported {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let (traces, report) = profiled(
        |builder| {
            builder
                .schedule(Schedule::steps(1..=4))
                .rank(3, 8)
                .metadata("model", "awkward")
                .metadata("traceEvents", "a name that is taken")
                .export(Chrome::to_dir(path.join("json")))
                .export(Chrome::to_dir(path.join("gz")).gzip(true))
                .export(Perfetto::to_dir(path))
                .export(Stacks::to_dir(path))
        },
        program,
    );
    let files: Vec<_> = report.files().iter().map(|file| file.to_str().unwrap().to_owned()).collect();
    let [json, json_gz, pftrace, folded] = files.try_into().unwrap();
    Exported { trace: Arc::clone(&traces[0]), folder, json, json_gz, pftrace, folded }
}

/// Returns the number and total nanoseconds of the spans of each name.
fn by_name(trace: &Trace) -> BTreeMap<String, (u64, u64)> {
    let mut names = BTreeMap::new();
    for span in trace.spans() {
        let (count, nanos) = names.entry(span.name().to_owned()).or_insert((0, 0));
        *count += 1;
        *nanos += span.duration().as_nanos() as u64;
    }
    names
}

#[test]
fn perfetto_sees_what_the_trace_says() {
    let Some((python, node)) = readers() else { return };
    let exported = exported(awkward_program);
    let trace = &exported.trace;
    let mut expected = by_name(trace);
    for step in trace.steps() {
        expected.insert(format!("ProfilerStep#{}", step.number()), (1, step.duration().as_nanos() as u64));
    }
    for event in trace.events() {
        expected.entry(event.message().to_owned()).or_insert((0, 0)).0 += 1;
    }
    for call in trace.operations() {
        expected.entry(call.name().to_owned()).or_insert((0, 0)).0 += 1;
    }
    expected.insert("loss is NaN".to_owned(), (1, 0));
    for file in [&exported.json, &exported.json_gz, &exported.pftrace] {
        let queries = [
            "select name, count(*) n, sum(max(dur, 0)) ns from slice where category is not 'call' group by name",
            "select min(ts) first, max(ts + max(dur, 0)) last from slice",
            "select count(*) n, sum(value) total from counter join counter_track on track_id = counter_track.id \
             where name in ('loss', 'loss value')",
            "select count(distinct tid) n from thread where tid > 0",
            "select c.name child, p.name parent from slice c join slice p on c.parent_id = p.id \
             where c.name = 'linear'",
            "select distinct string_value v from args where key glob '*op?shape?input' order by 1",
            "select distinct string_value v from args where key glob '*note'",
            "select count(*) n, count(distinct track_id) tracks, count(distinct parent_id) spans from slice \
             where category = 'operation'",
            "select count(*) n from slice where category = 'call'",
        ];
        let mut arguments = vec![node.to_str().unwrap(), file];
        arguments.extend(queries);
        let answers = run(python, "perfetto_sql.py", &arguments);
        let [names, extent, counter, threads, parents, shapes, notes, operations, calls] = answers.as_slice() else {
            panic!("{answers:?}")
        };

        let seen: BTreeMap<_, _> =
            rows(names).map(|row| (text(&row["name"]), (int(&row["n"]), int(&row["ns"])))).collect();
        assert_eq!(seen, expected, "{file}");
        assert_eq!(int(&extent[0]["last"]) - int(&extent[0]["first"]), trace.duration().as_nanos() as u64, "{file}");
        // Calls with several enters have a slice of their own in Perfetto's format.
        let called_again = trace.spans().filter(|span| {
            let is_last = !trace.spans().any(|next| next.previous().is_some_and(|last| last.id() == span.id()));
            is_last && span.previous().is_some()
        });
        let expected_calls = if file.ends_with(".pftrace") { called_again.count() as u64 } else { 0 };
        assert_eq!(int(&calls[0]["n"]), expected_calls, "{file}");
        assert_eq!(int(&operations[0]["n"]), trace.operations().len() as u64, "{file}");
        assert_eq!((trace.operations().len(), int(&operations[0]["tracks"])), (12, 1), "{file}");
        assert_eq!(int(&operations[0]["spans"]), 12, "in a model each: {file}");
        let samples = trace.counters()[0].samples().iter().map(|(_, value)| value).filter(|value| value.is_finite());
        assert_eq!(int(&counter[0]["n"]), samples.clone().count() as u64, "{file}");
        assert!((counter[0]["total"].as_f64().unwrap() - samples.sum::<f64>()).abs() < 1e-9, "{file}");
        assert!(int(&threads[0]["n"]) >= 1, "{file}");
        assert_eq!(rows(parents).count(), 12, "{file}");
        assert!(rows(parents).all(|row| text(&row["parent"]).starts_with("model")), "{file}");
        assert_eq!(rows(shapes).map(|row| text(&row["v"])).collect::<Vec<_>>(), ["[0, 512]", "[1, 512]", "[2, 512]"]);
        // The importer leaves escapes in a JSON argument as they are.
        let note = if file.ends_with(".pftrace") { "a\tb" } else { "a\\tb" };
        assert!(rows(notes).count() == 1 && text(&notes[0]["v"]).starts_with(note), "{file}: {notes}");
    }
}

fn rows(answer: &Json) -> impl Iterator<Item = &Json> + Clone {
    answer.as_array().unwrap().iter()
}

fn text(value: &Json) -> String {
    value.as_str().unwrap().to_owned()
}

fn int(value: &Json) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value}"))
}

#[test]
fn the_lint_for_kineto_readers_finds_nothing() {
    let Some((python, _)) = readers() else { return };
    let exported = exported(awkward_program);
    run(python, "lint_kineto.py", &["kineto", &exported.json, &exported.json_gz]);
}

#[test]
fn hta_sees_what_the_trace_says() {
    let Some((python, _)) = readers() else { return };
    let exported = exported(|profiler| {
        for _ in 0..6 {
            info_span!("forward").in_scope(|| info_span!("linear").in_scope(|| ()));
            info_span!("backward").in_scope(|| ());
            profiler.step();
        }
    });
    for folder in ["json", "gz"] {
        let folder = exported.folder.path().join(folder);
        let seen = run(python, "hta_load.py", &[folder.to_str().unwrap()]).pop().unwrap();
        assert_eq!(seen["ranks"], serde_json::json!([3]));
        assert_eq!(seen["iterations"], serde_json::json!([1, 2, 3, 4]));
        let spans = seen["spans"]["3"].as_object().unwrap();
        let expected = by_name(&exported.trace);
        assert_eq!(spans.len(), expected.len());
        for (name, (count, nanos)) in expected {
            assert_eq!(int(&spans[&name][0]), count);
            assert!((spans[&name][1].as_f64().unwrap() * 1e3 - nanos as f64).abs() < 1.0, "{name}: {spans:?}");
        }
    }
}

#[test]
fn flame_graph_tools_read_the_stacks() {
    let exported = exported(awkward_program);
    let folded = std::fs::read_to_string(&exported.folded).unwrap();
    let mut graph = Vec::new();
    let mut options = inferno::flamegraph::Options::default();
    inferno::flamegraph::from_lines(&mut options, folded.lines(), &mut graph).unwrap();
    let graph = String::from_utf8(graph).unwrap();
    for name in ["train_step", "linear", "crossing b"] {
        assert!(graph.contains(name), "{name}");
    }
    // Self times add up to the time that anything was open.
    let lines = folded.lines().filter(|line| !line.starts_with("[kernspan "));
    let total: u64 = lines.map(|line| line.rsplit_once(' ').unwrap().1.parse::<u64>().unwrap()).sum();
    let expected: u128 = exported.trace.spans().map(|span| span.self_time().as_nanos()).sum();
    assert_eq!(u128::from(total), expected);
}

/// Exports a window that was recorded on a GPU. Returns its trace and the files.
#[cfg(all(feature = "cuda", target_os = "linux"))]
fn exported_gpu(name: &str, folder: &Path) -> (Trace, Vec<String>) {
    use kernspan::Exporter;
    let trace = crate::support::recorded(name);
    let mut files = Chrome::to_dir(folder.join("json")).export(&Analysis::of(&trace)).unwrap();
    files.extend(Chrome::to_dir(folder.join("gz")).gzip(true).export(&Analysis::of(&trace)).unwrap());
    files.extend(Perfetto::to_dir(folder).export(&Analysis::of(&trace)).unwrap());
    (trace, files.iter().map(|file| file.to_str().unwrap().to_owned()).collect())
}

/// Returns the number and total nanoseconds of the pieces of work of each name.
#[cfg(all(feature = "cuda", target_os = "linux"))]
fn work_by_name(trace: &Trace) -> BTreeMap<String, (u64, u64)> {
    let mut names = BTreeMap::new();
    for work in trace.work() {
        let (count, nanos) = names.entry(work.name().to_string()).or_insert((0, 0));
        *count += 1;
        *nanos += work.duration().as_nanos() as u64;
    }
    names
}

#[test]
#[cfg(all(feature = "cuda", target_os = "linux"))]
fn perfetto_sees_what_the_gpu_did() {
    let Some((python, node)) = readers() else { return };
    for name in ["training", "calls", "candle"] {
        let folder = tempfile::tempdir().unwrap();
        let (trace, files) = exported_gpu(name, folder.path());
        let launched = trace.work().filter(|work| work.call().is_some()).count() as u64;
        for file in &files {
            let queries = [
                // Spans may have the names of kernels, so work is found by arguments that only work has.
                "select s.name, count(*) n, sum(s.dur) ns from slice s \
                 where exists (select 1 from args a where a.arg_set_id = s.arg_set_id \
                 and a.key glob '*correlation' and a.int_value > 0) \
                 and exists (select 1 from args a where a.arg_set_id = s.arg_set_id \
                 and (a.key glob '*registers*' or a.key glob '*bytes')) group by s.name",
                "select count(*) n from flow",
                "select count(*) n from flow join slice o on slice_out = o.id join slice i on slice_in = i.id \
                 where o.ts <= i.ts and (o.name glob 'cu*')",
                "select count(*) n from slice where name glob 'cuLaunchKernel'",
                "select count(distinct p.name) n, min(p.name) name from slice s join slice p on s.parent_id = p.id \
                 where s.name = 'cuGraphLaunch'",
                "select coalesce(sum(value), 0) n from stats where severity = 'error' and name not glob 'traced*'",
                // The events of the tab GPU Compute. Their arguments need a newer Perfetto.
                "select s.name, count(*) n, sum(s.dur) ns from gpu_slice s join gpu_track t on t.id = s.track_id \
                 where s.upid is not null group by s.name",
            ];
            let mut arguments = vec![node.to_str().unwrap(), file];
            arguments.extend(queries);
            let answers = run(python, "perfetto_sql.py", &arguments);
            let [work, flows, arrows, calls, graphs, errors, kernels] = answers.as_slice() else {
                panic!("{answers:?}")
            };
            if file.ends_with(".pftrace") {
                let seen: BTreeMap<_, _> =
                    rows(kernels).map(|row| (text(&row["name"]), (int(&row["n"]), int(&row["ns"])))).collect();
                let mut expected = work_by_name(&trace);
                expected.retain(|name, _| !name.starts_with("Memcpy") && !name.starts_with("Memset"));
                assert_eq!(seen, expected, "{file}");
            }
            let seen: BTreeMap<_, _> =
                rows(work).map(|row| (text(&row["name"]), (int(&row["n"]), int(&row["ns"])))).collect();
            assert_eq!(seen, work_by_name(&trace), "{file}");
            assert_eq!(int(&flows[0]["n"]), launched, "{file}");
            assert_eq!(int(&arrows[0]["n"]), launched, "{file}");
            let launches = trace.api_calls().filter(|call| call.name() == "cuLaunchKernel").count() as u64;
            assert_eq!(int(&calls[0]["n"]), launches, "{file}");
            // All graphs are launched in the span `graph`.
            let launches_graphs = trace.api_calls().any(|call| call.name() == "cuGraphLaunch");
            assert_eq!(int(&graphs[0]["n"]), u64::from(launches_graphs), "{file}");
            assert!(!launches_graphs || text(&graphs[0]["name"]) == "graph", "{file}");
            assert_eq!(int(&errors[0]["n"]), 0, "{file}");
        }
    }
}

#[test]
#[cfg(feature = "read")]
fn perfetto_sees_the_same_in_a_converted_trace_of_pytorch() {
    use kernspan::Exporter;
    let Some((python, node)) = readers() else { return };
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/torch");
    // Perfetto drops ranges that cross, of which PyTorch's file with stacks has ten; the converted one has none.
    for name in ["transformer-shapes", "convolution-shapes", "graph", "perceptron-stack"] {
        let original = fixtures.join(format!("{name}.pt.trace.json.gz"));
        let trace = kernspan::read(&original).unwrap().remove(0);
        let folder = tempfile::tempdir().unwrap();
        let json = Chrome::to_dir(folder.path()).export(&Analysis::of(&trace)).unwrap().remove(0);
        let pftrace = Perfetto::to_dir(folder.path()).export(&Analysis::of(&trace)).unwrap().remove(0);
        let seen = |file: &Path| {
            let queries = [
                // Without the kernels that only Perfetto's own format has twice.
                "select category, count(*) n from slice where category is not 'cpu_instant_event' \
                 and id not in (select id from gpu_slice) group by category",
                "select o.name source, i.name target, count(*) n from flow join slice o on slice_out = o.id \
                 join slice i on slice_in = i.id group by 1, 2 order by 1, 2",
                "select s.name, count(*) n, sum(dur) ns from slice s where category = 'gpu_user_annotation' \
                 group by s.name order by s.name",
                "select count(*) n from slice where name = '[memory]'",
                "select count(*) n from counter c join counter_track t on c.track_id = t.id \
                 where t.name glob '*memory in use'",
                "select name, count(*) n from process where pid > 0 and name glob '?*' and name not in ('Spans', \
                 'Traces') group by name",
            ];
            let mut arguments = vec![node.to_str().unwrap(), file.to_str().unwrap()];
            arguments.extend(queries);
            // It fails if Perfetto has found an error in the file.
            run(python, "perfetto_sql.py", &arguments)
        };
        let (json, pftrace) = (seen(&json), seen(&pftrace));
        let (slices, arrows, labels, memory, processes) = (0, 1, 2, 3, 5);
        let changes = trace.allocations().len() + trace.torch().unwrap().host_memory_changes();
        assert_eq!(int(&json[memory][0]["n"]), changes as u64, "{name}");
        assert_eq!(int(&pftrace[4][0]["n"]), changes as u64, "{name}");
        for part in [slices, arrows, labels] {
            assert_eq!(json[part], pftrace[part], "{name}");
        }
        assert_eq!(text(&pftrace[processes][0]["name"]), "python3", "{name}");
        if name != "perceptron-stack" {
            assert_eq!(json, seen(&original), "{name}");
        }
    }
}

#[test]
#[cfg(all(feature = "cuda", target_os = "linux"))]
fn the_lint_finds_nothing_in_what_a_gpu_did() {
    let Some((python, _)) = readers() else { return };
    for name in ["training", "calls", "candle"] {
        let folder = tempfile::tempdir().unwrap();
        let (_, files) = exported_gpu(name, folder.path());
        run(python, "lint_kineto.py", &["kineto", &files[0], &files[1]]);
    }
}

#[test]
#[cfg(all(feature = "cuda", target_os = "linux"))]
fn hta_sees_what_the_gpu_did() {
    let Some((python, _)) = readers() else { return };
    // Without the recording that has waits, which HTA counts as work.
    for recording in ["calls", "candle"] {
        let folder = tempfile::tempdir().unwrap();
        let (trace, _) = exported_gpu(recording, folder.path());
        let seen = run(python, "hta_load.py", &[folder.path().join("json").to_str().unwrap()]).pop().unwrap();
        let work = seen["work"]["0"].as_object().unwrap();
        let expected = work_by_name(&trace);
        assert_eq!(work.keys().collect::<Vec<_>>(), expected.keys().collect::<Vec<_>>());
        for (name, (count, nanos)) in expected {
            assert_eq!(int(&work[&name][0]), count, "{name}");
            assert!((work[&name][1].as_f64().unwrap() * 1e3 - nanos as f64).abs() < 1.0, "{name}: {work:?}");
        }
        // HTA computes the time in which anything ran on the GPU, as the trace does.
        let busy = seen["busy"]["0"].as_f64().unwrap();
        let mut intervals: Vec<_> = trace.work().map(|work| (work.start(), work.end())).collect();
        intervals.sort_unstable();
        let (mut until, mut nanos) = (trace.start(), 0);
        for (start, end) in intervals {
            nanos += end.since(start.max(until)).as_nanos();
            until = until.max(end);
        }
        assert!((busy * 1e3 - nanos as f64).abs() < 1e3, "{busy} µs, not {nanos} ns");
    }
}

#[test]
#[cfg(all(feature = "cuda", target_os = "linux"))]
fn hta_does_every_analysis_that_one_rank_allows() {
    use kernspan::Exporter;
    let Some((python, _)) = readers() else { return };
    for (recording, operator) in [("training", "loss"), ("candle", "data")] {
        let (trace, folder) = (crate::support::recorded(recording), tempfile::tempdir().unwrap());
        Chrome::to_dir(folder.path()).runtime_names(true).export(&Analysis::of(&trace)).unwrap();
        // A single rank does not communicate, and only PyTorch's operators are `aten::`.
        let arguments = [folder.path().to_str().unwrap(), "1", operator, "overlap", "stragglers", "aten operators"];
        let seen = run(python, "hta_analyses.py", &arguments).pop().unwrap();
        let steps: Vec<_> = trace.steps().iter().map(kernspan::trace::Step::number).collect();
        assert_eq!(seen["steps"], serde_json::json!(steps));
        // Graphs are launched by another function.
        let launched = trace.work().filter(|work| work.graph().is_none()).count();
        assert_eq!(int(&seen["launches"]["0"]), launched as u64, "{recording}");
    }
}
