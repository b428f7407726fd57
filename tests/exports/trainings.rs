//! Findings of real trainings, against the time that the fix of each saved when it was measured without a profiler.
//!
//! `benches/trainings` has the programs. Half of the cases were never looked at while rules were written.

use kernspan::{Report, analysis::Finding, read};
use serde_json::Value;
use std::{fmt::Write, time::Duration};

/// A training with a fault and its fix.
struct Training {
    name: String,
    kind: String,
    held_out: bool,
    /// The time of a step without a profiler, with the fault and with its fix.
    before: Duration,
    after: Duration,
}

fn trainings() -> Vec<Training> {
    let text =
        std::fs::read_to_string(format!("{}/tests/fixtures/trainings/trainings.jsonl", env!("CARGO_MANIFEST_DIR")))
            .unwrap();
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let time = |line: &Value| Duration::from_secs_f64(line["step_us"].as_f64().unwrap() / 1e6);
    lines
        .chunks(2)
        .map(|pair| {
            assert_eq!(
                (pair[0]["case"].as_str(), pair[1]["variant"].as_str()),
                (pair[1]["case"].as_str(), Some("fixed"))
            );
            Training {
                name: pair[0]["case"].as_str().unwrap().to_owned(),
                kind: pair[0]["kind"].as_str().unwrap().to_owned(),
                held_out: pair[0]["held_out"].as_bool().unwrap(),
                before: time(&pair[0]),
                after: time(&pair[1]),
            }
        })
        .collect()
}

fn findings(name: &str, variant: &str) -> Vec<Finding> {
    let path = format!("{}/tests/fixtures/trainings/{name}-{variant}.json.gz", env!("CARGO_MANIFEST_DIR"));
    let found = Report::of(&read::read(path).unwrap()).findings();
    if std::env::var_os("CASE").is_some() {
        for f in &found {
            println!(
                "{variant}: {} | {} | {:?} of {:?}\n   {:?}\n   {:?}",
                f.kind, f.title, f.saving, f.step, f.evidence, f.path
            );
        }
    }
    found
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

#[test]
fn findings_hold_on_trainings() {
    let wants_held = std::env::var_os("HELD").is_some();
    let only = std::env::var("CASE").ok();
    let mut table = String::new();
    let (mut all, mut first, mut near, mut within, mut silent) = (0, 0, 0, 0, 0);
    for training in trainings().iter().filter(|training| training.held_out == wants_held) {
        if only.as_ref().is_some_and(|only| *only != training.name) {
            continue;
        }
        let found = findings(&training.name, "fault");
        let left = findings(&training.name, "fixed");
        let saved = training.before.saturating_sub(training.after);
        let place = found.iter().position(|finding| finding.kind.as_str() == training.kind);
        let remains = left.iter().find(|finding| finding.kind.as_str() == training.kind);
        all += 1;
        first += usize::from(place == Some(0));
        silent += usize::from(remains.is_none());
        write!(
            table,
            "{:18} {:20} {:6.2} -> {:6.2} saves {:6.2} | ",
            training.name,
            training.kind,
            millis(training.before),
            millis(training.after),
            millis(saved)
        )
        .unwrap();
        let step = found.first().map_or(0.0, |finding| millis(finding.step));
        match place.map(|place| &found[place]) {
            Some(finding) => {
                let saving = finding.saving;
                let is_near = (millis(saving.likely) - millis(saved)).abs() <= 0.2 * millis(saved);
                let is_within = saving.least <= saved && saved <= saving.most;
                near += usize::from(is_near);
                within += usize::from(is_within);
                let marks = [place == Some(0), is_near, is_within, remains.is_none()];
                let marks: String = marks.map(|mark| if mark { 'y' } else { 'N' }).into_iter().collect();
                write!(
                    table,
                    "#{} {:6.2} of {:6.2} ({:.2}-{:.2}) {marks}",
                    place.unwrap() + 1,
                    millis(saving.likely),
                    millis(finding.step),
                    millis(saving.least),
                    millis(saving.most)
                )
                .unwrap();
            }
            None => write!(table, "missing, step {step:.2}").unwrap(),
        }
        let name = |finding: &Finding| format!("{} {:.2}", finding.kind, millis(finding.saving.likely));
        let list = |findings: &[Finding]| findings.iter().take(4).map(name).collect::<Vec<_>>().join(", ");
        writeln!(
            table,
            "\n      faulty: {}; fixed ({:.2}): {}",
            list(&found),
            left.first().map_or(0.0, |l| millis(l.step)),
            list(&left)
        )
        .unwrap();
    }
    println!("{table}\n{all} cases: first {first}, within 20 % {near}, within bounds {within}, silent twins {silent}");
}
