//! The command `ranks`, on trainings of four ranks that `benches/trainings/ranks.py` recorded on an H200: `late` has
//! GPU work in the backward pass of rank 2, and `even` has no fault.

use crate::{fixture, printed, printed_json, run, torch};

#[test]
fn the_late_rank_is_named_with_its_span() {
    let text = printed("ranks", &[&fixture("ranks/late")]);
    let expected = "rank 2 is late: the others wait for it for 9.10 ms of a step of 37.7 ms. `SlowBackward` takes 10.1 \
                    ms of a step on the GPU, and 0 µs on the others\n";
    assert!(text.ends_with(expected), "{text}");
    let json = printed_json("ranks --json", &[&fixture("ranks/late")]);
    let late = json["late"].as_array().unwrap();
    assert_eq!((late.len(), late[0]["rank"].as_u64()), (1, Some(2)));
    assert_eq!(late[0]["cause"]["path"].as_array().unwrap().last().unwrap(), "SlowBackward");
    assert_eq!(json["ranks"].as_array().unwrap().len(), 4);
    // Step times alone would name nobody.
    let steps: Vec<_> = json["ranks"].as_array().unwrap().iter().map(|rank| rank["step"].as_f64().unwrap()).collect();
    assert!(steps.iter().all(|step| (step - steps[0]).abs() < 0.01 * steps[0]), "{steps:?}");
}

#[test]
fn of_ranks_without_a_fault_none_is_late() {
    let text = printed("ranks --format md", &[&fixture("ranks/even")]);
    assert!(text.contains("no rank is late") && text.starts_with("## Ranks\n"), "{text}");
}

#[test]
fn a_converted_trace_keeps_its_collectives() {
    let folder = tempfile::tempdir().unwrap();
    for rank in 0..4 {
        let file = folder.path().join(format!("rank{rank}.json.gz"));
        assert_eq!(run("convert", &[&fixture(&format!("ranks/late/rank{rank}.json.gz")), &file]).code, 0);
    }
    let ranks = |folder| printed_json("ranks --json", &[folder]);
    assert_eq!(ranks(folder.path()), ranks(&fixture("ranks/late")));
}

#[test]
fn ranks_that_are_missing_or_exchange_nothing_are_errors() {
    let one = run("ranks", &[&torch("transformer")]);
    assert!(one.err.contains("these are traces of one rank; give those of all ranks of a run"), "{}", one.err);
    assert_eq!(one.code, 1);
    let two = printed("ranks", &[&fixture("ranks/late/rank1.json.gz"), &fixture("ranks/late/rank2.json.gz")]);
    assert!(two.contains("rank 2 is late") && two.contains("warning: 2 of 4 ranks have no trace: 0, 3\n"), "{two}");
    let mixed = printed("ranks", &[&fixture("ranks/late"), &fixture("ranks/even")]);
    assert!(mixed.contains("warning: rank 0 has step 11 in several traces: these may be of several runs\n"), "{mixed}");
    let folder = tempfile::tempdir().unwrap();
    let (cut, whole) = (folder.path().join("cut.json.gz"), fixture("ranks/late/rank0.json.gz"));
    std::fs::write(&cut, &std::fs::read(whole).unwrap()[..100_000]).unwrap();
    let rest = run("ranks", &[&cut, &fixture("ranks/late/rank1.json.gz"), &fixture("ranks/late/rank2.json.gz")]);
    assert!(rest.out.contains("rank 2 is late") && rest.err.contains("cut.json.gz"), "{}", rest.err);
    assert_eq!(rest.code, 1);
}
