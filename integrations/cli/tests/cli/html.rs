//! Pages of reports, comparisons and sweeps.

use crate::{fixture, run, written};
use serde_json::Value;
use std::{fs, path::Path};

/// Writes a page, and returns it with its document.
fn page(arguments: &str, files: &[&Path]) -> (String, Value) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("page.html");
    let arguments = format!("{arguments} --html {}", path.display());
    written(&arguments, files);
    let page = fs::read_to_string(path).unwrap();
    let start = page.split_once("id=\"data\">\n").unwrap().1;
    let document = serde_json::from_str(start.split_once("\n</script>").unwrap().0).unwrap();
    (page, document)
}

/// Returns all sections, those in columns too.
fn sections(document: &Value) -> Vec<&Value> {
    let inner = |section: &'_ Value| section["columns"].as_array().filter(|_| section["kind"] == "columns").is_some();
    let mut all: Vec<&Value> = document["sections"].as_array().unwrap().iter().collect();
    let outer: Vec<_> = all.iter().filter(|section| inner(section)).copied().collect();
    all.extend(outer.iter().flat_map(|section| section["columns"].as_array().unwrap()));
    all
}

fn find<'a>(document: &'a Value, id: &str) -> &'a Value {
    sections(document).into_iter().find(|section| section["id"] == id).unwrap_or_else(|| panic!("no section {id}"))
}

/// Returns the cells of a column by its title.
fn column(document: &Value, id: &str, title: &str) -> Vec<Value> {
    let table = find(document, id);
    let index = table["columns"].as_array().unwrap().iter().position(|column| column[0] == title).unwrap();
    table["rows"].as_array().unwrap().iter().map(|row| row[index].clone()).collect()
}

/// Checks that all sections can be drawn: kinds are known, lists are as long as each other, names are there.
fn check(page: &str, document: &Value) {
    let names = document["names"].as_array().unwrap().len() as u64;
    for section in sections(document) {
        let (kind, id) = (section["kind"].as_str().unwrap(), &section["id"]);
        assert!(page.contains(&format!("  {kind}: ")), "{kind} is no kind that the page knows");
        let list = |key: &str| section[key].as_array().unwrap_or_else(|| panic!("{id} has no {key}"));
        if kind == "flame" {
            let lists = ["parents", "names", "values", "changes"].map(list);
            assert!(lists.iter().all(|list| list.len() == lists[0].len()), "{id}");
            assert!(lists[1].iter().all(|name| name.as_u64().unwrap() < names), "{id}");
            let parents = lists[0].iter().enumerate();
            assert!(parents.into_iter().all(|(index, parent)| parent.as_i64().unwrap() < index as i64), "{id}");
        } else if kind == "table" {
            let (columns, rows) = (list("columns"), list("rows"));
            assert!(rows.iter().all(|row| row.as_array().unwrap().len() == columns.len()), "{id}");
            let units = columns.iter().map(|column| column[1].as_str().unwrap());
            units.for_each(|unit| assert!(page.contains(&format!("  {unit}: (")), "{unit} is no unit of the page"));
        }
    }
}

#[test]
fn pages_of_reports_are_named_after_their_files() {
    let [first, second] = ["transformer", "graph"].map(|name| fixture(&format!("torch/{name}.pt.trace.json.gz")));
    let title = |files: &[&Path]| page("report", files).1["title"].as_str().unwrap().to_owned();
    assert_eq!(title(&[&first]), "transformer.pt.trace.json.gz – kernspan");
    assert_eq!(title(&[&second]), "graph.pt.trace.json.gz – kernspan");
    assert_eq!(title(&[&first, &second]), "transformer.pt.trace.json.gz and 1 more – kernspan");
}

#[test]
fn a_comparison_is_a_page() {
    let files = ["repaired", "faulty"].map(|name| fixture(&format!("faults/launch-bound-{name}.kernspan")));
    let (page, document) = page("diff", &[&files[0], &files[1]]);
    check(&page, &document);
    let ids: Vec<_> = sections(&document).iter().map(|section| section["id"].as_str().unwrap()).collect();
    for id in
        ["overview", "before", "after", "explanations", "host-flame-before", "gpu-flame-after", "spans", "kernels"]
    {
        assert!(ids.contains(&id), "{ids:?}");
    }
    // The whole time of the side before is in its flame graph, and a span that is gone is only there.
    let names = |id: &str| -> Vec<String> {
        let names = find(&document, id)["names"].as_array().unwrap().iter();
        names.map(|name| document["names"][name.as_u64().unwrap() as usize].as_str().unwrap().to_owned()).collect()
    };
    let (before, after) = (names("host-flame-before"), names("host-flame-after"));
    assert!(before.contains(&"graph".to_owned()) && !after.contains(&"graph".to_owned()));
    assert!(after.contains(&"forward".to_owned()) && !before.contains(&"forward".to_owned()));
    // Other findings of the launches may be new, too.
    assert_eq!(column(&document, "findings", "Kind")[0], "launch-bound");
    assert!(
        page.contains("<noscript>")
            && page.contains("What explains the difference of the step (on the critical path):")
    );
    let out = run("diff --html -", &[&files[0], &files[1]]);
    assert_eq!((out.code, out.out), (0, page), "standard output is a file, too");
}

#[test]
fn pages_of_all_faults_can_be_drawn() {
    for fault in ["allocations", "input", "scalar-read", "small-batch", "exposed-copy"] {
        let files = ["repaired", "faulty"].map(|name| fixture(&format!("faults/{fault}-{name}.kernspan")));
        let (page, document) = page("diff", &[&files[0], &files[1]]);
        check(&page, &document);
    }
}

#[test]
fn a_sweep_is_a_page() {
    let named = [("8", "faulty"), ("128", "repaired")]
        .map(|(value, name)| format!("{value}={}", fixture(&format!("faults/small-batch-{name}.kernspan")).display()));
    let named: Vec<&Path> = named.iter().map(Path::new).collect();
    let (page, document) = page("sweep --of BATCH_SIZE", &named);
    check(&page, &document);
    let charts = find(&document, "charts");
    assert_eq!((&charts["labels"], &charts["marked"]), (&serde_json::json!(["8", "128"]), &1.into()));
    let throughput = &charts["charts"][0]["values"];
    assert!(throughput[1].as_f64().unwrap() > 10.0 * throughput[0].as_f64().unwrap(), "{throughput}");
    assert_eq!(column(&document, "runs", "items/s"), *throughput.as_array().unwrap());
}
