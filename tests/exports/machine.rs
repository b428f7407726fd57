//! Findings about the machine on real trainings on an H200, with stress from outside in the middle of each (`trainings
//! --stress` of `benches/candle`). The program that recorded them knew what the stress cost. Of the traces, the steps
//! and the vital signs that rules look at are kept.

use kernspan::analysis::{Analysis, Finding};
use serde_json::Value;
use std::{fs, path::Path};

/// The findings about the machine.
const KINDS: [&str; 5] = ["cpu-saturated", "disk-wait", "swapping", "clock-throttling", "shared-gpu"];

fn findings(file: &Path) -> Vec<Finding> {
    let traces = kernspan::read(file).unwrap();
    let window = Analysis::of(&traces[0]);
    window.findings().iter().filter(|finding| KINDS.contains(&finding.kind.as_str())).cloned().collect()
}

#[test]
fn stress_is_found_where_it_costs_and_nothing_else_is() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/machine");
    let table = fs::read_to_string(folder.join("stress.jsonl")).unwrap();
    let (mut rows, mut slowed, mut shared) = (0, 0, 0);
    for line in table.lines() {
        let row: Value = serde_json::from_str(line).unwrap();
        let millis = |of: &str| row[of]["ms"].as_f64().unwrap();
        let (case, stress, kind) =
            (row["case"].as_str(), row["stress"].as_str().unwrap(), row["kind"].as_str().unwrap());
        let found = findings(&folder.join(row["trace"].as_str().unwrap()));
        let (slower, cost) = (millis("stressed") / millis("others"), millis("all") - millis("others"));
        let savings: Vec<_> = found.iter().map(|finding| (finding.kind.as_str(), finding.saving)).collect();
        println!("{case:?}, {stress}: {slower:.2} times as long, costs {cost:.3} ms a step: {savings:?}");
        assert!(found.iter().all(|finding| finding.kind.as_str() == kind), "{line}: {found:?}");
        match stress {
            "none" | "other-disk" => assert_eq!(found, [], "{line}"),
            "cpu" | "disk" if slower > 1.2 => {
                let saving = found.first().unwrap_or_else(|| panic!("nothing found: {line}")).saving;
                let [least, likely, most] =
                    [saving.least, saving.likely, saving.most].map(|time| 1e3 * time.as_secs_f64());
                assert!((likely / cost - 1.0).abs() < 0.2 && least <= cost && cost <= most, "{line}: {saving:?}");
                slowed += 1;
            }
            // A training that is hardly slower says nothing; NVML's samples of processes come too late for two seconds.
            _ => shared += usize::from(stress == "gpu" && !found.is_empty()),
        }
        rows += 1;
    }
    // Three disks and one CPU; two of five trainings on the same GPU, which is a miss.
    assert_eq!((rows, slowed, shared), (25, 4, 2));
}
