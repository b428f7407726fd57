//! Pages of sections that are not of a report: two columns, flame graphs of differences, and lines.

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
    json!({"format": 1, "title": "a → b", "made": "Made by a test.", "names": ["step", "<b>forward</b>"], "sections": [
        {"id": "flames", "title": "Flames", "kind": "columns", "note": "Red took longer.",
            "columns": [flame("before", [5_000_000, 1_000_000]), flame("after", [5_000_000, 3_000_000])]},
        {"id": "spans", "title": "Spans", "kind": "table", "columns": columns,
            "rows": [[0, "", -1500], [1, "new", 2_000_000]], "parents": [-1, 0], "leftOut": 0},
        {"id": "lines", "title": "Batch", "kind": "lines", "labels": ["16", "32", "64"], "marked": 2, "charts": lines},
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
    assert_eq!(readout, "<b>forward</b>: 3.000ms (37.50%), 3.000ms itself, +2.000ms");
    // The frame that took longer is redder than blue, and wider than before.
    let pixel = "const node = document.querySelector('#after canvas');
        return [...node.getContext('2d').getImageData(node.width / 4, node.height - 8, 1, 1).data]";
    let pixel: Vec<u8> = serde_json::from_value(browser.run(pixel)).unwrap();
    assert!(pixel[0] > pixel[2] && pixel[3] == 255, "{pixel:?}");

    assert_eq!(
        table(&browser, "spans", &["Span", "", "Change"]),
        [["step", "", "−1.500µs"], ["<b>forward</b>", "new", "+2.000ms"]]
    );
    assert_eq!(browser.run("return document.querySelectorAll('#spans td.bad').length"), 1);
    assert_eq!(browser.run("return document.querySelectorAll('#lines circle').length"), 2, "one value is missing");
    assert_eq!(browser.run("return document.querySelectorAll('#lines circle[r=\"6\"] title').length"), 1);
    assert!(text(&browser, "#lines svg").contains("64 (best)"));
    browser.resize(390, 844);
    browser.wait("return document.documentElement.scrollWidth <= 390");
    assert!(!are_beside());
    let (requests, errors) = browser.requests_and_errors();
    assert!(requests.iter().all(|address| address.starts_with("file://")), "{requests:?}");
    assert_eq!(errors, Vec::<Value>::new());
}
