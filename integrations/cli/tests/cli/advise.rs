//! Tests of `advise`.

use crate::{Run, fixture, printed, printed_json, run};

#[test]
fn advice_is_about_the_step_without_a_profiler() {
    // Measured without a profiler: see `trainings.jsonl`. PyTorch's profiler made it more than twice as long.
    let file = fixture("trainings/adam-loop-gpt-fault.json.gz");
    let saving = |options: &str| {
        let advice = printed_json(&format!("advise --json {options}"), &[&file]);
        let millis = |value: &serde_json::Value| value.as_u64().unwrap() as f64 / 1e6;
        (millis(&advice["step_without_recording"]), millis(&advice["findings"][0]["saving"]["likely"]))
    };
    let (step, saved) = saving("--step-time 17.3ms");
    assert!((16.7..17.9).contains(&step), "{step}");
    // The fix saved 6.6 ms.
    assert!((5.3..7.9).contains(&saved), "{saved}");
    assert!(saving("").0 > 20.0);
}

#[test]
fn a_step_time_that_cannot_be_is_not_used_silently() {
    let file = fixture("trainings/adam-loop-gpt-fault.json.gz");
    for (time, is_used) in [("17.3ms", true), ("2s", false), ("3us", false)] {
        let Run { code, err, .. } = run(&format!("advise --step-time {time}"), &[&file]);
        assert_eq!(code, 0, "{time}: {err}");
        assert_eq!(err.contains("is not used"), !is_used, "{time}: {err}");
    }
    for time in ["0ms", "-1s", "soon", "5"] {
        assert_eq!(run(&format!("advise --step-time={time}"), &[&file]).code, 2, "{time}");
    }
}

#[test]
fn advice_is_there_for_programs_too() {
    let faulty = fixture("faults/scalar-read-faulty.kernspan");
    let findings = printed_json("advise --json", &[&faulty]);
    let first = &findings["findings"][0];
    assert_eq!(first["kind"], "host-sync");
    assert!(first["saving"]["likely"].as_u64().unwrap() > 100_000, "{first}");
    let markdown = printed("advise --format md", &[&faulty]);
    assert!(markdown.contains("| host-sync |"), "{markdown}");
    let repaired = fixture("faults/scalar-read-repaired.kernspan");
    assert!(printed("advise", &[&repaired]).contains("no rule knows a change"));
    assert!(printed("advise --format md", &[&repaired]).contains("no findings: no rule knows"));
}
