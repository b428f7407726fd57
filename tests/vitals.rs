//! Vital signs in the report, in traces, and in what exporters of steps are given.

#![cfg(all(feature = "vitals", target_os = "linux"))]

#[path = "support/mod.rs"]
mod support;

use kernspan::{
    Activity, Chrome, Collected, Exporter, Perfetto, Profiler, Schedule, Vitals,
    analysis::Analysis,
    export::{ExportResult, Run, StepExporter, StepSummary},
};
use std::{
    error::Error,
    io::Write as _,
    process::{Child, Command, Stdio},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};
use support::child;
use tracing_subscriber::prelude::*;

/// How often signs are read in these tests.
const EVERY: Duration = Duration::from_millis(20);

/// The names of the counters of all steps, and the run.
#[derive(Clone, Default)]
struct StepCounters(Arc<Mutex<Vec<Vec<&'static str>>>>, Arc<Mutex<Option<Run>>>);

impl Exporter for StepCounters {
    fn export(&mut self, _: &Analysis<'_>) -> ExportResult {
        Ok(Vec::new())
    }

    fn steps(&mut self, run: &Run) -> Option<Box<dyn StepExporter>> {
        assert!(run.vitals().is_none(), "nothing has been read yet");
        *self.1.lock().unwrap() = Some(run.clone());
        Some(Box::new(self.clone()))
    }
}

impl StepExporter for StepCounters {
    fn steps(&mut self, steps: &[StepSummary]) -> Result<(), Box<dyn Error + Send + Sync>> {
        let names = steps.iter().map(|step| step.counters.iter().map(|(name, _)| *name).collect());
        self.0.lock().unwrap().extend(names);
        Ok(())
    }
}

/// Waits for some more readings.
fn wait_for_readings(profiler: &Profiler, mut readings: u32) {
    let (deadline, mut last) = (Instant::now() + Duration::from_secs(120), None);
    while readings > 0 {
        assert!(Instant::now() < deadline, "nothing is read");
        let at = profiler.vitals().map(|vitals| vitals.at);
        if at != last {
            (last, readings) = (at, readings - 1);
        }
        std::thread::yield_now();
    }
}

#[test]
fn vital_signs_are_in_the_report_the_trace_and_the_steps() {
    let (collected, steps) = (Collected::new(), StepCounters::default());
    let folder = tempfile::tempdir().unwrap();
    let crossings = Arc::new(Mutex::new(Vec::new()));
    let hook = Arc::clone(&crossings);
    let vitals = Vitals::default()
        .every(EVERY)
        .every_in_windows(EVERY)
        .threshold("process.threads > 0".parse().unwrap())
        .on_crossing(move |crossing| hook.lock().unwrap().push(crossing.sign.to_string()));
    let (layer, profiler) = Profiler::builder()
        .schedule(Schedule::manual())
        .activities([Activity::Host])
        .vitals(vitals)
        .export(collected.clone())
        .export(Chrome::to_dir(folder.path()))
        .export(Perfetto::to_dir(folder.path()))
        .export(steps.clone())
        .build()
        .unwrap();
    assert!(profiler.records(Activity::Vitals));
    tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
        wait_for_readings(&profiler, 3);
        profiler.step();
        profiler.start();
        tracing::info_span!("train_step").in_scope(|| wait_for_readings(&profiler, 5));
        profiler.step();
        profiler.stop();
    });
    let latest = profiler.vitals().unwrap();
    assert!(latest.process.resident.is_some_and(|bytes| bytes > 1e6) && latest.process.threads > Some(2.0));
    let report = profiler.finish().unwrap();

    let run = report.vitals();
    assert!(run.readings >= 8, "{run:?}");
    let resident = run.get("process.resident").unwrap();
    assert!(resident.average > 1e6 && resident.peak >= resident.average, "{resident:?}");
    let threads = run.get("process.threads").unwrap();
    assert_eq!(threads.above.unwrap().time, threads.observed);
    assert!(report.to_string().contains("process.resident"), "{report}");
    assert_eq!(crossings.lock().unwrap().iter().filter(|name| *name == "process.threads").count(), 1);

    let trace = collected.only();
    let counter = |name: &str| trace.counters().iter().find(|counter| counter.name() == name).cloned();
    let resident = counter("vitals.process.resident").unwrap();
    // The last reading before the window, and those in it.
    assert!(resident.samples().len() >= 5 && resident.samples()[0].0 == trace.start(), "{resident:?}");
    // Exporters can ask for the latest reading, too.
    assert!(steps.1.lock().unwrap().as_ref().unwrap().vitals().unwrap().at >= latest.at);
    let steps = steps.0.lock().unwrap();
    let with_vitals = steps.iter().filter(|names| names.contains(&"vitals.process.resident"));
    assert_eq!(with_vitals.count(), 2, "each step has a reading: {steps:?}");
    #[cfg(feature = "read")]
    {
        let is_chrome = |file: &&std::path::PathBuf| file.to_string_lossy().contains(".json");
        let read = kernspan::read(report.files().iter().find(is_chrome).unwrap()).unwrap().remove(0);
        let again = read.counters().iter().find(|counter| counter.name() == "vitals.process.resident").unwrap();
        assert_eq!(again.samples().len(), resident.samples().len());
    }
}

#[test]
fn without_the_activity_nothing_is_read() {
    let (layer, profiler) = Profiler::builder().activities([Activity::Host]).build().unwrap();
    drop(layer);
    assert!(profiler.vitals().is_none() && !profiler.records(Activity::Vitals));
    assert!(profiler.finish().unwrap().vitals().is_empty());
}

/// A process that is killed when this is dropped.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Reads `/proc` on its own, ten times a second until its input is closed. Prints the means: of each rate over all the
/// time, of each amount over its readings.
const OBSERVER: &str = r"
import os, select, sys, time
pid, ticks, page = sys.argv[1], os.sysconf('SC_CLK_TCK'), os.sysconf('SC_PAGE_SIZE')

def lines(path):
    with open(path) as file:
        return [line.replace(':', ' ').split() for line in file]

def totals():
    cpu = [int(field) for field in lines('/proc/stat')[0][1:9]]
    # The name of the program is in parentheses, and may have spaces.
    stat = open(f'/proc/{pid}/stat').read().rpartition(')')[2].split()
    io = dict((line[0], int(line[1])) for line in lines(f'/proc/{pid}/io'))
    return time.monotonic(), sum(cpu), cpu[3] + cpu[4], (int(stat[11]) + int(stat[12])) / ticks, io['write_bytes']

def amounts():
    memory = dict((line[0], int(line[1])) for line in lines('/proc/meminfo'))
    resident = int(open(f'/proc/{pid}/statm').read().split()[1]) * page
    load = float(open('/proc/loadavg').read().split()[0])
    return resident, 100 * (1 - memory['MemAvailable'] / memory['MemTotal']), load

first, seen = totals(), []
print('ready', flush=True)
while not select.select([sys.stdin], [], [], 0.1)[0]:
    seen.append(amounts())
time_, all_, idle, used, written = [now - then for now, then in zip(totals(), first)]
resident, memory, load = [sum(column) / len(seen) for column in zip(*seen)]
print('machine.cpu', 100 * (1 - idle / all_))
print('machine.load', load)
print('machine.memory', memory)
print('process.cpus', used / time_)
print('process.resident', resident)
print('process.disk_write', written / time_)
";

#[test]
fn signs_are_those_that_another_program_reads_while_the_machine_is_busy() {
    child::alone("signs_are_those_that_another_program_reads_while_the_machine_is_busy", || {
        // Long enough that a reading more or less, at either end, is half a percent.
        const LENGTH: Duration = Duration::from_secs(10);
        let cpus = thread::available_parallelism().unwrap().get();
        let busy_loop = || Killed(Command::new("sh").args(["-c", "while :; do :; done"]).spawn().unwrap());
        let _load: Vec<_> = (0..cpus).map(|_| busy_loop()).collect();
        let memory = std::hint::black_box(vec![1_u8; 200 << 20]);
        let is_over = AtomicBool::new(false);
        let (report, observed) = thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(Relaxed) {
                    std::hint::spin_loop();
                }
            });
            scope.spawn(|| {
                let mut file = tempfile::tempfile().unwrap();
                while !is_over.load(Relaxed) {
                    file.write_all(&[0; 64 << 10]).unwrap();
                    thread::sleep(Duration::from_millis(10));
                }
            });
            let mut observer = Command::new("python3");
            observer.args(["-c", OBSERVER, &std::process::id().to_string()]);
            observer.stdin(Stdio::piped()).stdout(Stdio::piped());
            let mut observer = observer.spawn().expect("this test needs Python 3");
            let mut output = std::io::BufReader::new(observer.stdout.take().unwrap());
            std::io::BufRead::read_line(&mut output, &mut String::new()).unwrap();
            let vitals = Vitals::default().every(Duration::from_millis(50));
            let builder = Profiler::builder().schedule(Schedule::manual()).activities([Activity::Host]);
            let (layer, profiler) = builder.vitals(vitals).build().unwrap();
            thread::sleep(LENGTH);
            drop(layer);
            let report = profiler.finish().unwrap();
            drop(observer.stdin.take());
            let observed = std::io::read_to_string(output).unwrap();
            assert!(observer.wait().unwrap().success());
            is_over.store(true, Relaxed);
            (report, observed)
        });
        drop(memory);
        let compared = observed.lines().map(|line| {
            let (name, expected) = line.split_once(' ').unwrap();
            let expected: f64 = expected.parse().unwrap();
            let found = report.vitals().get(name).map_or(0.0, |sign| sign.average);
            println!("{name}: {found}, and {expected} by the other program");
            // A file in memory writes nothing to a disk.
            assert!((found - expected).abs() <= 0.02 * expected, "{name}: {found} instead of {expected}");
        });
        assert_eq!(compared.count(), 6);
    });
}
