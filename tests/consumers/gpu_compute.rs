//! A test in which Perfetto's own schema decodes what its tab *GPU Compute* reads.

use crate::support::{
    readers::{environment, run},
    recorded,
};
use kernspan::{Exporter, Perfetto, analysis::Analysis};

#[test]
fn perfettos_schema_has_all_fields_and_every_launch() {
    let Some(python) = environment("perfetto.txt", "Perfetto's schema does") else { return };
    for name in ["training", "calls", "candle"] {
        let (trace, folder) = (recorded(name), tempfile::tempdir().unwrap());
        let file = Perfetto::to_dir(folder.path()).export(&Analysis::of(&trace)).unwrap().remove(0);
        let lines = run(&python, "perfetto_schema.py", &[file.to_str().unwrap()]);
        let (gpus, launches): (Vec<_>, Vec<_>) = lines.iter().partition(|line| line.get("gpus").is_some());
        assert_eq!(gpus.len(), 1, "{name}");
        let gpu = &gpus[0]["gpus"][0];
        assert_eq!((gpu[0].as_str(), gpu[1].as_str()), (Some(&*trace.devices()[0].name), Some("NVIDIA")), "{name}");
        assert_eq!(gpu[2], "sm_90", "{name}");
        let sizes = |kernel: &kernspan::trace::Kernel| serde_json::json!([kernel.grid, kernel.block]);
        let mut expected: Vec<_> = trace
            .work()
            .filter_map(|work| Some((work.kernel()?, work.duration().as_nanos() as u64)))
            .map(|(kernel, nanos)| (kernel.name.to_string(), nanos, sizes(kernel).to_string()))
            .collect();
        let mut found = Vec::new();
        for launch in launches {
            assert_eq!(launch["kernel"], launch["stage"], "{name}");
            let arguments = launch["arguments"].as_array().unwrap();
            for argument in ["registers_per_thread", "shared_mem_dynamic", "waves_per_multiprocessor"] {
                assert!(arguments.iter().any(|it| it == argument), "{argument}: {launch}");
            }
            let size = serde_json::json!([launch["grid"], launch["block"]]).to_string();
            found.push((launch["kernel"].as_str().unwrap().to_owned(), launch["nanos"].as_u64().unwrap(), size));
        }
        expected.sort();
        found.sort();
        assert!(!found.is_empty() && found == expected, "{name}: {found:?}, not {expected:?}");
    }
}
