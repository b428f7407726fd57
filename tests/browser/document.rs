//! Pages of sections that are not of a report: two columns, flame graphs of differences, lines, and a scatter plot.

use crate::{Browser, table, text};
use kernspan::export::HtmlDocument;
use serde_json::{Value, json};
use std::fs;

/// A document as `kernspan diff` and `kernspan sweep` make them.
fn document() -> Value {
    let flame = |side: &str, values: [u64; 2]| {
        json!({"id": side, "title": side, "kind": "flame", "unit": "time", "parents": [-1, 0], "names": [0, 1],
            "values": values, "changes": [0, 2_000_000]})
    };
    let columns = [["Span", "name", ""], ["", "word", "new or gone"], ["Change", "change", ""]];
    let lines = json!([{"title": "items/s", "unit": "rate", "values": [100.0, null, 250.5]}]);
    let scatter = json!([{"x": ["GPU memory", "memory"], "y": ["items/s", "rate"],
        "points": [["16", 1024, 100.0, true], ["32", 4096, 250.5, true], ["64", 4096, 90.0, false]]}]);
    json!({"format": 1, "title": "a → b", "made": "Made by a test.", "names": ["step", "<b>forward</b>"], "sections": [
        {"id": "flames", "title": "Flames", "kind": "columns", "note": "Red took longer.",
            "columns": [flame("before", [5_000_000, 1_000_000]), flame("after", [5_000_000, 3_000_000])]},
        {"id": "spans", "title": "Spans", "kind": "table", "columns": columns,
            "rows": [[0, "", -1500], [1, "new", 2_000_000]], "parents": [-1, 0], "leftOut": 0},
        {"id": "lines", "title": "Batch", "kind": "lines", "labels": ["16", "32", "64"], "marked": 2, "charts": lines},
        {"id": "pareto", "title": "Trade-offs", "kind": "scatter", "note": "Filled: the best.", "charts": scatter},
    ]})
}

#[test]
#[ignore = "needs Chromium and ChromeDriver: .ci/run browser"]
fn differences_and_sweeps_are_drawn() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("page.html");
    fs::write(&path, HtmlDocument::new("a → b", &document().to_string(), "").to_string()).unwrap();
    let browser = Browser::start(1280, 900);
    browser.open(&path);

    // Side by side where there is room, and one below the other where there is not.
    let tops = "return ['before', 'after'].map((id) => document.getElementById(id).getBoundingClientRect().top)";
    let are_beside = || {
        let tops: Vec<f64> = serde_json::from_value(browser.run(tops)).unwrap();
        tops[0] == tops[1]
    };
    assert!(are_beside());
    browser.run("document.querySelector('#after canvas').focus()");
    browser.press(&["\u{e015}", "\u{e015}"]);
    let readout = text(&browser, "#after .readout");
    assert_eq!(readout, "<b>forward</b>: 3.000 ms (37.5 %), 3.000 ms itself, +2.000 ms");
    // The frame that took longer is redder than blue, and wider than before.
    let pixel = "const node = document.querySelector('#after canvas');
        return [...node.getContext('2d').getImageData(node.width / 4, node.height - 8, 1, 1).data]";
    let pixel: Vec<u8> = serde_json::from_value(browser.run(pixel)).unwrap();
    assert!(pixel[0] > pixel[2] && pixel[3] == 255, "{pixel:?}");

    assert_eq!(
        table(&browser, "spans", &["Span", "", "Change"]),
        [["step", "", "−1.500 µs"], ["<b>forward</b>", "new", "+2.000 ms"]]
    );
    assert_eq!(browser.run("return document.querySelectorAll('#spans td.bad').length"), 1);
    assert_eq!(browser.run("return document.querySelectorAll('#lines circle').length"), 2, "one value is missing");
    assert_eq!(browser.run("return document.querySelectorAll('#lines circle[r=\"6\"] title').length"), 1);
    assert!(text(&browser, "#lines svg").contains("64 (best)"));
    let places = "return [...document.querySelectorAll('#pareto circle')].map((node) =>
        [node.cx.baseVal.value, node.cy.baseVal.value, node.getAttribute('fill') === 'none' ? 1 : 0])";
    let places: Vec<[f64; 3]> = serde_json::from_value(browser.run(places)).unwrap();
    let [small, fast, dominated] = places[..] else { panic!("{places:?}") };
    assert!(small[0] < fast[0] && fast[0] == dominated[0], "more memory is further right: {places:?}");
    assert!(fast[1] < small[1] && small[1] < dominated[1], "more items/s are further up: {places:?}");
    assert_eq!([small[2], fast[2], dominated[2]], [0.0, 0.0, 1.0]);
    assert!(text(&browser, "#pareto svg").contains("64: 90.0 items/s, 4.00 KiB GPU memory (dominated)"));
    browser.resize(390, 844);
    browser.wait("return document.documentElement.scrollWidth <= 390");
    assert!(!are_beside());
    let (requests, errors) = browser.requests_and_errors();
    assert!(requests.iter().all(|address| address.starts_with("file://")), "{requests:?}");
    assert_eq!(errors, Vec::<Value>::new());
}

#[test]
#[ignore = "needs Chromium and ChromeDriver: .ci/run browser"]
fn findings_show_all_remedies_and_how_sure_they_are() {
    let remedy = |change: &str, saving: [u64; 3]| json!({"change": change, "saving": saving});
    let finding = json!({"title": "the host launches <b>`many`</b> kernels", "kind": "launch-bound",
        "saving": [4_000_000, 6_000_000, 7_000_000], "step": 10_000_000, "percent": 60.0, "parts": [5], "path": [],
        "location": null, "evidence": ["Launching takes `6 ms`."], "row": null, "ranges": [[3, 1_000, 2_000]],
        "remedies": [remedy("Use a CUDA graph.", [4_000_000, 6_000_000, 7_000_000]),
            remedy("Launch fewer kernels.", [500_000, 1_000_000, 2_000_000])]});
    let ranks = json!({"id": "ranks", "title": "Ranks", "kind": "table", "marked": [1], "leftOut": 0,
        "columns": [["Rank", "text", ""], ["Note", "word", ""]], "rows": [["rank 0", ""], ["rank 1", "slow"]]});
    let document = json!({"format": 1, "title": "findings", "made": "Made by a test.", "names": [], "sections": [
        {"id": "findings", "title": "What to change first", "kind": "findings", "items": [finding, finding]}, ranks]});
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("page.html");
    fs::write(&path, HtmlDocument::new("findings", &document.to_string(), "").to_string()).unwrap();
    let browser = Browser::start(1280, 900);
    browser.open(&path);

    let first = text(&browser, "#finding-1");
    assert!(first.starts_with("The host launches <b>many</b> kernels [launch-bound]"), "{first}");
    for part in [
        "saves 6.00 ms of 10.0 ms a step (60.0 %) → 4.00 ms",
        "How sure: between 4.00 ms and 7.00 ms.",
        "Use a CUDA graph.saves 6.00 ms, between 4.00 ms and 7.00 ms",
        "Launch fewer kernels.saves 1.00 ms, between 500 µs and 2.00 ms",
    ] {
        assert!(first.contains(part), "{part} is not in {first}");
    }
    // The range is drawn to the scale of the step: surely 40 % of it, up to 70 %, most likely 60 %.
    let places = "const box = document.querySelector('#finding-1 .range').getBoundingClientRect();
        return ['sure', 'unsure', 'likely'].map((kind) => {
            const part = document.querySelector(`#finding-1 .${kind}`).getBoundingClientRect();
            const end = kind === 'likely' ? (part.left + part.right) / 2 : part.right;
            return Math.round((100 * (end - box.left)) / box.width);
        })";
    assert_eq!(browser.run(places), json!([40, 70, 60]));
    // The moment is in no timeline: text, and nothing that looks like a link.
    assert_eq!(browser.run("return document.querySelectorAll('#finding-1 [href=\"#timeline\"]').length"), 0);
    // The second one is folded, until somebody follows a link to it.
    let is_open = "return document.querySelector('#finding-2').open";
    assert_eq!(browser.run(is_open), false);
    browser.run("location.hash = 'finding-2'");
    browser.wait(is_open);
    assert_eq!(text(&browser, "#ranks tr.marked"), "rank 1slow");
    let (_, errors) = browser.requests_and_errors();
    assert_eq!(errors, Vec::<Value>::new());
}

/// The waits of ranks by step, as `kernspan ranks --html` has them.
#[test]
#[ignore = "needs Chromium and ChromeDriver: .ci/run browser"]
fn the_heat_map_of_ranks_shows_who_does_not_wait() {
    let waits = json!([[9_000_000, 8_000_000, 9_500_000], [0, 100_000, null], [9_100_000, 7_900_000, 9_400_000]]);
    let document = json!({"format": 1, "title": "Ranks", "made": "Made by a test.", "names": [], "sections": [
        {"id": "waits", "title": "Waits by step", "kind": "heat", "label": "waits", "unit": "time",
            "rows": ["rank 0", "rank 1", "rank 2"], "columns": ["step 6", "step 7", "step 8"], "values": waits},
    ]});
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("page.html");
    fs::write(&path, HtmlDocument::new("Ranks", &document.to_string(), "").to_string()).unwrap();
    let browser = Browser::start(1280, 900);
    browser.open(&path);
    let cells = "return [...document.querySelectorAll('#waits rect.cell')].map((cell) =>
        cell.getAttribute('fill') === 'none' ? null : Number(cell.getAttribute('opacity')))";
    let cells: Vec<Option<f64>> = serde_json::from_value(browser.run(cells)).unwrap();
    let [first, late, last] = [&cells[..3], &cells[3..6], &cells[6..]];
    assert_eq!((cells.len(), late[2], first[2]), (9, None, Some(1.0)), "{cells:?}");
    assert!(first.iter().chain(last).all(|shade| *shade > Some(0.8)), "{cells:?}");
    assert!(late[..2].iter().all(|shade| *shade < Some(0.1)), "{cells:?}");
    // The cell under the pointer is read out.
    let point = |index: usize| {
        browser.run(&format!(
            "const box = document.querySelectorAll('#waits rect.cell')[{index}].getBoundingClientRect();
            const at = {{ clientX: box.x + box.width / 2, clientY: box.y + box.height / 2, bubbles: true }};
            document.querySelector('#waits svg').dispatchEvent(new PointerEvent('pointermove', at))"
        ));
        text(&browser, "#waits .readout")
    };
    assert_eq!(point(1), "rank 0, step 7: 8.000 ms");
    assert_eq!(point(5), "rank 1, step 8: not recorded");
    browser.resize(390, 844);
    browser.wait("return document.documentElement.scrollWidth <= 390");
    let (requests, errors) = browser.requests_and_errors();
    assert!(requests.len() == 1 && errors.is_empty(), "{requests:?} {errors:?}");
}
