//! The page prints quantities as [`units`] does.

use crate::units;
use std::{fmt::Write as _, process::Command, time::Duration};

/// Runs a script of Node after `units.js`, and returns what it printed. Without Node, says so, and fails if `CI=true`.
fn run(script: &str) -> Option<String> {
    let script = format!("{}\n{script}", include_str!("../assets/units.js"));
    let Ok(output) = Command::new("node").arg("-e").arg(script).output() else {
        assert_ne!(std::env::var("CI").as_deref(), Ok("true"), "no node: the page's units are not compared");
        eprintln!("no node: the page's units are not compared");
        return None;
    };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(String::from_utf8(output.stdout).unwrap())
}

#[test]
fn quantities_are_printed_as_in_reports() {
    let whole = [0, 1, 12, 999, 1000, 1023, 1024, 1536, 99_949, 999_500, 33_554_432, 201_327_000, 7_390_000_000_000];
    let parts = [0.0, 0.04, 0.05, 0.25, 12.34, 12.35, 99.95, 100.0, 1_234.5, 61_230.0, 1.5e12, 989.5e12];
    let (mut script, mut expected) = (String::new(), String::new());
    let mut check = |unit: &str, value: &dyn std::fmt::Display, text: Option<String>| {
        writeln!(script, "console.log(format('{unit}', {value}));").unwrap();
        writeln!(expected, "{}", text.unwrap_or_else(|| units::NOTHING.to_owned())).unwrap();
    };
    for number in whole {
        let time = Duration::from_nanos(number);
        check("time", &number, Some(units::column_time(time)));
        check("short", &number, Some(units::time(time)));
        check("rough", &number, Some(units::rough_time(time)));
        check("memory", &number, Some(units::bytes(number)));
        if number > 0 {
            check("count", &number, units::count(number));
            check("flops", &number, units::flops(number));
        }
    }
    for number in parts {
        check("percent", &number, Some(units::percent(number)));
        check("share", &number, Some(units::percent(number)));
        check("rate", &number, Some(units::rate(number)));
        check("flopRate", &number, Some(units::flop_rate(number)));
        check("bandwidth", &number, Some(units::bandwidth(number)));
    }
    check("time", &"null", None);
    let Some(printed) = run(&script) else { return };
    for ((call, printed), expected) in script.lines().zip(printed.lines()).zip(expected.lines()) {
        assert_eq!(printed, expected, "{call}");
    }
    assert_eq!(printed.lines().count(), expected.lines().count());
}

#[test]
fn ticks_are_round() {
    let ticks = |unit: &str, top: f64| {
        format!("console.log(roundTicks('{unit}', {top}).map((value) => tickText('{unit}', value)).join(', '));")
    };
    let script = [ticks("time", 73.843e6), ticks("time", 862_611.0), ticks("memory", 141e9), ticks("percent", 100.0)];
    let Some(printed) = run(&script.concat()) else { return };
    let expected = [
        "0, 20 ms, 40 ms, 60 ms",
        "0, 200 µs, 400 µs, 600 µs, 800 µs",
        "0, 50 GiB, 100 GiB",
        "0, 20 %, 40 %, 60 %, 80 %, 100 %",
    ];
    assert_eq!(printed.lines().collect::<Vec<_>>(), expected);
}
