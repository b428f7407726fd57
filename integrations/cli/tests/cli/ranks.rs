//! The command `ranks`, on trainings of four ranks that `benches/trainings/ranks.py` recorded on an H200: `late` has
//! GPU work in the backward pass of rank 2, and `even` has no fault.

use crate::{fixture, printed, printed_json, run, torch};
use std::io::Read;

#[test]
fn the_late_rank_is_named_with_its_span() {
    let text = printed("ranks", &[&fixture("ranks/late")]);
    let expected = "rank 2 is late: the others wait for it for 9.10 ms of a step of 37.7 ms. `SlowBackward` takes 10.1 \
                    ms of a step on the GPU, and 0 µs on the others. Fixing it saves up to ";
    assert!(text.contains(expected), "{text}");
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

#[test]
fn the_page_has_ranks_waits_collectives_and_clocks() {
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("ranks.html");
    let run = run(&format!("ranks --html {}", page.display()), &[&fixture("ranks/late")]);
    assert_eq!(run.code, 0, "{}", run.err);
    let html = std::fs::read_to_string(page).unwrap();
    for part in ["Who is late", "Late ranks", "Step by rank", "Waits by step", "Collectives", "Clocks", "SlowBackward"]
    {
        assert!(html.contains(part), "{part}");
    }
}

#[test]
fn a_single_table_is_csv() {
    let csv = printed("ranks --format csv", &[&fixture("ranks/late")]);
    assert_eq!((csv.lines().count(), csv.starts_with("rank,")), (5, true), "{csv}");
}

#[test]
fn collectives_have_bandwidths_and_the_late_rank_a_saving() {
    let json = printed_json("ranks --json", &[&fixture("ranks/late")]);
    let [group] = &json["collectives"].as_array().unwrap()[..] else { panic!("{json}") };
    assert_eq!((group["operation"].as_str(), group["ranks"].as_u64()), (Some("all-reduce"), Some(4)));
    let times = ["time", "exposed", "transfer"].map(|time| group[time].as_u64().unwrap());
    assert!(times[0] > times[1] && times[0] > times[2] && group["bytes"].as_u64() > Some(0), "{group}");
    let bandwidths = ["algorithm_bandwidth", "bus_bandwidth"].map(|key| group[key].as_f64().unwrap());
    assert!((bandwidths[1] / bandwidths[0] - 1.5).abs() < 1e-9, "{bandwidths:?}");
    let spans = json["communication"].as_array().unwrap();
    let exposed = spans.iter().map(|span| span["exposed"].as_f64().unwrap()).sum::<f64>();
    let in_a_step = group["exposed"].as_f64().unwrap() / 6.0;
    assert!((exposed / in_a_step - 1.0).abs() < 1e-3, "{exposed} ns by span, {in_a_step} ns in all");
    let late = &json["late"][0];
    assert_eq!((late["rank"].as_u64(), late["when"].as_str()), (Some(2), Some("always")));
    // The others wait for 9.1 ms, and the second latest rank remains.
    let saved = late["saves_up_to"].as_u64().unwrap();
    assert!((7_000_000..9_200_000).contains(&saved), "{saved}");
}

#[test]
fn clocks_that_differ_are_found_and_aligned() {
    let folder = tempfile::tempdir().unwrap();
    for rank in 0..4 {
        let mut text = String::new();
        let file = std::fs::File::open(fixture(&format!("ranks/late/rank{rank}.json.gz"))).unwrap();
        flate2::read::MultiGzDecoder::new(file).read_to_string(&mut text).unwrap();
        // The clock of rank 1 is 5 ms ahead.
        let (base, shifted) = ("1790857026000000000", "1790857026005000000");
        assert!(text.contains(base));
        let text = if rank == 1 { text.replace(base, shifted) } else { text };
        std::fs::write(folder.path().join(format!("rank{rank}.json")), text).unwrap();
    }
    let json = printed_json("ranks --json", &[folder.path()]);
    let clocks = json["clocks"].as_array().unwrap();
    let bounds = |rank: usize| [0, 1].map(|side| clocks[rank]["interval"][side].as_i64().unwrap());
    let [least, most] = bounds(1);
    assert!(least <= 5_000_000 && 5_000_000 <= most && most - least < 500_000, "{least} to {most}");
    let [least, most] = bounds(2);
    assert!(least < 0 && 0 < most && most - least < 500_000, "{least} to {most}");
    assert!(json["warnings"].as_array().unwrap().is_empty(), "{}", json["warnings"]);
    let merged = folder.path().join("merged.json");
    let run = run(&format!("merge {}", merged.display()), &[folder.path()]);
    assert!(run.code == 0 && run.err.contains("the clock of rank 1 is 4."), "{}", run.err);
    let merged: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(merged).unwrap()).unwrap();
    let ahead = [0, 1, 2].map(|rank| merged["kernspan_clocks"][rank]["ahead_ns"].as_i64().unwrap());
    assert!(ahead[0] == 0 && ahead[2] == 0 && (4_700_000..5_300_000).contains(&ahead[1]), "{ahead:?}");
    // On the merged timeline, no rank ends a collective before another has begun it.
    let is_collective =
        |event: &&serde_json::Value| event["cat"] == "kernel" && event["name"].as_str().unwrap().starts_with("nccl");
    let times = merged["traceEvents"].as_array().unwrap().iter().filter(is_collective);
    let times = times.map(|event| ["ts", "dur"].map(|key| event[key].as_f64().unwrap())).collect::<Vec<_>>();
    let mut ranks: Vec<_> = times.chunks(42).map(<[_]>::to_vec).collect();
    ranks.iter_mut().for_each(|rank| rank.sort_by(|a, b| a[0].total_cmp(&b[0])));
    assert_eq!((times.len(), ranks.len()), (4 * 42, 4));
    for number in 0..42 {
        let of_all = ranks.iter().map(|rank| rank[number]);
        let (begin, end) = of_all.fold((f64::MIN, f64::MAX), |(begin, end), [start, duration]| {
            (begin.max(start), end.min(start + duration))
        });
        assert!(begin <= end, "collective {number}: {begin} to {end}");
    }
}

#[test]
fn advice_names_the_same_rank_and_span() {
    let slow = |folder: &str| {
        let json = printed_json("advise --json -n 99", &[&fixture(folder)]);
        let findings = json["findings"].as_array().unwrap().clone();
        // NCCL's kernels have few blocks, but that is not for want of a larger batch.
        let is_small = |it: &&serde_json::Value| it["kind"] == "small-grid" && it["path"].to_string().contains("c10d");
        assert_eq!(findings.iter().find(is_small), None);
        findings.into_iter().filter(|finding| finding["kind"] == "slow-rank").collect::<Vec<_>>()
    };
    let late = slow("ranks/late");
    let [finding] = &late[..] else { panic!("{late:?}") };
    let title = "rank 2 keeps the others waiting for 9.10 ms of each step, mostly in `SlowBackward`";
    assert_eq!(finding["title"], title);
    let ranks = printed_json("ranks --json", &[&fixture("ranks/late")]);
    assert_eq!(finding["path"], ranks["late"][0]["cause"]["path"]);
    assert_eq!(finding["saving"]["likely"], ranks["late"][0]["saves_up_to"]);
    assert!(slow("ranks/even").is_empty());
}

/// Writes the recorded ranks without a fault three times, as twelve ranks in three groups. `edit` gets the rank and
/// each kernel.
fn three_groups(folder: &std::path::Path, edit: impl Fn(u64, &mut serde_json::Value)) {
    for rank in 0..12 {
        let file = std::fs::File::open(fixture(&format!("ranks/even/rank{}.json.gz", rank % 4))).unwrap();
        let mut text = String::new();
        flate2::read::MultiGzDecoder::new(file).read_to_string(&mut text).unwrap();
        let mut trace: serde_json::Value = serde_json::from_str(&text).unwrap();
        trace["distributedInfo"]["rank"] = rank.into();
        trace["distributedInfo"]["world_size"] = 12.into();
        for event in trace["traceEvents"].as_array_mut().unwrap().iter_mut().filter(|event| event["cat"] == "kernel") {
            if event["args"]["Process Group Name"].is_string() {
                event["args"]["Process Group Name"] = (rank / 4).to_string().into();
            }
            edit(rank, event);
        }
        std::fs::write(folder.join(format!("rank{rank:02}.json")), trace.to_string()).unwrap();
    }
}

#[test]
fn a_slow_link_is_named() {
    let folder = tempfile::tempdir().unwrap();
    three_groups(folder.path(), |rank, event| {
        if rank / 4 == 1 && event["args"]["Process Group Name"].is_string() {
            event["dur"] = (event["dur"].as_f64().unwrap() + 2000.0).into();
        }
    });
    let text = printed("ranks --format md", &[folder.path()]);
    let start = "a link between ranks 4, 5, 6, 7 is slow: all-reduce takes ";
    assert!(text.contains(start) && text.contains(" groups alike (") && text.contains(" MB/s, not "), "{text}");
    let json = printed_json("ranks --json", &[folder.path()]);
    let links = json["slow_links"].as_array().unwrap();
    assert_eq!((links.len(), links[0]["group"].as_str()), (1, Some("1")));
    // Seven all-reduces in a step.
    let costs = links[0]["costs"].as_f64().unwrap() / 1e6;
    assert!((costs - 14.0).abs() < 0.5, "{costs} ms");
    let page = folder.path().join("page.html");
    assert_eq!(run(&format!("ranks --html {}", page.display()), &[folder.path()]).code, 0);
    assert!(std::fs::read_to_string(page).unwrap().contains("Slow links"));
    let even = printed_json("ranks --json", &[&fixture("ranks/even")]);
    assert!(even["slow_links"].as_array().unwrap().is_empty() && even["uneven_work"].as_array().unwrap().is_empty());
}
