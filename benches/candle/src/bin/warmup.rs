//! Measures how long steps of a Candle training are slower once CUPTI is attached: the medians of the first recorded
//! steps of windows, against steps that are not recorded, for several lengths of the schedule's warm-up.
//!
//! `warmup [WINDOWS]`

use candle_bench::{Size, Training, median};
use candle_core::Device;
use kernspan::{
    Exporter, Phase, Profiler, Schedule,
    analysis::Analysis,
    export::{ExportResult, Run, StepExporter, StepSummary},
};
use std::{
    error::Error,
    sync::{Arc, Mutex},
};
use tracing_subscriber::{prelude::*, reload};

/// Keeps all steps.
#[derive(Clone, Default)]
struct Steps(Arc<Mutex<Vec<StepSummary>>>);

impl Exporter for Steps {
    fn name(&self) -> &str {
        "steps"
    }

    fn export(&mut self, _: &Analysis<'_>) -> ExportResult {
        Ok(Vec::new())
    }

    fn steps(&mut self, _: &Run) -> Option<Box<dyn StepExporter>> {
        Some(Box::new(self.clone()))
    }
}

impl StepExporter for Steps {
    fn steps(&mut self, steps: &[StepSummary]) -> Result<(), Box<dyn Error + Send + Sync>> {
        self.0.lock().expect("the steps").extend_from_slice(steps);
        Ok(())
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let windows: u64 = std::env::args().nth(1).map_or(Ok(12), |text| text.parse())?;
    let device = Device::new_cuda(0)?;
    let mut training = Training::traced(Size::FULL, &device)?;
    (0..100).try_for_each(|_| training.step_in_spans())?;
    let (slot, handle) = reload::Layer::new(None);
    tracing_subscriber::registry().with(slot).init();
    for warmup in [0, 1, 2, 3, 5, 10] {
        let steps = Steps::default();
        let schedule = Schedule::new().wait(40).warmup(warmup).active(10).repeat(windows);
        let (layer, profiler) = Profiler::builder()
            .schedule(schedule)
            .detach_after(std::time::Duration::ZERO)
            .export(steps.clone())
            .build()?;
        handle.modify(|slot| *slot = Some(layer))?;
        for _ in 0..windows * (50 + warmup) {
            training.step_in_spans()?;
            device.synchronize()?;
            profiler.step();
        }
        profiler.finish()?;
        let steps = steps.0.lock().expect("the steps");
        let micros = |step: &StepSummary| step.duration.as_secs_f64() * 1e6;
        let waits: Vec<_> = steps.iter().filter(|step| step.phase == Phase::Wait).map(micros).collect();
        let recorded = |index: u64| {
            let of_window = |step: &&StepSummary| step.number % (50 + warmup) == 40 + warmup + index;
            median(steps.iter().filter(of_window).map(micros).collect())
        };
        let recorded: Vec<_> = (0..10).map(|index| format!("{:.0}", recorded(index))).collect();
        println!("warm-up {warmup}: waiting {:.0} µs, recorded {}", median(waits), recorded.join(" "));
    }
    Ok(())
}
