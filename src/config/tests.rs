//! Tests of the layers: precedence, and the text of each error.

use super::{Origin, Profiling, Settings};
use proptest::{prelude::*, sample::Index};
use std::fs;

/// Returns the error of a file's settings, without the folder.
fn error_of(name: &str, text: &str) -> String {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(name);
    fs::write(&path, text).unwrap();
    let error = Settings::new().with_file(&path).and_then(|settings| settings.check()).unwrap_err();
    error.to_string().replace(&format!("{}/", folder.path().display()), "")
}

fn error_of_variables(variables: &[(&str, &str)]) -> String {
    let settings = Settings::new().with_variables(variables.iter().copied());
    settings.and_then(|settings| settings.check()).unwrap_err().to_string()
}

#[test]
fn errors_of_files_have_a_place_and_a_suggestion() {
    let cases = [
        // Unknown keys.
        ("a.yaml", "profiling:\n  wiat: 5\n", "a.yaml:2:3: unknown key `wiat`: did you mean `wait`?"),
        (
            "a.toml",
            "[profiling]\nactive = 3\nwarm_up = 1\n",
            "a.toml:3:1: unknown key `warm_up`: did you mean `warmup`?",
        ),
        ("a.yaml", "profiling: {num_cycles: 1}", "a.yaml:1:13: unknown key `num_cycles`: did you mean `repeat`?"),
        (
            "a.yaml",
            "model: {size: 3}\nactive: 3\n",
            "a.yaml:1:1: unknown key `model`: known are enabled, skip_first, skip_first_wait, wait, warmup, active, \
             repeat, steps, step_on, activities, record_shapes, profile_memory, with_stack, with_flops, heap_lines, \
             sample_hertz, vitals_interval, vitals_thresholds, carbon_intensity, energy_price, cpu_time, nvtx, \
             export, on_trace_ready, dir, disk_limit_bytes, memory_limit_bytes, print_report, save_on_exit, control, \
             flight_recorder, flight_slow_step, request_on, slo, request_log; a file with other sections needs a \
             section `profiling`",
        ),
        // Wrong types.
        ("a.yaml", "profiling:\n  active: five\n", "a.yaml:2:11: `active`: expected a whole number, found \"five\""),
        ("a.yaml", "active: -1\n", "a.yaml:1:9: `active`: expected a whole number, found -1"),
        ("a.yaml", "active: 2.5\n", "a.yaml:1:9: `active`: expected a whole number, found 2.5"),
        ("a.toml", "active = \"3\"\n", "a.toml:1:10: `active`: expected a whole number, found \"3\""),
        ("a.yaml", "with_stack: 3\n", "a.yaml:1:13: `with_stack`: expected true or false, found 3"),
        ("a.yaml", "dir: [runs]\n", "a.yaml:1:6: `dir`: expected text, found a list"),
        ("a.yaml", "profiling: 5\n", "a.yaml:1:12: expected a section of settings, such as `active: 3`, found 5"),
        (
            "a.yaml",
            "export:\n  - html\n  - crome\n",
            "a.yaml:3:5: `export`: unknown format `crome`: did you mean `chrome`?",
        ),
        (
            "a.yaml",
            "activities: [cpu, ProfilerActivity.CUDDA]\n",
            "a.yaml:1:19: `activities`: unknown activity `cudda`: did you mean `cuda`?",
        ),
        (
            "a.yaml",
            "activities: []\n",
            "a.yaml:1:13: `activities`: the list of activities is empty: leave it out for the default",
        ),
        ("a.yaml", "steps: 7\n", "a.yaml:1:8: `steps`: expected a range of steps, such as \"100..110\", found 7"),
        ("a.yaml", "steps: 9..3\n", "a.yaml:1:8: `steps`: the range 9..3 is empty, so no step would be recorded"),
        (
            "a.yaml",
            "disk_limit_bytes: 10 G\n",
            "a.yaml:1:19: `disk_limit_bytes`: expected a number of bytes, such as 10000000 or \"512 MiB\", found \
             \"10 G\"",
        ),
        // Contradictions.
        (
            "a.yaml",
            "profiling:\n  active: 3\n  steps: 1..4\n",
            "a.yaml:3:3: `steps` and `active` contradict each other: a range is not repeated; remove one",
        ),
        (
            "a.yaml",
            "vitals_interval: 1s\n",
            "a.yaml:1:1: `vitals_interval` needs the activity `vitals`: add it to `activities`",
        ),
        (
            "a.yaml",
            "activities: vitals\nvitals_interval: soon\n",
            "a.yaml:2:18: `vitals_interval`: expected a time, such as \"1s\" or \"100ms\", found \"soon\"",
        ),
        (
            "a.yaml",
            "energy_price: 0.31\n",
            "a.yaml:1:1: `energy_price` needs the activity `vitals`: add it to `activities`",
        ),
        (
            "a.yaml",
            "activities: vitals\ncarbon_intensity: much\n",
            "a.yaml:2:19: `carbon_intensity`: expected a number, found \"much\"",
        ),
        (
            "a.yaml",
            "activities: vitals\ncarbon_intensity: -1\n",
            "a.yaml:2:1: `carbon` is -1; it must be a number from 0",
        ),
        (
            "a.yaml",
            "activities: vitals\nvitals_thresholds: [machine.cpu]\n",
            "a.yaml:2:1: `machine.cpu` is not a threshold: write `machine.cpu > 90%` or `gpu.memory > 90%`",
        ),
        (
            "a.yaml",
            "cpu_time: threads\n",
            "a.yaml:1:11: `cpu_time`: expected \"steps\", \"spans\" or \"spans up to info\", found \"threads\"",
        ),
        ("a.yaml", "active: 0\n", "a.yaml:1:1: `active` is 0, so no step would ever be recorded: use 1 or more"),
        (
            "a.yaml",
            "repeat: 2\n",
            "a.yaml:1:1: `repeat` is set, but not `active`: say how many steps of each cycle are recorded",
        ),
        ("a.yaml", "{active: 3, export: chrome, on_trace_ready: html}\n", "a.yaml:1:29: `export` is set twice"),
        ("a.yaml", "export: [html, html]\n", "a.yaml:1:1: `export` has html twice"),
        (
            "a.yaml",
            "activities: [memory]\nprofile_memory: no\n",
            "a.yaml:2:1: `profile_memory` is false, but `activities` has `memory`: remove one",
        ),
        (
            "a.yaml",
            "sample_hertz: 99\n",
            "a.yaml:1:1: `sample_hertz` needs the activity `samples`: add it to `activities`",
        ),
        (
            "a.yaml",
            "activities: [cpu, samples]\nsample_hertz: 0\n",
            "a.yaml:2:1: `hertz` is 0; it must be from 1 to 10000",
        ),
        ("a.yaml", "heap_lines: true\n", "a.yaml:1:1: `heap_lines` needs the activity `heap`: add it to `activities`"),
        (
            "a.yaml",
            "active: 9223372036854775807\nrepeat: 3\n",
            "a.yaml:1:1: skip_first + (wait + warmup + active) * repeat exceeds the largest step number",
        ),
        // Files that cannot be read.
        ("a.yaml", "active: 3\nactive: 4\n", "a.yaml:2:1: duplicated key in mapping"),
        ("a.toml", "active = \n", "a.toml:1:10: string values must be quoted, expected literal string"),
        ("a.ini", "active = 3\n", "a.ini: cannot read: expected a name that ends with .yaml, .yml, .json or .toml"),
    ];
    for (name, text, expected) in cases {
        assert_eq!(error_of(name, text), expected, "{text}");
    }
    let missing = Settings::new().with_file("no/such.yaml").unwrap_err().to_string();
    assert!(missing.starts_with("no/such.yaml: cannot read: "), "{missing}");
}

#[test]
fn errors_of_variables_name_them() {
    let cases: &[(&[(&str, &str)], &str)] = &[
        (
            &[("KERNSPAN_SCHEDUL", "active=3")],
            "unknown environment variable KERNSPAN_SCHEDUL: did you mean `KERNSPAN_SCHEDULE`?",
        ),
        (
            &[("KERNSPAN_ACTIVE", "3")],
            "unknown environment variable KERNSPAN_ACTIVE: did you mean KERNSPAN_SCHEDULE=\"active=…\"?",
        ),
        (&[("KERNSPAN", "maybe")], "KERNSPAN: expected true or false, found \"maybe\""),
        (&[("KERNSPAN_SCHEDULE", "active")], "KERNSPAN_SCHEDULE: expected key=value, such as wait=5, found \"active\""),
        (&[("KERNSPAN_SCHEDULE", "active=x")], "KERNSPAN_SCHEDULE: `active`: expected a whole number, found \"x\""),
        (
            &[("KERNSPAN_SCHEDULE", "steps=3..5,wait=1")],
            "KERNSPAN_SCHEDULE: `steps` and `wait` contradict each other: a range is not repeated; remove one",
        ),
        (
            &[("KERNSPAN_SCHEDULE", "wait=1")],
            "KERNSPAN_SCHEDULE: `wait` is set, but not `active`: say how many steps of each cycle are recorded",
        ),
        (&[("KERNSPAN_EXPORT", "chrom")], "KERNSPAN_EXPORT: unknown format `chrom`: did you mean `chrome`?"),
        (
            &[("KERNSPAN_SCHEDULE", "dir=1")],
            "KERNSPAN_SCHEDULE: unknown key `dir`: known are skip_first, \
            skip_first_wait, wait, warmup, active, repeat, steps",
        ),
    ];
    for (variables, expected) in cases {
        assert_eq!(error_of_variables(variables), *expected);
    }
}

#[test]
fn the_yaml_of_a_pytorch_project_works_unchanged() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("config.yaml");
    let text = "
# A training.
model: &model {name: gpt, layers: [1, 2]}
optimizer: !!python/object:torch.optim.Adam {lr: 1e-3}
profiling:
  wait: 5
  warmup: 1
  active: 3
  repeat: 2
  skip_first: 10
  record_shapes: True
  profile_memory: True
  with_stack: False
  with_flops: True
  activities: [ProfilerActivity.CPU, ProfilerActivity.CUDA]
  export: torch.profiler.tensorboard_trace_handler('./log')
  dir: ./runs
";
    fs::write(&path, text).unwrap();
    let settings = Settings::new().with_file(&path).unwrap();
    assert_eq!(settings.schedule().to_string(), "skip_first 10, wait 5, warmup 1, active 3, repeat 2");
    assert_eq!(settings.folders(), ["./log".into()] as [std::path::PathBuf; 1]);
    let text = |key: &str| settings.profiling().text(key).unwrap();
    assert_eq!([text("activities"), text("dir")], ["host,kernels,copies", "./runs"]);
    assert_eq!(settings.activities().len(), 4);
    let Origin::File { position, .. } = settings.origin("active") else { panic!() };
    assert_eq!(position, Some((8, 3)));
    drop(settings.builder().unwrap());
}

#[test]
fn nothing_is_recorded_unless_something_asks_for_it() {
    let on = |variables: &[(&str, &str)]| Settings::new().with_variables(variables.iter().copied()).unwrap();
    assert!(!on(&[]).is_enabled());
    assert!(!on(&[("KERNSPAN_CUPTI", "/lib/libcupti.so"), ("KERNSPAN_RUN_ID", "7"), ("PATH", "")]).is_enabled());
    assert!(!on(&[("KERNSPAN_DIR", "")]).is_enabled());
    assert!(!on(&[("KERNSPAN", "off"), ("KERNSPAN_DIR", "runs")]).is_enabled());
    for variable in [("KERNSPAN", "on"), ("KERNSPAN", "1"), ("KERNSPAN_EXPORT", "html")] {
        assert_eq!(on(&[variable]).schedule().to_string(), "wait 5, warmup 1, active 3, repeat 1");
        assert!(on(&[variable]).is_enabled());
    }
    for variable in [("KERNSPAN_CONTROL", "1"), ("KERNSPAN_FLIGHT_RECORDER", "10s")] {
        assert!(on(&[variable]).is_enabled() && on(&[variable]).schedule().is_manual(), "{variable:?}");
    }
    assert!(!on(&[("KERNSPAN_CONTROL", "0")]).is_enabled());
}

#[test]
fn a_schedule_of_a_higher_layer_replaces_the_other_kind() {
    let cycle = [("KERNSPAN_SCHEDULE", "wait=5,active=3")];
    let range = [("KERNSPAN_SCHEDULE", "steps=100..110")];
    let both = |first: [(&str, &str); 1], second| {
        let settings = Settings::new().with_variables(first).unwrap().with_variables(second).unwrap();
        settings.check().unwrap();
        settings.schedule().to_string()
    };
    assert_eq!(both(cycle, range), "steps 100 to 109");
    assert_eq!(both(range, cycle), "wait 5, warmup 0, active 3, repeat until the end");
}

#[test]
fn memory_can_be_turned_off_by_a_higher_layer() {
    let settings = Settings::new().with_variables([("KERNSPAN_ACTIVITIES", "cpu,memory")]).unwrap();
    let off = settings.with_variables([("KERNSPAN_PROFILE_MEMORY", "off")]).unwrap();
    assert_eq!(off.profiling().text("activities").as_deref(), Some("host"));
    let on = off.with_variables([("KERNSPAN_PROFILE_MEMORY", "on")]).unwrap();
    assert_eq!(on.activities().len(), 2);
}

#[test]
fn ranges_for_nvtx_need_the_feature_when_the_profiler_is_built() {
    let set = |value| Settings::new().with_variables([("KERNSPAN_NVTX", value)]).unwrap();
    let row = set("on").explain().into_iter().find(|row| row.key == "nvtx").unwrap();
    assert_eq!(row.to_string(), "nvtx = true (KERNSPAN_NVTX)");
    set("on").check().unwrap();
    drop(set("off").builder().unwrap());
    let built = set("on").builder().map(drop).map_err(|error| error.to_string());
    let needs = "KERNSPAN_NVTX: `nvtx` needs the feature `nvtx` of kernspan, on Unix";
    assert_eq!(built, if cfg!(all(feature = "nvtx", unix)) { Ok(()) } else { Err(needs.to_owned()) });
}

const NUMBERS: [&str; 5] = ["skip_first", "wait", "warmup", "active", "repeat"];

fn layer() -> impl Strategy<Value = Vec<(&'static str, u64)>> {
    prop::collection::vec((any::<Index>(), 1..100_u64), 0..5).prop_map(|settings| {
        let mut layer: Vec<(&str, u64)> = Vec::new();
        for (key, value) in settings {
            let key = *key.get(&NUMBERS);
            if layer.iter().all(|(known, _)| *known != key) {
                layer.push((key, value));
            }
        }
        layer
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn each_key_has_the_value_of_the_highest_layer(file in layer(), env in layer(), code in layer(), toml: bool) {
        let folder = tempfile::tempdir().unwrap();
        let (name, between) = if toml { ("a.toml", "=") } else { ("a.yaml", ": ") };
        let path = folder.path().join(name);
        let text: String = file.iter().map(|(key, value)| format!("{key}{between}{value}\n")).collect();
        fs::write(&path, text).unwrap();
        let schedule: Vec<_> = env.iter().map(|(key, value)| format!("{key}={value}")).collect();
        let mut profiling = Profiling::default();
        for (key, value) in &code {
            match *key {
                "skip_first" => profiling.skip_first = Some(*value),
                "wait" => profiling.wait = Some(*value),
                "warmup" => profiling.warmup = Some(*value),
                "active" => profiling.active = Some(*value),
                _ => profiling.repeat = Some(*value),
            }
        }
        // The file is lower even if the variable that names it is read with the others.
        let variables = [("KERNSPAN_SCHEDULE", schedule.join(",")), ("KERNSPAN_CONFIG", path.display().to_string())];
        let settings = Settings::new().with_variables(variables).unwrap().with(profiling, "code").unwrap();
        for key in NUMBERS {
            let find = |layer: &[(&str, u64)]| layer.iter().find(|(known, _)| *known == key).map(|(_, value)| *value);
            let expected = find(&code).or(find(&env)).or(find(&file));
            prop_assert_eq!(settings.profiling().text(key), expected.map(|value| value.to_string()));
            let origin = match settings.origin(key) {
                Origin::Program { .. } => 3,
                Origin::Variable { .. } => 2,
                Origin::File { .. } => 1,
                Origin::Default => 0,
            };
            let layers = [&code, &env, &file];
            let highest = layers.iter().position(|layer| find(layer).is_some()).map_or(0, |layer| 3 - layer);
            prop_assert_eq!(origin, highest);
        }
    }
}

#[test]
fn the_documentation_has_every_key_and_variable_once() {
    let text = include_str!("../../docs/configuration.md");
    for key in Profiling::KEYS.iter().map(|key| key.name) {
        let variable = match super::layer::variable_of(key) {
            Some(variable) => format!("`{variable}`"),
            None => "in `KERNSPAN_SCHEDULE`".to_owned(),
        };
        assert_eq!(text.matches(&format!("\n| `{key}` | {variable} |")).count(), 1, "{key}");
    }
    assert_eq!(text.matches("\n| `").count(), Profiling::KEYS.len());
}
