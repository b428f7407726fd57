//! The timeline: steps, search, and the sums of a range.

use crate::{Browser, Page, fixtures, table, text};
use kernspan::{Trace, report::units, trace::sample::spans_trace};
use serde_json::Value;
use std::{collections::BTreeMap, time::Duration};

/// The canvas of the items, below that of the whole window.
const CANVAS: &str = "document.querySelectorAll('#timeline canvas')[1]";

fn trace(file: &str) -> Trace {
    let (_, mut traces) = fixtures().find(|(path, _)| path.ends_with(file)).unwrap();
    traces.remove(0)
}

/// Opens a page and waits until its timeline is drawn.
fn open(page: &Page) -> Browser {
    let browser = Browser::start(1280, 900);
    browser.open(&page.path);
    browser.run("document.getElementById('timeline').scrollIntoView()");
    browser.wait(&format!(
        "const node = {CANVAS}; const data = node.getContext('2d').getImageData(0, 0, node.width, node.height).data;
        return data.some((value) => value !== 0)"
    ));
    browser
}

fn click(browser: &Browser, title: &str) {
    browser.run(&format!(
        "[...document.querySelectorAll('#timeline button')].find((node) => node.title.startsWith('{title}')).click()"
    ));
}

/// Types into the search field.
fn search(browser: &Browser, query: &str) {
    browser.run(&format!(
        "const input = document.querySelector('#timeline input[type=search]'); input.focus(); input.value = '';
        input.dispatchEvent(new Event('input')); input.value = {}; input.dispatchEvent(new Event('input'))",
        Value::from(query)
    ));
}

#[test]
#[ignore = "needs Chromium and ChromeDriver: .ci/run browser"]
fn sums_of_a_step_are_those_of_its_trace() {
    let trace = trace("transformer-shapes.pt.trace.json.gz");
    let browser = open(&Page::of([&trace]));
    // The whole window: sums have everything that was recorded.
    click(&browser, "the whole window");
    click(&browser, "sums of what is shown");
    let mut expected: BTreeMap<(String, String), (u64, Duration)> = BTreeMap::new();
    let mut add = |name: String, row: String, time: Duration| {
        let sum = expected.entry((name, row)).or_default();
        *sum = (sum.0 + 1, sum.1 + time);
    };
    trace.spans().for_each(|span| add(span.name().to_owned(), span.track().label(), span.duration()));
    trace.api_calls().for_each(|call| add(call.name().to_owned(), call.track().label(), call.duration()));
    for work in trace.work() {
        let row = format!("GPU {}, {}", work.stream().device(), work.stream().label());
        add(work.name().to_string(), row, work.duration());
    }
    let cut = |name: &str| name.chars().take(1000).collect::<String>();
    let mut expected: Vec<_> = expected
        .into_iter()
        .map(|((name, row), (count, time))| vec![cut(&name), row, count.to_string(), units::column_time(time)])
        .collect();
    let mut found = table(&browser, "timeline", &["Name", "Track", "Count", "Total"]);
    found.iter_mut().for_each(|row| row[0] = row[0].trim_end_matches('…').to_owned());
    expected.sort();
    found.sort();
    assert_eq!(found, expected);

    // One step: the span of PyTorch that is the step covers all of it.
    let step = &trace.steps()[0];
    browser.run(&format!("document.querySelector('#timeline input.number').value = {}", step.number()));
    browser.run("document.querySelector('#timeline input.number').dispatchEvent(new Event('change'))");
    browser.run(&format!("{CANVAS}.focus()"));
    click(&browser, "sums of what is shown");
    let rows = table(&browser, "timeline", &["Name", "Total"]);
    let of_step = rows.iter().find(|row| row[0].starts_with("ProfilerStep")).unwrap();
    assert_eq!(of_step[1], units::column_time(trace.spans().next().unwrap().duration()), "{rows:?}");
    let (requests, errors) = browser.requests_and_errors();
    assert!(requests.iter().all(|address| address.starts_with("file://")), "{requests:?}");
    assert_eq!(errors, Vec::<Value>::new());
}

#[test]
#[ignore = "needs Chromium and ChromeDriver: .ci/run browser"]
fn names_are_searched_and_jumped_to() {
    let trace = trace("transformer-shapes.pt.trace.json.gz");
    let browser = open(&Page::of([&trace]));
    search(&browser, "GEMM");
    let is_match = |name: &str| name.to_lowercase().contains("gemm");
    let work = trace.work().map(|work| (work.start(), work.name().to_string()));
    let calls = trace.api_calls().map(|call| (call.start(), call.name().to_owned()));
    let spans = trace.spans().map(|span| (span.start(), span.name().to_owned()));
    let mut matches: Vec<_> = work.chain(calls).chain(spans).filter(|(_, name)| is_match(name)).collect();
    matches.sort();
    assert!(matches.len() > 5);
    assert!(text(&browser, "#timeline .tools").contains(&format!("{} found", matches.len())));
    // Enter goes from match to match, and Shift and Enter back.
    browser.press(&["\u{e007}", "\u{e007}", "\u{e007}"]);
    assert!(text(&browser, "#timeline .tools").contains(&format!("3 of {}", matches.len())));
    let readout = text(&browser, "#timeline .readout");
    assert!(readout.starts_with(&matches[2].1), "{readout}");
    let after = units::column_time(matches[2].0.since(trace.steps()[0].start()));
    assert!(readout.contains(&format!(", {after} after the start of step ")), "{readout}");
    click(&browser, "previous match");
    assert!(text(&browser, "#timeline .readout").starts_with(&matches[1].1));
    // What is searched for stands out.
    search(&browser, "no kernel has this name");
    assert!(text(&browser, "#timeline .tools").contains("0 found"));
}

#[test]
#[ignore = "needs Chromium and ChromeDriver: .ci/run browser"]
fn a_range_is_selected_by_dragging_and_steps_by_a_click() {
    let trace = trace("scalar-read-faulty.kernspan");
    let browser = open(&Page::of([&trace]));
    let place = format!("const box = {CANVAS}.getBoundingClientRect(); return [box.left, box.top, box.width]");
    let place: Vec<f64> = serde_json::from_value(browser.run(&place)).unwrap();
    let (left, width) = (place[0] + 118.0, place[2] - 122.0);
    browser.drag((left + width / 4.0, place[1] + 50.0), (left + width / 2.0, place[1] + 60.0));
    browser.wait("return document.querySelector('#timeline .sums b') !== null");
    let selected = text(&browser, "#timeline .sums b");
    let number = |text: &str| text.trim_end_matches(|c: char| !c.is_ascii_digit()).parse::<f64>().unwrap();
    let (quarter, shown) = (units::column_time(trace.duration() / 4), selected.strip_prefix("Selected: ").unwrap());
    // A quarter of the pixels is a quarter of the window, but for a pixel, and for work that ends after the window.
    assert!((number(shown) / number(&quarter) - 1.0).abs() < 0.05, "{selected}, expected {quarter}");
    assert!(!table(&browser, "timeline", &["Name"]).is_empty());
    browser.run(&format!("{CANVAS}.focus()"));
    browser.press(&["\u{e00c}"]);
    assert_eq!(browser.run("return document.querySelector('#timeline .sums').childElementCount"), 0);

    // From a step in the chart to the same in the timeline, and on to the next.
    browser.run("document.querySelector('#steps .chart').focus()");
    browser.press(&["\u{e014}", "\u{e014}", "\u{e007}"]);
    let number = "return document.querySelector('#timeline input.number').value";
    let second = trace.steps().iter().filter(|step| !step.cut().any()).nth(1).unwrap().number();
    assert_eq!(browser.run(number), second.to_string());
    assert_eq!(browser.run("return document.activeElement.tagName"), "CANVAS");
    browser.press(&["]"]);
    assert_eq!(browser.run(number), (second + 1).to_string());
    let (_, errors) = browser.requests_and_errors();
    assert_eq!(errors, Vec::<Value>::new());
}

#[test]
#[ignore = "needs Chromium and ChromeDriver: .ci/run browser"]
fn names_in_the_timeline_are_text() {
    const BAD: &str = "<img src=x onerror='window.hacked = 1'>";
    let browser = open(&Page::of([&spans_trace(&[(BAD, None, 0, 9)])]));
    click(&browser, "sums of what is shown");
    assert_eq!(table(&browser, "timeline", &["Name"]), [[BAD]]);
    search(&browser, "onerror");
    browser.press(&["\u{e007}"]);
    assert!(text(&browser, "#timeline .readout").starts_with(BAD));
    assert_eq!(browser.run("return window.hacked ?? null"), Value::Null);
    assert_eq!(browser.run("return document.querySelectorAll('main img').length"), 0);
}
