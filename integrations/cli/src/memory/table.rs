//! The tables of the command `memory`.

use super::GpuMemory;
use crate::{json::json, output::Section};
use kernspan::{
    analysis::{KeptMemory, MemoryCategory, MemoryUse},
    report::{Average, Table, units},
    trace::DeviceId,
};
use serde::Serialize;
use serde_json::{Value, json as object};
use std::num::NonZeroU64;

/// The memory of one category at the peak.
#[derive(Serialize)]
struct CategoryRow {
    device: DeviceId,
    category: MemoryCategory,
    bytes: u64,
    percent: f64,
}

/// The peak at another batch size.
#[derive(Serialize)]
struct EstimateRow {
    device: DeviceId,
    batch: u64,
    bytes: u64,
    /// The bytes that do not depend on the batch size, and those that do.
    fixed: u64,
    growing: u64,
    /// The share of the GPU's memory, and whether it is enough, if its size is known.
    percent: Option<f64>,
    fits: Option<bool>,
}

/// Returns the categories at the peak.
pub(super) fn categories(gpu: &GpuMemory<'_>) -> Section {
    let (device, peak) = (gpu.timeline.device(), gpu.timeline.peak());
    let rows: Vec<_> = peak
        .categories()
        .map(|(category, bytes)| CategoryRow { device, category, bytes, percent: percent(bytes, peak.in_use()) })
        .collect();
    let used: Vec<_> = rows.iter().filter(|row| row.bytes > 0).collect();
    let mut table = Table::default();
    table.heading(heading(gpu));
    table.text("Category", &used, |row| row.category.to_string());
    table.number("At the peak", &used, |row| units::bytes(row.bytes));
    table.number("Share", &used, |row| units::percent(row.percent));
    if peak.of(MemoryCategory::Before) > 0 {
        let before =
            "in use before the window: parameters, optimizer state and anything else, which cannot be told apart";
        table.note(before.to_owned());
    }
    Section {
        title: format!("GPU {device}: memory at the peak"),
        key: "categories",
        table: (!used.is_empty()).then_some(table),
        empty: "no memory was in use",
        rows: rows.iter().map(json).collect(),
        ..Section::default()
    }
}

/// Returns the line that names the GPU and its peak.
fn heading(gpu: &GpuMemory<'_>) -> String {
    let (timeline, peak) = (&gpu.timeline, gpu.timeline.peak());
    let trace = timeline.trace();
    let device = trace.device(timeline.device());
    let name = device.map_or(String::new(), |device| format!(" ({})", device.name));
    let size = gpu.size().map_or(String::new(), |size| {
        format!(" of {} ({})", units::bytes(size), units::percent(percent(peak.in_use(), size)))
    });
    let at = trace.start() + peak.after();
    let step = trace.steps().iter().find(|step| step.start() <= at && at < step.end());
    let step = step.map_or(String::new(), |step| format!(", in step {}", step.number()));
    let after = units::time(peak.after());
    let in_use = units::bytes(peak.in_use());
    format!("GPU {}{name}: {in_use}{size} at the peak, {after} after the window opened{step}", timeline.device())
}

/// Returns the spans that had allocated the most at the peak.
pub(super) fn owners(gpu: &GpuMemory<'_>, limit: usize) -> Section {
    let peak = gpu.peak;
    let with_device = |mut row: Value| {
        row["device"] = json(&peak.device);
        row
    };
    Section {
        title: format!("GPU {}: owners at the peak", peak.device),
        key: "owners",
        table: Some(peak.table(limit)),
        rows: peak.owners.iter().take(limit).map(json).map(with_device).collect(),
        ..Section::default()
    }
}

/// Returns how long memory was in use.
pub(super) fn lifetimes(gpu: &GpuMemory<'_>) -> Section {
    let device = gpu.timeline.device();
    let rows: Vec<_> = gpu.lifetimes.iter().filter(|row| row.allocations > 0).collect();
    let mut table = Table::default();
    table.heading(format!("GPU {device}: how long memory that was allocated in the window was in use"));
    table.text("Lifetime", &rows, ToString::to_string);
    table.number("# of Allocations", &rows, |row| row.allocations.to_string());
    table.number("Allocated", &rows, |row| units::bytes(row.bytes));
    let with_device = |mut row: Value| {
        row["device"] = json(&device);
        row
    };
    Section {
        title: format!("GPU {device}: lifetimes"),
        key: "lifetimes",
        table: (!rows.is_empty()).then_some(table),
        empty: "no memory was allocated in the window",
        rows: gpu.lifetimes.iter().map(json).map(with_device).collect(),
        ..Section::default()
    }
}

/// Returns the memory that outlives its step.
pub(super) fn kept(gpu: &GpuMemory<'_>, limit: usize) -> Section {
    let device = gpu.timeline.device();
    let rows = &gpu.kept[..gpu.kept.len().min(limit)];
    let name = |kept: &KeptMemory| kept.path.first().map_or(Average::UNATTRIBUTED, String::as_str).to_owned();
    let mut table = Table::default();
    table.heading(format!("GPU {device}: memory that was still in use after the step that followed its own"));
    table.text("Allocated by", rows, name);
    if rows.iter().any(|kept| kept.path.len() > 1) {
        table.text("Inside", rows, |kept| kept.path.get(1..).unwrap_or_default().join(" < ")).keep_start();
    }
    table.text("Location", rows, |kept| kept.location.clone()).droppable(2);
    table.number("Kept", rows, |kept| units::bytes(kept.bytes));
    table.number("# of Allocations", rows, |kept| kept.allocations.to_string()).droppable(1);
    table.number("# of Steps", rows, |kept| kept.steps.to_string());
    let steps = if gpu.watched == 1 { "step was" } else { "steps were" };
    table.note(format!("{} {steps} followed until the end of the next one", gpu.watched));
    let row = |kept: &KeptMemory| {
        object!({
            "device": json(&device),
            "path": kept.path,
            "location": kept.location,
            "bytes": kept.bytes,
            "allocations": kept.allocations,
            "steps": kept.steps,
        })
    };
    Section {
        title: format!("GPU {device}: memory that outlives its step"),
        key: "kept",
        table: (!rows.is_empty()).then(|| table.left_out(gpu.kept.len() - rows.len())),
        empty: match gpu.watched {
            0 => "memory that outlives its step: unknown, since that takes two whole steps in a window",
            _ => "no memory was still in use after the step that followed its own",
        },
        rows: rows.iter().map(row).collect(),
        ..Section::default()
    }
}

/// Returns the estimated peaks at other batch sizes, and what they assume.
pub(super) fn estimates(gpu: &GpuMemory<'_>, recorded: NonZeroU64, sizes: &[NonZeroU64]) -> Section {
    let device = gpu.timeline.device();
    let sum = |peak: &MemoryUse, grows: bool| {
        let of_kind = peak.categories().filter(|(category, _)| category.grows_with_batch() == grows);
        of_kind.fold(0, |sum: u64, (_, bytes)| sum.saturating_add(bytes))
    };
    let row = |&batch: &NonZeroU64| {
        let peak = gpu.timeline.estimated_peak(recorded, batch);
        let bytes = peak.in_use();
        EstimateRow {
            device,
            batch: batch.get(),
            bytes,
            fixed: sum(&peak, false),
            growing: sum(&peak, true),
            percent: gpu.size().map(|size| percent(bytes, size)),
            fits: gpu.size().map(|size| bytes <= size),
        }
    };
    let rows: Vec<_> = sizes.iter().map(row).collect();
    let mut table = Table::default();
    table.heading(format!("GPU {device}: estimated peak at other batch sizes, recorded with {recorded}"));
    table.number("Batch", &rows, |row| row.batch.to_string());
    table.number("Peak", &rows, |row| units::bytes(row.bytes));
    table.number("Fixed", &rows, |row| units::bytes(row.fixed)).droppable(1);
    table.number("Growing", &rows, |row| units::bytes(row.growing)).droppable(2);
    table.number("Of the GPU", &rows, |row| row.percent.map(units::percent));
    table.text("Fits", &rows, |row| row.fits.map(|fits| if fits { "yes" } else { "no" }.to_owned()));
    let names = |grows: bool| {
        let of_kind = MemoryCategory::ALL.into_iter().filter(|category| category.grows_with_batch() == grows);
        of_kind.map(MemoryCategory::as_str).collect::<Vec<_>>().join(", ")
    };
    table.note(format!("assumed to grow in proportion to the batch: {}", names(true)));
    table.note(format!("assumed to stay the same: {}", names(false)));
    table.note("not included: library workspaces that depend on shapes, fragmentation, driver memory".to_owned());
    Section {
        title: format!("GPU {device}: other batch sizes"),
        key: "estimates",
        table: Some(table),
        rows: rows.iter().map(json).collect(),
        ..Section::default()
    }
}

/// Returns the memory over time, for JSON.
pub(super) fn timeline(gpu: &GpuMemory<'_>) -> Section {
    let device = json(&gpu.timeline.device());
    let row = |point: &MemoryUse| {
        let mut row = object!({"device": device, "after": json(&point.after()), "in_use": point.in_use()});
        for (category, bytes) in point.categories() {
            if let Some(name) = json(&category).as_str() {
                row[name] = bytes.into();
            }
        }
        row
    };
    Section { key: "timeline", rows: gpu.timeline.points().iter().map(row).collect(), ..Section::default() }
}

impl GpuMemory<'_> {
    /// The size of the GPU's memory, if known.
    fn size(&self) -> Option<u64> {
        let device = self.timeline.trace().device(self.timeline.device());
        device.map(|device| device.memory).filter(|&size| size > 0)
    }
}

fn percent(part: u64, whole: u64) -> f64 {
    100.0 * part as f64 / whole.max(1) as f64
}
