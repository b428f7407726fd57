//! Charts: what they show is also said in text.

use crate::{Browser, Page, fixtures, text};
use kernspan::trace::sample::{gpu_trace, set_steps};
use serde_json::Value;

#[test]
#[ignore = "needs Chromium and ChromeDriver: .ci/run browser"]
fn the_roofline_says_which_bytes_were_measured() {
    let (_, traces) = fixtures().find(|(path, _)| path.ends_with("counters.kernspan")).unwrap();
    let page = Page::of(&traces);
    let browser = Browser::start(1280, 900);
    browser.open(&page.path);
    let legend = text(&browser, "#roofline .legend");
    assert_eq!(legend, "bytes stated by fieldsbytes measured by hardware counters");
    // Of `train_step`, whose peak is not known, as no field states a type.
    let point = text(&browser, "#roofline circle title");
    assert!(point.starts_with("train_step\n") && !point.contains("of what the GPU can do"), "{point}");
    assert!(point.contains("\nbytes measured by hardware counters\n"), "{point}");
    assert_eq!(browser.run("return document.querySelector('#roofline circle').getAttribute('fill')"), "var(--c1)");
    let (_, errors) = browser.requests_and_errors();
    assert_eq!(errors, Vec::<Value>::new());
}

#[test]
#[ignore = "needs Chromium and ChromeDriver: .ci/run browser"]
fn charts_say_all_that_they_show() {
    let mut trace = gpu_trace();
    // Steps that take as long as `862.611 µs`, but for two that are far above the others.
    let steps: Vec<_> = (0..1_536).map(|step| if step == 700 || step == 900 { 9_000_000 } else { 862_611 }).collect();
    set_steps(&mut trace, &steps);
    let page = Page::of([&trace]);
    let browser = Browser::start(1280, 900);
    browser.open(&page.path);

    // No label is cut at the left.
    let left = "return Math.min(...[...document.querySelectorAll('.chart text')].map((text) => text.getBBox().x))";
    assert!(browser.run(left).as_f64().unwrap() >= 0.0, "{}", browser.run(left));
    let labels = text(&browser, "#steps svg");
    assert!(labels.contains("2.588 ms") && labels.contains("9.000 ms"), "{labels}");
    let note = text(&browser, "#steps .note ~ .note");
    assert_eq!(note, "2 points are above the chart, up to 9.000 ms: the triangles at its upper edge.");
    assert_eq!(browser.run("return document.querySelectorAll('#steps .clipped').length"), 2);

    let edges = "return [...document.querySelectorAll('#gpu .edge')].map((edge) => Number(edge.getAttribute('x1')))";
    let edges: Vec<f64> = serde_json::from_value(browser.run(edges)).unwrap();
    assert!(edges.len() > 5 && edges.windows(2).all(|pair| pair[1] - pair[0] > 10.0), "{edges:?}");
    let (_, errors) = browser.requests_and_errors();
    assert_eq!(errors, Vec::<Value>::new());
}
