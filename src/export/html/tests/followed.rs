//! What is followed over the whole run: vital signs, energy, requests and service levels.

use super::{HtmlReport, column, document, gpu_trace, section};
use crate::{
    analysis::{Carbon, EnergyMethod, EnergyUse, FollowedRun, RunEnergy, VitalSubject},
    export::Run,
    trace::{DeviceId, Timestamp},
};
use serde_json::{Value, json};
use std::{sync::Arc, time::Duration};

/// Returns the page of a window, at the end of a run that was followed.
fn page_of_run(followed: FollowedRun) -> Value {
    let trace = gpu_trace();
    let mut page = HtmlReport::of([&trace]);
    page.set_run(&Run {
        id: None,
        metadata: Arc::clone(&trace.metadata),
        start: Timestamp::default(),
        schedule: String::new(),
        activities: Vec::new(),
        unrecorded: Arc::default(),
        followed: Arc::new(followed.into()),
        vitals: Arc::default(),
        #[cfg(feature = "serving")]
        requests: None,
    });
    page.end_run();
    document(&page.to_string())
}

fn energy_use(subject: VitalSubject, method: EnergyMethod, joules: f64, error: f64) -> EnergyUse {
    EnergyUse { subject, method, joules, error, time: Duration::from_secs(4) }
}

#[test]
fn the_energy_of_a_run_is_a_table() {
    let mut followed = FollowedRun::default();
    let gpu = VitalSubject::Gpu(DeviceId::new(0));
    let uses = vec![
        energy_use(gpu, EnergyMethod::IntegratedPower, 2800.0, 14.0),
        energy_use(VitalSubject::Machine, EnergyMethod::Counter, 400.0, 0.1),
    ];
    let carbon = Carbon { grams: 0.4, grams_per_kwh: 450.0, source: "a supplier".to_owned() };
    followed.vitals.energy = Some(RunEnergy { uses, steps: 10, carbon: Some(carbon), cost: Some(0.0003) });
    let document = page_of_run(followed.clone());
    let of = |title| column(&document, "energy", title);
    assert_eq!(of("Part"), ["gpu0", "machine", "all"]);
    assert_eq!(of("Energy"), ["2.80 kJ", "400 J", "3.20 kJ"]);
    assert_eq!(of("±"), ["14.0 J", "0.100 J", "14.1 J"]);
    assert_eq!(of("Power"), ["700 W", "100 W", "800 W"]);
    assert_eq!(of("Measured"), [json!("integrated power"), json!("counted"), Value::Null]);
    for (title, text) in
        [("Per step", "320 J"), ("CO₂", "0.400 g"), ("Intensity", "450 g/kWh, a supplier"), ("Price", "0.000300")]
    {
        assert_eq!(of(title), [Value::Null, Value::Null, json!(text)], "{title}");
    }
    // Nothing is claimed that was not given.
    let energy = followed.vitals.energy.as_mut().unwrap();
    (energy.carbon, energy.cost) = (None, None);
    let document = page_of_run(followed);
    let columns = section(&document, "energy").unwrap()["columns"].to_string();
    assert!(columns.contains("Per step") && !columns.contains("CO₂") && !columns.contains("Price"), "{columns}");
    let document = page_of_run(FollowedRun::default());
    assert!(section(&document, "energy").is_none() && section(&document, "vitals").is_none());
}

#[cfg(any(feature = "serving", all(feature = "vitals", target_os = "linux")))]
mod real {
    use super::{column, document, section};
    use crate::{Html, Profiler, ProfilerBuilder, Report};
    use serde_json::Value;
    use std::fs;
    use tracing_subscriber::prelude::*;

    /// Runs a program of one window under a profiler, and returns its report and its page.
    fn run(
        settings: impl FnOnce(ProfilerBuilder) -> ProfilerBuilder,
        program: impl FnOnce(&Profiler),
    ) -> (Report, Value) {
        let folder = tempfile::tempdir().unwrap();
        let (layer, profiler) = settings(Profiler::builder().export(Html::to_dir(folder.path()))).build().unwrap();
        tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || program(&profiler));
        let report = profiler.finish().unwrap();
        let document = document(&fs::read_to_string(&report.files()[0]).unwrap());
        (report, document)
    }

    #[cfg(all(feature = "vitals", target_os = "linux"))]
    #[test]
    fn vital_signs_are_those_of_the_report() {
        use crate::Vitals;
        use std::time::{Duration, Instant};

        const EVERY: Duration = Duration::from_millis(20);
        let threshold = "process.threads > 0".parse().unwrap();
        let vitals = Vitals::default().every(EVERY).every_in_windows(EVERY).threshold(threshold);
        let (report, document) = run(
            |builder| builder.vitals(vitals),
            |profiler| {
                let until = Instant::now() + Duration::from_secs(120);
                // A share of a CPU is known from the second reading on.
                while profiler.vitals().is_none_or(|vitals| vitals.process.cpus.is_none()) {
                    assert!(Instant::now() < until, "nothing is read");
                    std::thread::sleep(EVERY);
                }
                tracing::info_span!("train_step").in_scope(|| ());
            },
        );
        let signs = &report.vitals().signs;
        let of = |title| column(&document, "vitals", title);
        let texts = |text: &dyn Fn(&crate::analysis::VitalSummary) -> String| -> Vec<Value> {
            signs.iter().map(|row| text(row).into()).collect()
        };
        assert_eq!(of("Vital sign"), texts(&|row| row.sign.to_string()));
        assert_eq!(of("Average"), texts(&|row| row.sign.unit().format(row.average)));
        assert_eq!(of("Peak"), texts(&|row| row.sign.unit().format(row.peak)));
        let row = |name: &str| of("Vital sign").iter().position(|sign| sign == name).unwrap();
        assert!(row("process.cpus") < signs.len() && row("machine.memory") < signs.len());
        let above = report.vitals().get("process.threads").unwrap().above.unwrap();
        assert_eq!(of("Above")[row("process.threads")], above.time.as_nanos() as u64);
        assert_eq!(of("Above")[row("process.cpus")], Value::Null);
    }

    #[cfg(feature = "serving")]
    #[test]
    fn requests_and_service_levels_are_those_of_the_report() {
        use crate::{
            serving::{RequestKind, Slo},
            trace::Timestamp,
        };
        use serde_json::json;
        use tracing::info_span;

        let (mut open, limit) = (None, std::time::Duration::from_secs(60));
        let (report, document) = run(
            |builder| {
                let builder = builder.request_on(RequestKind::new("chat").by("route")).request_on("health");
                builder.slo(Slo::latency("chat", 50.0, limit)).slo(Slo::success("health", 99.0))
            },
            |_| {
                for number in 0..10_u64 {
                    // The first two were answered too late, and the third failed.
                    let minutes = if number < 2 { 2 + number } else { 0 };
                    let start = Timestamp::now().as_unix_nanos() - minutes * 60_000_000_000;
                    let route = if number < 4 { "/a" } else { "/b" };
                    info_span!("chat", route, request.intended_start = start, error = number == 2).in_scope(|| ());
                }
                drop(info_span!("health"));
                open = Some(info_span!("chat", route = "/open"));
            },
        );
        let requests = report.requests();
        let chat = requests.kind("chat").unwrap();
        let of = |title| column(&document, "requests", title);
        assert_eq!(of("Requests"), ["chat", "chat", "chat", "health"]);
        assert_eq!(of("Group"), ["all", "route=/b", "route=/a", "all"]);
        assert_eq!(of("# of Requests"), [10, 6, 4, 1]);
        assert_eq!(of("Failed"), [1, 0, 1, 0]);
        assert_eq!(of("In flight"), [json!(1), Value::Null, Value::Null, json!(0)]);
        assert!(of("Most in flight")[0].as_u64() >= Some(1));
        let rates: Vec<_> = of("Rate").iter().map(|rate| rate.as_f64().unwrap()).collect();
        assert!(rates.iter().all(|&rate| rate > 0.0) && (rates[0] - rates[1] - rates[2]).abs() < 1e-6 * rates[0]);
        for (title, percent) in [("p50", 50.0), ("p90", 90.0), ("p95", 95.0), ("p99", 99.0), ("p99.9", 99.9)] {
            let groups = [&chat.total, &chat.groups[0], &chat.groups[1], &requests.kind("health").unwrap().total];
            let expected = groups.map(|group| group.latency.percentile(percent).unwrap().as_nanos() as u64);
            assert_eq!(of(title), expected, "{title}");
        }
        let response = chat.total.response.percentile(99.0).unwrap();
        assert_eq!(of("Response p99")[0], response.as_nanos() as u64);

        let of = |title| column(&document, "slowest-requests", title);
        assert_eq!(of("Group")[..2], ["route=/a", "route=/a"]);
        assert_eq!((&of("Time")[0], &of("Window")[0]), (&json!(chat.slowest[0].time.as_nanos() as u64), &json!("0")));

        let of = |title| column(&document, "service-levels", title);
        assert_eq!(of("Objective"), ["50 % of `chat` within 60.0 s", "99 % of `health` without an error"]);
        assert_eq!(of("# of Requests"), [10, 1]);
        assert_eq!(of("Bad"), [3, 0]);
        assert_eq!(of("Error budget"), ["40.0 % left", "100.0 % left"]);
    }

    #[test]
    fn a_run_without_them_has_no_such_sections() {
        let (_, document) = run(|builder| builder, |_| tracing::info_span!("chat").in_scope(|| ()));
        for id in ["vitals", "energy", "requests", "slowest-requests", "service-levels"] {
            assert!(section(&document, id).is_none(), "{id}");
        }
    }
}
