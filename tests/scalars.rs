//! What the real TensorBoard shows of what is written for it must be what happened.

mod support;

use kernspan::{
    Error, ExportResult, Exporter, Profiler, ProfilerBuilder, Report, Run, Schedule, StepExporter, StepSigns,
    TensorBoard, Trace,
};
use serde_json::Value as Json;
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
};
use support::readers;
use tracing::info;
use tracing_subscriber::prelude::*;

/// Keeps what it is told, to be compared with what is shown.
#[derive(Clone, Default)]
struct Kept(Arc<Mutex<Vec<StepSigns>>>);

impl Exporter for Kept {
    fn export(&mut self, _: &Trace) -> ExportResult {
        Ok(vec![])
    }

    fn steps(&mut self, _: &Run) -> Option<Box<dyn StepExporter>> {
        Some(Box::new(self.clone()))
    }
}

impl StepExporter for Kept {
    fn steps(&mut self, steps: &[StepSigns]) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        self.0.lock().unwrap().extend_from_slice(steps);
        Ok(())
    }
}

/// Trains, and gives back what was told of the steps and the report.
fn train(
    setup: impl FnOnce(ProfilerBuilder) -> ProfilerBuilder,
    program: impl FnOnce(&Profiler),
) -> (Vec<StepSigns>, Result<Report, Error>) {
    let kept = Kept::default();
    let builder = Profiler::builder().rank(0, 1).schedule(Schedule::steps(2..=3)).export(kept.clone());
    let (layer, profiler) = setup(builder).build().unwrap();
    tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || program(&profiler));
    let report = profiler.finish();
    let kept = kept.0.lock().unwrap().clone();
    (kept, report)
}

fn steps(count: u32) -> impl FnOnce(&Profiler) {
    move |profiler| {
        for step in 0..count {
            info!(counter.loss = 1.0 / f64::from(step + 1));
            profiler.step();
        }
    }
}

/// A series as TensorBoard has it: wall time, step, value.
type Series = Vec<(f64, u64, f64)>;

/// What TensorBoard shows of a folder.
struct Shown {
    scalars: BTreeMap<String, BTreeMap<String, Series>>,
    texts: Json,
    hparams: Json,
}

/// Both of TensorBoard's ways to read files: the quick one, and the one that everything can be done with.
const LOADERS: [&str; 2] = ["--load_fast=true", "--load_fast=false"];

/// What TensorBoard shows once it has read so many scalars, in both ways; none without Python.
fn shown(folder: &Path, points: usize) -> Option<[Shown; 2]> {
    let python = readers::environment("tensorboard.txt", "TensorBoard and XProf")?;
    Some(LOADERS.map(|loader| {
        let arguments = [folder.to_str().unwrap(), &points.to_string(), loader];
        let mut answer = readers::run(&python, "tb_scalars.py", &arguments).pop().unwrap();
        let mut scalars = BTreeMap::new();
        for (run, tags) in answer["scalars"].as_object().unwrap() {
            let series = |points: &Json| points.as_array().unwrap().iter().map(point).collect::<Series>();
            let tags = tags.as_object().unwrap().iter().map(|(tag, points)| (tag.clone(), series(points)));
            scalars.insert(run.clone(), tags.collect());
        }
        Shown { scalars, texts: answer["texts"].take(), hparams: answer["hparams"].take() }
    }))
}

fn point(point: &Json) -> (f64, u64, f64) {
    // What is not finite is in quotes.
    let value = point[2].as_f64().unwrap_or_else(|| match point[2].as_str() {
        Some("NaN") => f64::NAN,
        Some("Infinity") => f64::INFINITY,
        Some("-Infinity") => f64::NEG_INFINITY,
        _ => panic!("{point}"),
    });
    (point[0].as_f64().unwrap(), point[1].as_u64().unwrap(), value)
}

/// A series, as it has to be shown: with 32 bits.
fn expected(steps: &[StepSigns], first_step: u64, value: impl Fn(&StepSigns) -> Option<f64>) -> Vec<(u64, f32)> {
    steps.iter().filter_map(|step| Some((first_step + step.number, value(step)? as f32))).collect()
}

fn values(series: &Series) -> Vec<(u64, f32)> {
    series.iter().map(|&(_, step, value)| (step, value as f32)).collect()
}

/// As equal as numbers can be that are not all numbers.
#[track_caller]
fn assert_same(shown: &[(u64, f32)], expected: &[(u64, f32)]) {
    let bits = |series: &[(u64, f32)]| series.iter().map(|&(step, value)| (step, value.to_bits())).collect::<Vec<_>>();
    assert_eq!(bits(shown), bits(expected), "{shown:?} instead of {expected:?}");
}

/// Step times as they have to be shown.
fn millis(step: &StepSigns) -> Option<f64> {
    step.ended.then(|| step.duration.as_secs_f64() * 1e3)
}

#[test]
fn every_step_is_shown_with_its_time_and_its_counters() {
    let folder = tempfile::tempdir().unwrap();
    let exporter = TensorBoard::to_dir(folder.path()).samples_per_step(64);
    let (told, report) = train(
        |builder| builder.export(exporter),
        |profiler| {
            for step in 0..200_u32 {
                info!(counter.loss = if step == 7 { f64::NAN } else { 1.0 / f64::from(step + 1) });
                if step % 10 == 0 {
                    info!(counter.lr = 0.1, counter.big = if step == 0 { f64::INFINITY } else { -1e30 });
                }
                if step == 100 {
                    info!(counter.samples = 3);
                }
                std::thread::yield_now();
                profiler.step();
            }
            info!(counter.accuracy = 0.75);
        },
    );
    let files = report.unwrap().files().to_vec();
    assert_eq!(files.len(), 1);
    assert_eq!((files[0].parent().unwrap(), told.len()), (folder.path(), 201));
    let Some(shown) = shown(folder.path(), 200 * 4 + 2 * 20 + 3) else { return };
    for shown in shown {
        let tags = &shown.scalars["."];
        let names: Vec<_> = tags.keys().map(String::as_str).collect();
        let all = [
            "accuracy",
            "big",
            "loss",
            "lr",
            "profiler/lost",
            "samples",
            "step/per_second",
            "step/samples_per_second",
            "step/time_ms",
        ];
        assert_eq!(names, all);
        let check = |tag: &str, value: &dyn Fn(&StepSigns) -> Option<f64>| {
            assert_same(&values(&tags[tag]), &expected(&told, 0, value));
        };
        check("step/time_ms", &millis);
        check("step/per_second", &|step| step.ended.then(|| 1.0 / step.duration.as_secs_f64()));
        let samples = |step: &StepSigns| if step.number == 100 { 3.0 } else { 64.0 };
        check("step/samples_per_second", &|step| step.ended.then(|| samples(step) / step.duration.as_secs_f64()));
        for name in ["loss", "lr", "big", "samples", "accuracy"] {
            check(name, &|step| step.counter(name));
        }
        assert_eq!(values(&tags["accuracy"]), [(200, 0.75)]);
        assert!(tags["loss"][7].2.is_nan() && tags["big"][0].2 == f64::INFINITY);
        assert_eq!(values(&tags["profiler/lost"]), [(3, 0.0)]);
        for (step, (wall, ..)) in told.iter().zip(&tags["step/time_ms"]) {
            assert!((step.end().as_unix_nanos() as f64 / 1e9 - wall).abs() < 1e-5, "{wall}: {step:?}");
        }
    }
}

#[test]
fn the_configuration_and_the_gpu_are_shown_as_text() {
    let folder = tempfile::tempdir().unwrap();
    let exporter = TensorBoard::to_dir(folder.path());
    let (_, report) =
        train(|builder| builder.metadata("model", "a *b* | <script>c</script>").rank(0, 2).export(exporter), steps(5));
    let gpu = report.unwrap().gpu().clone();
    let Some(shown) = shown(folder.path(), 16) else { return };
    for shown in shown {
        let text = |tag: &str| {
            let texts = shown.texts["."][tag].as_array().unwrap();
            assert_eq!(texts.len(), 1, "{texts:?}");
            // A list of texts would be shown as a table of its own.
            assert!(!texts[0]["text"].as_str().unwrap().contains("<td><table>"), "{texts:?}");
            texts[0]["text"].as_str().unwrap().to_owned()
        };
        let configuration = text("kernspan/configuration");
        let row = |name: &str, value: &str| format!("<td>{name}</td>\n<td>{value}</td>");
        for row in [
            row("rank", "0 of 2"),
            row("pid", &std::process::id().to_string()),
            row("schedule", "Steps(2..=3)"),
            row("kernspan", env!("CARGO_PKG_VERSION")),
            row("activities", "Host, Kernels, Copies"),
            row("model", "a *b* &#124; &lt;script&gt;c&lt;/script&gt;"),
        ] {
            assert!(configuration.contains(&row), "no {row} in {configuration}");
        }
        let first_words: String = gpu.to_string().chars().take(16).collect();
        assert!(gpu.is_available() || text("kernspan/gpu").contains(&first_words), "{}", text("kernspan/gpu"));
    }
}

#[test]
fn hyperparameters_and_metrics_are_a_table_of_runs() {
    let folder = tempfile::tempdir().unwrap();
    for (run, rate, optimizer) in [("a", 0.5, "adamw"), ("b", 0.25, "sgd")] {
        let exporter = TensorBoard::to_dir(folder.path().join(run)).hparam("lr", rate).hparam("optimizer", optimizer);
        let exporter = exporter.hparam("amp", run == "a").hparam("layers", 1).hparam("layers", 12);
        train(|builder| builder.export(exporter), steps(5)).1.unwrap();
    }
    let Some(shown) = shown(folder.path(), 32) else { return };
    for Shown { hparams, .. } in shown {
        let named = |list: &str, place: &str| -> Vec<Json> {
            hparams["experiment"][list]
                .as_array()
                .unwrap()
                .iter()
                .map(|info| info.pointer(place).unwrap().clone())
                .collect()
        };
        let mut names = named("hparamInfos", "/name");
        names.sort_by_key(Json::to_string);
        assert_eq!(names, ["amp", "layers", "lr", "optimizer"], "{hparams}");
        assert!(named("metricInfos", "/name/tag").contains(&"loss".into()), "{hparams}");
        let groups = hparams["groups"].as_array().unwrap();
        assert_eq!(groups.len(), 2, "{hparams}");
        for (group, (run, rate, optimizer)) in groups.iter().zip([("a", 0.5, "adamw"), ("b", 0.25, "sgd")]) {
            let expected = serde_json::json!({ "amp": run == "a", "layers": 12.0, "lr": rate, "optimizer": optimizer });
            assert_eq!(group["hparams"], expected, "{group}");
            let [session] = &group["sessions"].as_array().unwrap()[..] else { panic!("{group}") };
            assert_eq!((&session["name"], &session["status"]), (&run.into(), &"STATUS_SUCCESS".into()), "{session}");
            let loss = session["metricValues"]
                .as_array()
                .unwrap()
                .iter()
                .find(|metric| metric["name"]["tag"] == "loss")
                .unwrap();
            assert!((loss["value"].as_f64().unwrap() - 0.2).abs() < 1e-6 && loss["trainingStep"] == 4, "{loss}");
        }
    }
}

#[test]
fn a_resumed_run_goes_on_in_a_new_file() {
    let folder = tempfile::tempdir().unwrap();
    let (before, report) = train(|builder| builder.export(TensorBoard::to_dir(folder.path())), steps(30));
    let [first] = report.unwrap().files().to_vec().try_into().unwrap();
    let content = std::fs::read(&first).unwrap();
    // From a checkpoint after step 19.
    let (after, report) = train(|builder| builder.export(TensorBoard::to_dir(folder.path()).first_step(20)), steps(10));
    let [second]: [PathBuf; 1] = report.unwrap().files().to_vec().try_into().unwrap();
    assert_ne!(first, second);
    assert_eq!(std::fs::read(&first).unwrap(), content, "the old file is left alone");
    let Some(shown) = shown(folder.path(), 3 * 30 + 2) else { return };
    for shown in shown {
        // What the first run did after the checkpoint is forgotten.
        let resumed = [expected(&before[..20], 0, millis), expected(&after, 20, millis)].concat();
        assert_same(&values(&shown.scalars["."]["step/time_ms"]), &resumed);
        assert_eq!(values(&shown.scalars["."]["profiler/lost"]), [(3, 0.0), (23, 0.0)]);
    }
}

#[test]
fn runs_and_ranks_are_kept_apart() {
    let folder = tempfile::tempdir().unwrap();
    let told: Vec<_> = [("one", 0, 1), ("several", 0, 2), ("several", 1, 2)]
        .iter()
        .map(|&(run, rank, size)| {
            let exporter = TensorBoard::to_dir(folder.path().join(run)).hparam("lr", 0.5);
            train(|builder| builder.rank(rank, size).export(exporter), steps(5 + rank)).0
        })
        .collect();
    let Some(shown) = shown(folder.path(), 51) else { return };
    for shown in shown {
        for (run, told) in ["one", "several", "several/rank1"].iter().zip(&told) {
            assert_same(&values(&shown.scalars[*run]["step/time_ms"]), &expected(told, 0, millis));
        }
        assert_eq!(shown.scalars.len(), 3);
        assert_eq!(shown.hparams["groups"].as_array().unwrap().len(), 2, "a session is of all ranks");
    }
}

#[test]
fn names_of_counters_may_be_anything() {
    let folder = tempfile::tempdir().unwrap();
    let (told, report) = train(
        |builder| builder.export(TensorBoard::to_dir(folder.path())),
        |profiler| {
            info!(counter.train.loss = 1.0);
            info!("counter.model::layer<T>::norm" = 2.0, "counter.☃ & \"quoted\" / ?#%" = 3.0);
            info!("counter.nul\0 and\nline" = 4.0, "counter." = 5.0, "counter.step/time_ms" = 6.0);
            info!("counter._hparams_/session_start_info" = 7.0, "counter.kernspan/gpu" = 8.0);
            profiler.step();
        },
    );
    assert_eq!(told.len(), 1);
    report.unwrap();
    let Some(shown) = shown(folder.path(), 10) else { return };
    for shown in shown {
        let mut tags = shown.scalars["."].clone();
        for (tag, value) in [
            ("train.loss", 1.0),
            ("model::layer<T>::norm", 2.0),
            ("☃ & \"quoted\" / ?#%", 3.0),
            ("nul_ and_line", 4.0),
            ("counter/", 5.0),
            ("counter/step/time_ms", 6.0),
            ("counter/_hparams_/session_start_info", 7.0),
            ("counter/kernspan/gpu", 8.0),
        ] {
            assert_eq!(tags.remove(tag).map(|series| values(&series)), Some(vec![(0, value)]), "{tag}");
        }
        assert_eq!(tags.keys().collect::<Vec<_>>(), ["step/per_second", "step/time_ms"]);
    }
}

#[test]
#[cfg(all(feature = "cuda", target_os = "linux"))]
fn what_the_gpu_did_in_each_step_is_shown_as_the_report_has_it() {
    let folder = tempfile::tempdir().unwrap();
    let mut expected: BTreeMap<&str, BTreeMap<String, Vec<(u64, f32)>>> = BTreeMap::new();
    let (recordings, mut points) = (["training", "candle", "calls"], 0);
    for recording in recordings {
        let trace = support::recorded(recording);
        let files = TensorBoard::to_dir(folder.path().join(recording)).first_step(100).export(&trace).unwrap();
        assert_eq!(files.len(), 1);
        let report = Report::of([&trace]);
        let tags = expected.entry(recording).or_default();
        for step in report.gpu_steps().steps() {
            let mut add = |tag: &str, value: f64| {
                let prefix = if step.device.as_u32() == 0 { "gpu".to_owned() } else { format!("gpu{}", step.device) };
                tags.entry(format!("{prefix}/{tag}")).or_default().push((100 + step.step, value as f32));
            };
            add("busy_percent", step.usage.busy_percent());
            add("kernels", step.usage.kernels as f64);
            add("copied_bytes", step.usage.copied as f64);
            step.peak_memory.iter().for_each(|&bytes| add("peak_memory_bytes", bytes as f64));
            step.usage.mfu().iter().for_each(|&mfu| add("mfu_percent", mfu));
        }
        let last = trace.steps().last().map_or(0, |step| step.number());
        tags.insert("profiler/lost".to_owned(), vec![(100 + last, trace.losses().total() as f32)]);
        let whole = trace.steps().iter().filter(|step| !step.cut().any());
        let times = whole.map(|step| (100 + step.number(), (step.duration().as_secs_f64() * 1e3) as f32));
        tags.insert("step/time_ms".to_owned(), times.collect());
        points += tags.values().map(Vec::len).sum::<usize>();
    }
    let all: Vec<_> = expected.values().flat_map(BTreeMap::keys).map(String::as_str).collect();
    for tag in ["gpu/busy_percent", "gpu/kernels", "gpu/copied_bytes", "gpu/peak_memory_bytes"] {
        assert!(all.contains(&tag), "no recording has {tag}: {all:?}");
    }
    let Some(shown) = shown(folder.path(), points) else { return };
    for shown in shown {
        for (recording, tags) in &expected {
            for (tag, series) in tags.iter().filter(|(_, series)| !series.is_empty()) {
                assert_same(&values(&shown.scalars[*recording][tag]), series);
            }
            assert!(shown.texts[recording]["kernspan/gpu"][0]["text"].as_str().unwrap().contains("NVIDIA H200"));
        }
    }
}

/// Steps with their times in an events file, read by nobody but us; what is cut off at its end does not count.
#[cfg(target_os = "linux")]
fn step_numbers(file: &Path) -> Vec<u64> {
    let bytes = std::fs::read(file).unwrap();
    let (mut left, mut steps) = (&bytes[..], Vec::new());
    while left.len() >= 12 {
        let length = u64::from_le_bytes(left[..8].try_into().unwrap()) as usize;
        let Some(event) = left.get(12..12 + length) else { break };
        // The time, and then the step, a number of any length.
        if event.windows(12).any(|part| part == b"step/time_ms") {
            let varint = event[10..].iter().take_while(|byte| **byte & 0x80 != 0).count();
            steps.push(event[10..=10 + varint].iter().rev().fold(0, |step, byte| step << 7 | u64::from(byte & 0x7f)));
        }
        left = &left[(16 + length).min(left.len())..];
    }
    steps
}

#[cfg(target_os = "linux")]
fn events_file(folder: &Path) -> Option<PathBuf> {
    std::fs::read_dir(folder)
        .ok()?
        .flatten()
        .map(|entry| entry.path())
        .find(|path| path.to_string_lossy().contains("tfevents"))
}

/// Trains until it is killed, and says how far it has come.
#[test]
#[cfg(target_os = "linux")]
fn trains_for_ever() {
    let Some(folder) = std::env::var_os("KERNSPAN_TEST_FOLDER") else { return };
    let folder = PathBuf::from(folder);
    let exporter = TensorBoard::to_dir(&folder);
    let (layer, profiler) =
        Profiler::builder().rank(0, 1).schedule(Schedule::manual()).export(exporter).build().unwrap();
    tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
        for step in 0_u64.. {
            info!(counter.loss = 0.5);
            profiler.step();
            std::thread::sleep(std::time::Duration::from_millis(1));
            if step % 100 == 0 {
                std::fs::write(folder.join("come.tmp"), step.to_string()).unwrap();
                std::fs::rename(folder.join("come.tmp"), folder.join("come")).unwrap();
            }
        }
    });
}

#[test]
#[cfg(target_os = "linux")]
fn a_killed_process_leaves_all_steps_but_those_of_the_last_second() {
    let folder = tempfile::tempdir().unwrap();
    let mut child = support::child::start("trains_for_ever", &[("KERNSPAN_TEST_FOLDER", folder.path().as_os_str())]);
    let come = || std::fs::read_to_string(folder.path().join("come")).ok()?.parse::<u64>().ok();
    let wait_for = |goal: u64| {
        while come().is_none_or(|step| step < goal) {
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        come().unwrap()
    };
    let seen = wait_for(500);
    let at = std::time::Instant::now();
    // By the child's own steps, which take a millisecond or more each, as well as by the clock.
    while at.elapsed() < std::time::Duration::from_secs(1) {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    wait_for(seen + 100);
    child.kill().unwrap();
    child.wait().unwrap();
    let last = come().unwrap();
    let file = events_file(folder.path()).unwrap();
    let steps = step_numbers(&file);
    assert!(steps.len() as u64 >= seen, "{} of {last} steps, {seen} of them older than a second", steps.len());
    assert!(steps.iter().enumerate().all(|(place, &step)| step == place as u64), "{steps:?}");
    let Some(shown) = shown(folder.path(), steps.len() * 3) else { return };
    for shown in shown {
        let series = values(&shown.scalars["."]["step/time_ms"]);
        assert_eq!(series.iter().map(|&(step, _)| step).collect::<Vec<_>>(), steps);
    }
}

fn failures(report: Result<Report, Error>) -> Vec<String> {
    match report {
        Ok(_) => Vec::new(),
        Err(Error::Run { failures, .. }) => failures.iter().map(ToString::to_string).collect(),
        Err(other) => panic!("{other}"),
    }
}

#[test]
fn a_folder_that_cannot_be_made_is_said_once_and_the_training_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let in_the_way = folder.path().join("runs");
    std::fs::write(&in_the_way, "somebody else's").unwrap();
    let schedule = Schedule::new().active(1).wait(1);
    let exporter = TensorBoard::to_dir(in_the_way.join("mnist"));
    let (told, report) = train(
        |builder| builder.schedule(schedule).export(exporter),
        |profiler| {
            for _ in 0..20 {
                profiler.step();
                // Long enough to be tried several times.
                std::thread::sleep(std::time::Duration::from_millis(50));
            }
        },
    );
    assert_eq!(told.len(), 20);
    let failures = failures(report);
    assert_eq!(failures.len(), 1, "{failures:?}");
    assert!(failures[0].starts_with("TensorBoard: cannot write ") && failures[0].contains("mnist: "), "{failures:?}");
    assert_eq!(std::fs::read_to_string(in_the_way).unwrap(), "somebody else's");
}

/// Trains where files may not become larger than 64 KiB.
#[test]
#[cfg(target_os = "linux")]
fn trains_on_a_full_disk() {
    let Some(folder) = std::env::var_os("KERNSPAN_TEST_FOLDER") else { return };
    let exporter = TensorBoard::to_dir(PathBuf::from(folder));
    let (told, report) = train(
        |builder| builder.schedule(Schedule::manual()).export(exporter),
        |profiler| {
            for _ in 0..10 {
                steps(300)(profiler);
                std::thread::sleep(std::time::Duration::from_millis(100));
            }
        },
    );
    assert_eq!(told.len(), 3000);
    let failures = failures(report);
    assert_eq!(failures.len(), 1, "{failures:?}");
    assert!(failures[0].contains("File too large"), "{failures:?}");
}

#[test]
#[cfg(target_os = "linux")]
fn a_full_disk_is_said_once_and_what_was_written_can_be_read() {
    let folder = tempfile::tempdir().unwrap();
    support::child::run_with_small_files(
        "trains_on_a_full_disk",
        &[("KERNSPAN_TEST_FOLDER", folder.path().as_os_str())],
    );
    let file = events_file(folder.path()).unwrap();
    assert_eq!(std::fs::metadata(&file).unwrap().len(), 64 << 10);
    let steps = step_numbers(&file);
    assert!(steps.len() > 300 && steps.iter().enumerate().all(|(place, &step)| step == place as u64), "{steps:?}");
}
