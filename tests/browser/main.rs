//! Opens pages of kernspan in a real browser: Chromium, driven by ChromeDriver.
//!
//! `.ci/run browser` installs both and runs these tests. Where they are installed, so does
//! `cargo test --all-features --test browser -- --ignored`.

#![cfg(all(feature = "read", feature = "sample"))]

mod charts;
mod document;
mod timeline;
mod webdriver;

use kernspan::{
    Report, Trace,
    export::HtmlReport,
    report::units,
    trace::sample::{losses_mut, ranks, spans_trace},
};
use serde_json::Value;
use std::{
    fs,
    path::{Path, PathBuf},
};
use webdriver::Browser;

/// Recorded windows of kernspan and of PyTorch.
const FILES: [&str; 8] = [
    "gpu/candle.kernspan",
    "gpu/burn.kernspan",
    "gpu/training.kernspan",
    "gpu/counters.kernspan",
    "faults/scalar-read-faulty.kernspan",
    "faults/done-twice-faulty.kernspan",
    "faults/f32-matmul-repaired.kernspan",
    "torch/transformer-shapes.pt.trace.json.gz",
];

/// A page in a folder of its own.
struct Page {
    _folder: tempfile::TempDir,
    path: PathBuf,
}

impl Page {
    fn of<'a>(traces: impl IntoIterator<Item = &'a Trace>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("page.html");
        fs::write(&path, HtmlReport::of(traces).to_string()).unwrap();
        Self { _folder: folder, path }
    }
}

fn fixtures() -> impl Iterator<Item = (PathBuf, Vec<Trace>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    let files = FILES.into_iter().map(move |file| folder.join(file));
    files.map(|path| (path.clone(), kernspan::read(path).unwrap()))
}

/// Shows all rows of a table, and returns the texts of some columns, by their titles.
fn table(browser: &Browser, id: &str, titles: &[&str]) -> Vec<Vec<String>> {
    let titles = serde_json::to_string(titles).unwrap();
    let script = format!(
        "const section = document.getElementById('{id}');
        for (const label of ['open all', 'show all']) {{
            const buttons = [...section.querySelectorAll('button')].filter((button) => !button.hidden);
            buttons.find((button) => button.textContent.startsWith(label))?.click();
        }}
        const heads = [...section.querySelectorAll('th')].map((head) => head.textContent);
        const columns = {titles}.map((title) => heads.indexOf(title));
        return [...section.querySelectorAll('tbody tr')].map((row) => columns.map((column) => {{
            const cell = row.cells[column];
            return cell === undefined ? null : cell.title || cell.textContent;
        }}));"
    );
    let rows: Vec<Vec<Option<String>>> = serde_json::from_value(browser.run(&script)).unwrap();
    let missing = "–".to_owned();
    rows.into_iter().map(|row| row.into_iter().map(|cell| cell.unwrap_or(missing.clone())).collect()).collect()
}

fn text(browser: &Browser, selector: &str) -> String {
    let script = format!("return document.querySelector({})?.textContent ?? null", Value::from(selector));
    browser.run(&script).as_str().unwrap_or_else(|| panic!("{selector} is not there")).to_owned()
}

#[test]
#[ignore = "needs Chromium and ChromeDriver: .ci/run browser"]
fn every_number_is_the_one_of_the_report() {
    let browser = Browser::start(1280, 900);
    for (path, traces) in fixtures() {
        let (report, page) = (Report::of(&traces), Page::of(&traces));
        browser.open(&page.path);

        let rows = report.averages().group_by_stack(usize::MAX).limit(usize::MAX).rows();
        let mut expected: Vec<_> = rows
            .iter()
            .map(|row| {
                let or_none = |text: Option<String>| text.unwrap_or_else(|| "–".to_owned());
                // Few calls are kept one by one, so that percentiles of them are exact.
                assert!(row.calls < 1_000, "{}", row.calls);
                let called = |time| or_none((row.calls > 0).then(|| units::column_time(time)));
                vec![
                    row.name.clone(),
                    units::column_time(row.total_cpu),
                    units::column_time(row.self_cpu),
                    row.calls.to_string(),
                    called(row.p50_cpu),
                    called(row.p95_cpu),
                    or_none(units::count(row.total_flops)),
                    or_none(row.flops_per_second.map(units::rate)),
                    or_none(row.occupancy.map(units::percent)),
                    or_none(row.peak_gpu_memory.map(units::bytes)),
                ]
            })
            .collect();
        let titles = ["Name", "Total time", "Self time", "# of Calls", "p50", "p95", "Total FLOPs", "FLOP/s"];
        let titles = [&titles[..], &["Occupancy", "CUDA Peak"]].concat();
        let mut found = table(&browser, "spans", &titles);
        expected.sort();
        found.sort();
        assert_eq!(found, expected, "{}", path.display());

        let kernels = report.kernels().limit(usize::MAX).rows();
        let names: Vec<String> = kernels.iter().map(|row| row.name.chars().take(1000).collect()).collect();
        let expected: Vec<_> = kernels
            .iter()
            .zip(kernspan::report::short_kernels(&names))
            .map(|(row, name)| {
                let times = [row.total, row.average, row.shortest, row.longest].map(units::column_time);
                [&[name, units::percent(row.percent), row.calls.to_string()], &times[..]].concat()
            })
            .collect();
        let titles = ["Kernel", "CUDA %", "# of Calls", "CUDA total", "Average", "Shortest", "Longest"];
        let found: Vec<_> = table(&browser, "kernels", &titles)
            .into_iter()
            .map(|mut row| {
                row[0] = row[0].trim_end_matches('…').to_owned();
                row
            })
            .collect();
        assert_eq!(found, expected, "{}", path.display());

        check_answer(&browser, &report);
        let (requests, errors) = browser.requests_and_errors();
        assert!(requests.iter().all(|address| address.starts_with("file://")), "{requests:?}");
        assert_eq!(errors, Vec::<Value>::new(), "{}", path.display());
    }
}

/// Compares the top of a page with the report: the step, its parts, and the findings with all their remedies.
fn check_answer(browser: &Browser, report: &Report) {
    let findings = report.findings();
    if let Some(step) = report.step_time() {
        assert_eq!(text(browser, ".headline b"), units::time(step.mean));
    }
    if let Some(parts) = report.step_parts() {
        let bar = text(browser, ".whole");
        for time in parts.iter().map(|(_, time)| units::time(time)) {
            assert!(bar.contains(&time), "{time} is not in {bar}");
        }
    }
    if findings.is_empty() {
        assert!(text(browser, "#findings").contains("No findings: "));
    }
    for (number, finding) in (1..).zip(findings) {
        let shown = text(browser, &format!("#finding-{number}"));
        let saving = finding.saving;
        for part in [saving.likely, saving.least, saving.most, finding.step].map(units::time) {
            assert!(shown.contains(&part), "{part} is not in {shown}");
        }
        assert!(shown.contains(&units::percent(finding.percent())), "{shown}");
        let remedies = finding.remedies.iter().map(|remedy| &remedy.change);
        for line in finding.evidence.iter().chain(remedies) {
            assert!(shown.contains(&line.replace('`', "")), "{line} is not in {shown}");
        }
    }
}

#[test]
#[ignore = "needs Chromium and ChromeDriver: .ci/run browser"]
fn rough_percentiles_are_printed_as_tables_print_them() {
    let spans: Vec<_> = (0..5_000_u64).map(|call| ("call", None, 10 * call, 10 * call + 1 + call % 7)).collect();
    let trace = spans_trace(&spans);
    let (report, page) = (Report::of([&trace]), Page::of([&trace]));
    let browser = Browser::start(1280, 900);
    browser.open(&page.path);
    let shown = table(&browser, "spans", &["p50", "p95"]).remove(0);
    let row = &report.averages().rows()[0];
    assert_eq!(shown, [row.p50_cpu, row.p95_cpu].map(units::rough_time));
    assert!(report.averages().to_string().contains(&shown[0]), "{}", report.averages());
}

#[test]
#[ignore = "needs Chromium and ChromeDriver: .ci/run browser"]
fn numbers_are_rounded_as_reports_round_them() {
    // Microseconds, of which some are exactly between two texts: 2.0625 s and 65.5 KB.
    let ends = [1, 999, 1_500, 2_062_500, 2_063_500, 4_187_500, 123_456_789];
    let spans: Vec<_> = ends.iter().map(|&end| ("span", None, 0, end)).collect();
    let traces: Vec<_> = spans.iter().map(|&span| spans_trace(&[span])).collect();
    let browser = Browser::start(1280, 900);
    for trace in &traces {
        let page = Page::of([trace]);
        browser.open(&page.path);
        let expected = units::column_time(trace.spans().next().unwrap().duration());
        assert_eq!(table(&browser, "spans", &["Total time"]), [[expected]]);
    }
}

#[test]
#[ignore = "needs Chromium and ChromeDriver: .ci/run browser"]
fn names_are_text_and_run_nothing() {
    const BAD: [&str; 3] = [
        "</script><script>window.hacked = 1</script>",
        "<img src=x onerror='window.hacked = 1'>",
        "\"><svg onload=window.hacked=1>",
    ];
    let spans = BAD.map(|name| (name, None, 0, 9));
    let page = Page::of([&spans_trace(&spans)]);
    let browser = Browser::start(1280, 900);
    browser.open(&page.path);
    let mut names: Vec<_> = table(&browser, "spans", &["Name"]).into_iter().flatten().collect();
    names.sort();
    let mut expected = BAD;
    expected.sort_unstable();
    assert_eq!(names, expected);
    assert_eq!(browser.run("return window.hacked ?? null"), Value::Null);
    assert_eq!(browser.run("return document.querySelectorAll('main img').length"), 0);
}

#[test]
#[ignore = "needs Chromium and ChromeDriver: .ci/run browser"]
fn tables_are_sorted_and_searched() {
    let (_, traces) = fixtures().next().unwrap();
    let page = Page::of(&traces);
    let browser = Browser::start(1280, 900);
    browser.open(&page.path);
    let values =
        "return [...document.querySelectorAll('#kernels tbody tr')].map((row) => Number(row.cells[3].dataset.value))";
    let numbers = || -> Vec<u64> { serde_json::from_value(browser.run(values)).unwrap() };
    browser.click("#kernels th:nth-child(4) button");
    let down = numbers();
    assert!(down.len() > 5 && down.is_sorted_by(|a, b| a >= b), "{down:?}");
    assert_eq!(browser.run("return document.querySelector('#kernels th:nth-child(4)').ariaSort"), "descending");
    browser.click("#kernels th:nth-child(4) button");
    assert!(numbers().is_sorted());

    // A slash goes to the search of the table in sight.
    browser.run("document.getElementById('kernels').scrollIntoView()");
    browser.press(&["/", "g", "e", "m", "m"]);
    let found = table(&browser, "kernels", &["Kernel"]);
    assert!(!found.is_empty() && found.iter().all(|row| row[0].to_lowercase().contains("gemm")), "{found:?}");

    // A span that is found is shown with those around it.
    browser.run(
        "const input = document.querySelector('#spans input'); input.value = 'layers.1';
        input.dispatchEvent(new Event('input'));",
    );
    let names: Vec<_> = table(&browser, "spans", &["Name"]).into_iter().flatten().collect();
    assert_eq!(names, ["train_step", "forward", "layers.1"]);
}

#[test]
#[ignore = "needs Chromium and ChromeDriver: .ci/run browser"]
fn findings_lead_to_their_spans_and_moments() {
    let (_, traces) = fixtures().find(|(path, _)| path.ends_with("scalar-read-faulty.kernspan")).unwrap();
    let finding = Report::of(&traces).findings().remove(0);
    let page = Page::of(&traces);
    let browser = Browser::start(1280, 900);
    browser.open(&page.path);
    browser.click("#finding-1 a[href^='#spans-']");
    browser.wait("return document.querySelector('tr.found') !== null");
    let found = text(&browser, "tr.found td");
    assert!(found.ends_with(finding.path.last().unwrap()), "{found}");
    let is_seen = "const box = document.querySelector('tr.found').getBoundingClientRect();
        return box.top >= 0 && box.bottom <= innerHeight";
    browser.wait(is_seen);

    // The first finding is in sight as the page opens, and its link leads to its moment.
    browser.run("scrollTo(0, 0)");
    let top = "return document.querySelector('#finding-1').getBoundingClientRect().top";
    assert!(browser.run(top).as_f64().unwrap() < 500.0, "{}", browser.run(top));
    browser.click("#finding-1 a[href='#timeline']");
    browser.wait("return document.activeElement.tagName === 'CANVAS'");
    // From an item to the next on its row, by keys.
    browser.press(&["\u{e014}"]);
    let readout = text(&browser, "#timeline .readout");
    let step = finding.ranges[0].step.unwrap();
    assert!(readout.contains(&format!(" after the start of step {step}, on ")), "{readout}");
    browser.press(&["w", "w", "d", "s", "\u{e00c}"]);

    browser.run("document.querySelector('#gpu-flame canvas').focus()");
    browser.press(&["\u{e015}", "\u{e015}", "\u{e007}"]);
    let readout = text(&browser, "#gpu-flame .readout");
    let of_span = Report::of(&traces).averages().rows().into_iter().find(|row| readout.starts_with(&row.name));
    let of_span = of_span.unwrap_or_else(|| panic!("{readout}"));
    assert!(readout.contains(&units::column_time(of_span.total_gpu)), "{readout}");
    let (_, errors) = browser.requests_and_errors();
    assert_eq!(errors, Vec::<Value>::new());
}

#[test]
#[ignore = "needs Chromium and ChromeDriver: .ci/run browser"]
fn wide_tables_and_losses_are_seen() {
    let (_, mut traces) = fixtures().last().unwrap();
    *losses_mut(&mut traces[0]) = Default::default();
    losses_mut(&mut traces[0]).over_memory = 1_000;
    let page = Page::of(&traces);
    let browser = Browser::start(1280, 900);
    browser.open(&page.path);
    let banner = text(&browser, "main > .banner:first-child");
    assert!(banner.contains("memory limit reached: 1000 records dropped; raise memory_limit_bytes"), "{banner}");
    assert_eq!(text(&browser, "#spans h2"), "Spans*");
    assert_eq!(text(&browser, "#steps h2"), "Steps");

    // A table that goes on to the right says so, until its end is seen.
    let has = |class: &str| browser.run(&format!("return document.querySelector('#spans .{class}') !== null")) == true;
    browser.wait("return document.querySelector('#spans .sideways.more') !== null");
    assert_eq!(browser.run("return document.querySelector('#spans .hint').hidden"), false);
    browser.run("document.querySelector('#spans .scroll').scrollLeft = 100_000");
    browser.wait("return document.querySelector('#spans .sideways.more') === null");
    assert!(has("less"));

    // Names of kernels have all the room that there is, and no more.
    browser.resize(1600, 900);
    let scroll = "const scroll = document.querySelector('#kernels .scroll');
        return scroll.scrollWidth <= scroll.clientWidth";
    browser.wait(scroll);
    let widths = "return [...document.querySelectorAll('#kernels td.name')].map((cell) => cell.clientWidth)";
    let widths: Vec<u64> = serde_json::from_value(browser.run(widths)).unwrap();
    assert!(widths.iter().all(|&width| width >= 500), "{widths:?}");
}

#[test]
#[ignore = "needs Chromium and ChromeDriver: .ci/run browser"]
fn pages_fit_a_desk_and_a_hand_and_the_dark() {
    let (_, traces) = fixtures().last().unwrap();
    let pages = [Page::of(&traces), Page::of(&ranks()), Page::of(&[Trace::default()])];
    let browser = Browser::start(1280, 900);
    for page in &pages {
        browser.open(&page.path);
        for width in [1280, 390] {
            browser.resize(width, 844);
            browser.wait(&format!("return document.documentElement.scrollWidth <= {width}"));
        }
        let back = || browser.run("return getComputedStyle(document.body).backgroundColor");
        let light = back();
        browser.press(&["t"]);
        assert_ne!(back(), light);
    }
    assert!(text(&browser, "main").contains("no whole step"), "a page without steps says so");
}

#[test]
#[ignore = "needs Chromium and ChromeDriver: .ci/run browser"]
fn a_part_of_the_step_is_shown_alone() {
    let (_, traces) = fixtures().next().unwrap();
    let page = Page::of(&traces);
    let browser = Browser::start(1280, 900);
    browser.open(&page.path);
    let rows = || table(&browser, "kernels", &["Kernel"]).into_iter().flatten().collect::<Vec<_>>();
    let all = rows();
    let is_copy = |name: &String| name.starts_with("Mem");
    assert!(all.iter().any(is_copy) && !all.iter().all(is_copy), "{all:?}");

    // By the keyboard: the part that has the focus, and back with Escape.
    let focus = "const shown = (node) => !node.hidden && node.tabIndex >= 0;
        [...document.querySelectorAll('.part-2')].find(shown).focus()";
    browser.run(focus);
    browser.press(&["\u{e007}"]);
    assert_eq!(browser.run("return document.activeElement.ariaPressed"), "true");
    let details = text(&browser, ".details");
    assert!(details.contains("Mem") && !details.contains("gemm"), "{details}");
    let copies = rows();
    assert!(!copies.is_empty() && copies.iter().all(is_copy), "{copies:?}");
    assert!(text(&browser, "#kernels .tools").contains("rows of copies"));
    assert_eq!(text(&browser, "header .only"), "only copies ✕");
    browser.press(&["\u{e00c}"]);
    assert_eq!(rows(), all);
    assert_eq!(browser.run("return document.querySelector('.details').hidden"), true);

    // Each part that takes time is one stop, in the bar or below it, at any width.
    for width in [1280, 390] {
        browser.resize(width, 844);
        let stops = "return [...document.querySelectorAll('.whole button')]
            .filter((node) => !node.hidden && node.tabIndex >= 0).length
            === document.querySelectorAll('.parts button').length";
        browser.wait(stops);
    }
    let (_, errors) = browser.requests_and_errors();
    assert_eq!(errors, Vec::<Value>::new());
}

#[test]
#[ignore = "needs Chromium and ChromeDriver: .ci/run browser"]
fn ranks_come_first_and_facts_last() {
    let page = Page::of(&ranks());
    let browser = Browser::start(1280, 900);
    browser.open(&page.path);
    let ids = "return [...document.querySelectorAll('main > section')].map((node) => node.id)";
    let ids: Vec<String> = serde_json::from_value(browser.run(ids)).unwrap();
    assert_eq!(ids[..4], ["answer", "findings", "ranks", "steps"]);
    assert_eq!(ids.last().unwrap(), "run");
    assert!(text(&browser, "#answer").contains("2 ranks, none of them late"));
    assert_eq!(table(&browser, "ranks", &["Rank"]), [["rank 0, GPU 0"], ["rank 1, GPU 0"]]);
    assert_eq!(browser.run("return document.querySelector('#run details').open"), false);
    browser.run("location.hash = 'run'");
    browser.wait("return document.querySelector('#run details').open");
}

/// Measures the timeline: unpacking and drawing it for the first time, drawing the whole window again, a search, and
/// the sums of everything.
const TIMELINE: &str = "
    const section = document.getElementById('timeline');
    if (!section) return null;
    const button = (title) => [...section.querySelectorAll('button')].find((node) => node.title.startsWith(title));
    const canvas = section.querySelectorAll('canvas')[1];
    const search = section.querySelector('input[type=search]');
    const time = (action) => {
        const start = performance.now();
        action();
        // Drawings wait for nobody, unless their pixels are asked for.
        canvas.getContext('2d').getImageData(0, 0, 1, 1);
        return Math.round(10 * (performance.now() - start)) / 10;
    };
    const type = (text) => {
        search.value = text;
        search.dispatchEvent(new Event('input'));
    };
    return {
        first: time(() => button('the whole window').click()),
        again: time(() => canvas.redraw()),
        search: time(() => type('gemm')),
        sums: (type(''), time(() => button('sums').click())),
    };";

/// Prints how long it takes to open a page, and makes a picture of it: `KERNSPAN_PAGE=FILE`.
#[test]
#[ignore = "measures a page of yours"]
fn opening() {
    let Some(page) = std::env::var_os("KERNSPAN_PAGE").map(PathBuf::from) else {
        return eprintln!("KERNSPAN_PAGE is not set: no page is opened");
    };
    let size = std::env::var("KERNSPAN_SIZE").unwrap_or_else(|_| "1280x900".to_owned());
    let (width, height) = size.split_once('x').unwrap();
    let browser = Browser::start(1280, 900);
    browser.resize(width.parse().unwrap(), height.parse().unwrap());
    for _ in 0..3 {
        browser.open(&page);
        let script = "const [page] = performance.getEntriesByType('navigation');
            return [page.domInteractive, page.loadEventEnd]";
        browser.wait("return performance.getEntriesByType('navigation')[0].loadEventEnd > 0");
        println!("interactive and loaded after {} ms", browser.run(script));
        println!("timeline, in ms: {}", browser.run(TIMELINE));
    }
    let hash = std::env::var("KERNSPAN_HASH").unwrap_or_default();
    if !hash.is_empty() {
        browser.run(&format!("location.hash = {}", Value::from(hash)));
    }
    std::thread::sleep(std::time::Duration::from_millis(500));
    browser.screenshot(&page.with_extension("png"));
}
