//! Charts: what they show is also said in text.

use crate::{Browser, Page, fixtures, text};
use kernspan::{
    Trace,
    trace::sample::{SampledStack, add_stack, frame, gpu_trace, sample_stacks, set_steps},
};
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

/// Returns a trace with 30 samples of each of two functions, both with long names, and waits of one.
fn sampled_trace() -> Trace {
    let registry = "/home/me/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f";
    let main = frame("train_a_language_model::training::loops::run_epoch", "src/training/loops/epoch.rs:142", "train");
    let drop = frame(GUARD, &format!("{registry}/candle-core-0.11.1/src/utils.rs:247"), "train");
    let kernel = "gemm_common::gemm::gemm_basic_generic::<gemm_f32::microkernel::fma::f32::x3x4>";
    let kernel = frame(kernel, &format!("{registry}/gemm-common-0.19.0/src/gemm.rs:619"), "train");
    let mut trace = gpu_trace();
    sample_stacks(&mut trace, 99, 0, None);
    for at in 0..60 {
        let stack = vec![&main, if at % 2 == 0 { &drop } else { &kernel }];
        let at_edge = at == 0;
        let sample =
            SampledStack { micros: at, nanos: 10_101_010, span: Some(1), stack, at_edge, ..Default::default() };
        add_stack(&mut trace, &sample);
        add_stack(&mut trace, &SampledStack { waiting: true, ..sample });
    }
    trace
}

const GUARD: &str = "<candle_core::utils::BarrierGuard as core::ops::drop::Drop>::drop";

#[test]
#[ignore = "needs Chromium and ChromeDriver: .ci/run browser"]
fn no_number_of_a_table_of_lines_is_out_of_sight() {
    let page = Page::of([&sampled_trace()]);
    let browser = Browser::start(1280, 900);
    browser.open(&page.path);
    for width in [1280, 1024] {
        browser.resize(width, 900);
        for (table, numbers) in [("lines", 6), ("functions", 5)] {
            let places = format!(
                "const box = document.querySelector('#{table} .scroll').getBoundingClientRect();
                const cells = [...document.querySelectorAll('#{table} tbody tr:first-child td:not(.text)')];
                return cells.map((cell) => {{
                    const {{ left, right }} = cell.getBoundingClientRect();
                    return left >= box.left && right <= box.right + 1 && cell.scrollWidth <= cell.clientWidth + 1;
                }})"
            );
            let are_seen: Vec<bool> = serde_json::from_value(browser.run(&places)).unwrap();
            assert_eq!(are_seen, vec![true; numbers], "{table} at {width} pixels");
        }
    }
    browser.resize(1280, 900);
    // The type and the method are shown, and the full name on request.
    let cell = "[...document.querySelectorAll('#lines td')].find((cell) => cell.textContent.includes('Guard'))";
    assert_eq!(browser.run(&format!("return {cell}.textContent")), "<BarrierGuard as Drop>::drop");
    assert_eq!(browser.run(&format!("return {cell}.title")), GUARD);
    let (_, errors) = browser.requests_and_errors();
    assert_eq!(errors, Vec::<Value>::new());
}
