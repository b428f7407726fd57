//! The tables of kernels, of operations and of memory owners, and the tree of spans with their times.

use super::{
    cell::{Cell, Grid, Unit},
    packed::{Names, shortened_path},
    paths::Paths,
};
use crate::{
    analysis::{
        Carbon, CounterBound, EnergyUse, MemoryHolder, MemorySnapshot, ModeUse, SampledFunction, SampledLine,
        VitalSummary,
    },
    report::{
        Average, CounterAverage, CountersBy, Kernels, MemoryPeak, OUTSIDE_SPANS, Operations, PathRows, Report, units,
    },
};
use std::{collections::HashMap, time::Duration};

/// The maximum number of rows in a table.
const ROWS: usize = 2_000;

/// Returns the tables that follow that of spans, with their ids and titles.
pub(super) fn after_spans(report: &Report, names: &mut Names) -> Vec<(&'static str, &'static str, Grid)> {
    let tables = [
        ("modes", "Training and inference", modes(report, names)),
        ("modules", "Modules", modules(report, names)),
        ("kernels", "Kernels", kernels(report, names)),
        ("operations", "Operations", operations(report, names)),
        ("counters", "GPU counters by span", counters(report, "Span", CountersBy::Span, names)),
        ("module-counters", "GPU counters by module", counters(report, "Module", CountersBy::Module, names)),
        ("kernel-counters", "GPU counters by kernel", counters(report, "Kernel", CountersBy::Kernel, names)),
        ("lines", "Lines", lines(report, names)),
        ("functions", "Functions", functions(report, names)),
    ];
    tables.into_iter().filter_map(|(id, title, grid)| Some((id, title, grid?))).collect()
}

/// Returns what training, validation and inference took, if there are several of them.
fn modes(report: &Report, names: &mut Names) -> Option<Grid> {
    let rows = report.modes();
    let mut grid = Grid::default();
    grid.names("Mode", rows, names, |row| row.mode.as_str());
    grid.column(("Total time", Unit::Total, "on the host, without other modes inside"), rows, |row| row.total);
    grid.column(("# of Calls", Unit::Number, "without calls cut by the edge of a window"), rows, |row| row.calls);
    grid.column(("Average", Unit::Time, "of a call, without other modes inside"), rows, ModeUse::mean);
    if rows.iter().any(|row| row.whole != row.total) {
        grid.column(("In calls", Unit::Total, "the rest of the total time is around them"), rows, |row| row.whole);
    }
    grid.column(("GPU busy", Unit::Total, "with work that the mode launched"), rows, |row| row.gpu_busy);
    grid.column(("Kernels", Unit::Number, ""), rows, |row| nonzero(row.kernels));
    grid.column(("Samples/s", Unit::Rate, "of the total time"), rows, ModeUse::samples_per_second);
    grid.column(("Tokens/s", Unit::Rate, "of the total time"), rows, ModeUse::tokens_per_second);
    grid.column(("CUDA Peak", Unit::Memory, "the most in use after an allocation"), rows, |row| row.peak_gpu_memory);
    report.has_modes().then_some(grid)
}

/// Returns the modules of the model.
fn modules(report: &Report, names: &mut Names) -> Option<Grid> {
    let all = report.modules().limit(usize::MAX).rows();
    let rows = &all[..all.len().min(ROWS)];
    let mut grid = Grid::default();
    grid.names("Module", rows, names, |row| &row.module);
    grid.names("Span", rows, names, |row| &row.name);
    grid.column(("Parameters", Unit::Count, "with nested modules"), rows, |row| row.parameters);
    grid.column(("Size", Unit::Memory, "of the parameters"), rows, |row| row.parameter_bytes);
    grid.column(("Passes", Unit::Number, "how often it ran"), rows, |row| row.passes);
    grid.column(("FLOPs", Unit::Flops, "of all passes"), rows, |row| nonzero(row.flops));
    grid.column(("FLOPs/parameter", Unit::Rate, "of a pass"), rows, |row| row.flops_per_parameter);
    grid.column(("Host time", Unit::Time, "with nested modules"), rows, |row| row.host);
    grid.column(("GPU time", Unit::Time, "with nested modules"), rows, |row| row.gpu);
    grid.column(("FLOP/s", Unit::FlopRate, "operations a second of GPU time"), rows, |row| row.flops_per_second);
    grid.column(("GPU memory", Unit::Memory, "allocated less freed"), rows, |row| row.gpu_memory);
    grid.column(("CUDA Peak", Unit::Memory, "the most in use after an allocation"), rows, |row| row.peak_gpu_memory);
    grid.left_out(all.len() - rows.len());
    (!rows.is_empty()).then_some(grid)
}

/// Returns the kernels that took the most time.
fn kernels(report: &Report, names: &mut Names) -> Option<Grid> {
    let all = Kernels::limit(report.kernels(), usize::MAX).rows();
    let rows = &all[..all.len().min(ROWS)];
    let mut grid = Grid::default();
    grid.kernels("Kernel", rows, names, |row| &row.name);
    grid.column(("CUDA total", Unit::Total, ""), rows, |row| row.total);
    grid.column(("CUDA %", Unit::Percent, "of the time of all GPU work"), rows, |row| row.percent);
    grid.column(("# of Calls", Unit::Number, ""), rows, |row| row.calls);
    grid.column(("Average", Unit::Time, ""), rows, |row| row.average);
    grid.column(("Shortest", Unit::Time, ""), rows, |row| row.shortest);
    grid.column(("Longest", Unit::Time, ""), rows, |row| row.longest);
    grid.column(("Occupancy", Unit::Percent, "estimated"), rows, |row| row.occupancy);
    grid.column(("Registers", Unit::Number, "of a thread"), rows, |row| row.registers.map(u64::from));
    grid.column(("Bytes", Unit::Memory, ""), rows, |row| nonzero(row.bytes));
    grid.column(("Bytes/s", Unit::Bandwidth, ""), rows, |row| row.bytes_per_second);
    grid.left_out(all.len() - rows.len());
    (!rows.is_empty()).then_some(grid)
}

/// Returns the operations of frameworks that took the most GPU time.
fn operations(report: &Report, names: &mut Names) -> Option<Grid> {
    let all = Operations::limit(report.operations(), usize::MAX).rows();
    let rows = &all[..all.len().min(ROWS)];
    let mut grid = Grid::default();
    grid.names("Operation", rows, names, |row| &row.name);
    let alone = "GPU time of kernels that did nothing else";
    grid.column(("CUDA alone", Unit::Total, alone), rows, |row| row.alone);
    grid.column(("CUDA shared", Unit::Total, "GPU time of kernels that also did others"), rows, |row| row.shared);
    grid.column(("Kernels", Unit::Number, ""), rows, |row| row.kernels);
    grid.column(("# of Calls", Unit::Number, ""), rows, |row| row.calls);
    grid.column(("Total FLOPs", Unit::Flops, ""), rows, |row| nonzero(row.flops));
    grid.left_out(all.len() - rows.len());
    (!rows.is_empty()).then_some(grid)
}

/// Returns how busy the parts of GPUs were, by their hardware counters.
fn counters(report: &Report, title: &'static str, by: CountersBy, names: &mut Names) -> Option<Grid> {
    let all = report.counters().by(by).limit(usize::MAX).rows();
    let rows = &all[..all.len().min(ROWS)];
    let mut grid = Grid::default();
    match by {
        CountersBy::Kernel => grid.kernels(title, rows, names, |row| &row.name),
        _ => grid.names(title, rows, names, |row| &row.name),
    }
    grid.column(("GPU time", Unit::Time, "covered by samples"), rows, |row| row.gpu);
    let mut percent = |title, help, of: fn(&CounterAverage) -> Option<f64>| {
        grid.column((title, Unit::Percent, help), rows, of);
    };
    percent("SM", "time in which SMs had work; empty where the standard error is above 3 points", |row| row.sm_active);
    percent("Tensor", "time in which the tensor cores were busy", |row| row.tensor_active);
    percent("DRAM", "use of the memory's bandwidth", |row| row.dram_active);
    grid.column(("DRAM bytes/s", Unit::Bandwidth, "read and written"), rows, |row| row.dram_bytes_per_second);
    grid.column(("SM clock", Unit::Rate, "in hertz"), rows, |row| row.sm_clock);
    grid.column(("FLOP/s", Unit::FlopRate, "operations stated by fields, per second of GPU time"), rows, |row| {
        row.flops_per_second
    });
    grid.column(("FLOP/byte", Unit::Rate, "by the bytes that were measured"), rows, |row| row.intensity);
    grid.column(("Limit", Unit::Word, "the part of the GPU that limits it"), rows, |row| {
        row.bound.map(|bound| CounterBound::as_str(bound).to_owned())
    });
    grid.column(("Samples", Unit::Number, "the number in which it ran"), rows, |row| row.samples);
    grid.left_out(all.len() - rows.len());
    (!rows.is_empty()).then_some(grid)
}

/// Returns the lines that the time of each span itself went to.
fn lines(report: &Report, names: &mut Names) -> Option<Grid> {
    let all = report.lines().limit(usize::MAX).rows();
    let rows = &all[..all.len().min(ROWS)];
    let mut grid = Grid::default();
    let spans: Vec<_> = rows.iter().map(SampledLine::span_text).collect();
    grid.names("Span", &spans, names, String::as_str);
    grid.column(("Line", Unit::Text, "the innermost one that is not folded"), rows, SampledLine::place_text);
    grid.functions("Function", rows, names, |row| &row.function);
    let help = "the innermost line of the program's own source";
    grid.column(("Called from", Unit::Text, help), rows, SampledLine::called_from);
    let help = "of the span's own CPU time; none for spans with fewer than 25 samples. Highlighted from 10 % on";
    grid.column(("CPU %", Unit::Percent, help), rows, SampledLine::percent);
    grid.column(("± points", Unit::Share, "in 19 of 20 cases, the share is off by less"), rows, SampledLine::margin);
    grid.column(("CPU", Unit::Total, "estimated from samples"), rows, |row| row.time.cpu);
    grid.column(("Waiting", Unit::Total, "not on a CPU"), rows, |row| row.time.waiting);
    grid.column(("Samples", Unit::Number, "on the CPU"), rows, |row| row.time.samples);
    grid.column(("At edge", Unit::Number, "within 1 µs of the edge of a span"), rows, |row| row.time.at_edge);
    grid.mark((0..rows.len()).filter(|&row| rows[row].is_hot()).collect());
    grid.left_out(all.len() - rows.len());
    (!rows.is_empty()).then_some(grid)
}

/// Returns the functions that threads were in, over all spans.
fn functions(report: &Report, names: &mut Names) -> Option<Grid> {
    let all = report.functions().limit(usize::MAX).rows();
    let rows = &all[..all.len().min(ROWS)];
    let mut grid = Grid::default();
    grid.functions("Function", rows, names, |row| &row.function);
    grid.column(("Self CPU", Unit::Total, "estimated from samples"), rows, |row| row.self_time.cpu);
    grid.column(("Self CPU %", Unit::Percent, "of all samples"), rows, SampledFunction::self_percent);
    grid.column(("Total CPU", Unit::Time, "with the functions that it called"), rows, |row| row.total_time.cpu);
    grid.column(("Self waiting", Unit::Total, "not on a CPU"), rows, |row| row.self_time.waiting);
    grid.column(("Samples", Unit::Number, "with those of functions that it called"), rows, |row| {
        row.total_time.samples
    });
    let spans = |row: &SampledFunction| {
        let spans = row.spans.iter().map(|(span, _)| span.as_deref().unwrap_or(OUTSIDE_SPANS));
        spans.take(5).collect::<Vec<_>>().join(", ")
    };
    grid.column(("Spans", Unit::Text, "that it ran in, most time first"), rows, spans);
    grid.column(("Library", Unit::Text, ""), rows, |row| row.library.clone());
    grid.left_out(all.len() - rows.len());
    (!rows.is_empty()).then_some(grid)
}

/// Returns what lines of the program allocated on the heap.
pub(super) fn heap_lines(report: &Report, names: &mut Names) -> Option<Grid> {
    let all = report.heap_lines().limit(usize::MAX).rows();
    let rows = &all[..all.len().min(ROWS)];
    let mut grid = Grid::default();
    grid.names("Allocated at", rows, names, |row| &row.line);
    grid.column(("Allocated", Unit::Memory, "estimated from samples"), rows, |row| row.allocated);
    grid.column(("Kept", Unit::Memory, "in use when their window closed"), rows, |row| row.kept);
    grid.column(("# of Allocs", Unit::Number, "estimated from samples"), rows, |row| row.allocations);
    grid.left_out(all.len() - rows.len());
    (!rows.is_empty()).then_some(grid)
}

/// Returns the vital signs over the whole run.
pub(super) fn vitals(report: &Report, names: &mut Names) -> Option<Grid> {
    let rows = &report.vitals().signs;
    let signs: Vec<_> = rows.iter().map(|row| row.sign.to_string()).collect();
    let mut grid = Grid::default();
    grid.names("Vital sign", &signs, names, |sign| sign);
    grid.column(("Average", Unit::Word, ""), rows, |row| row.sign.unit().format(row.average));
    grid.column(("Peak", Unit::Word, ""), rows, |row| row.sign.unit().format(row.peak));
    let limit = |row: &VitalSummary| row.above.map(|above| row.sign.unit().format(above.limit));
    grid.column(("Threshold", Unit::Word, ""), rows, limit);
    grid.column(("Above", Unit::Time, "time above the threshold"), rows, |row| row.above.map(|above| above.time));
    grid.column(("Meaning", Unit::Text, ""), rows, |row| row.sign.meaning().to_owned());
    (!rows.is_empty()).then_some(grid)
}

/// Returns the energy of each part of the machine, and of all of them, with what follows from it.
pub(super) fn energy(report: &Report, names: &mut Names) -> Option<Grid> {
    let energy = report.vitals().energy.as_ref().filter(|energy| !energy.uses.is_empty())?;
    let part = |part: &EnergyUse| {
        (part.subject.to_string(), (part.joules, part.error, part.watts()), Some(part.method.as_str().to_owned()))
    };
    let watts = energy.uses.iter().map(EnergyUse::watts).sum();
    let all = ("all".to_owned(), (energy.joules(), energy.error(), watts), None);
    let rows: Vec<_> = energy.uses.iter().map(part).chain([all]).collect();
    let joules = |number| units::amount(number, "J");
    let mut grid = Grid::default();
    grid.names("Part", &rows, names, |(part, ..)| part);
    grid.column(("Energy", Unit::Word, "including that of other processes"), &rows, |(_, (energy, ..), _)| {
        joules(*energy)
    });
    grid.column(("±", Unit::Word, "the error"), &rows, |(_, (_, error, _), _)| joules(*error));
    grid.column(("Power", Unit::Word, "on average"), &rows, |(_, (.., watts), _)| units::amount(*watts, "W"));
    grid.column(("Measured", Unit::Word, ""), &rows, |(.., method)| method.clone());
    // Only all parts together have these.
    let mut of_all = |title, help, text: Option<String>| {
        grid.column((title, Unit::Word, help), &rows, |(.., method)| text.clone().filter(|_| method.is_none()));
    };
    let rates = report.energy_rates();
    of_all("Per step", "", rates.per_step.map(joules));
    of_all("Per sample", "", rates.per_sample.map(joules));
    of_all("Per token", "", rates.per_token.map(joules));
    of_all("Per TFLOP", "10¹² floating-point operations", rates.per_teraflop.map(joules));
    of_all("CO₂", "by the given intensity", energy.carbon.as_ref().map(|carbon| units::amount(carbon.grams, "g")));
    let intensity = |carbon: &Carbon| format!("{} g/kWh, {}", units::digits(carbon.grams_per_kwh), carbon.source);
    of_all("Intensity", "of the electricity, and its source", energy.carbon.as_ref().map(intensity));
    of_all("Price", "of the electricity", energy.cost.map(units::digits));
    Some(grid)
}

/// Returns the spans that had allocated the memory of a GPU at its peak.
pub(super) fn owners(peak: &MemoryPeak, names: &mut Names) -> Grid {
    let before = (MemoryPeak::BEFORE.to_owned(), peak.before, None);
    let path =
        |name: &str, stack: &[String]| shortened_path([name].into_iter().chain(stack.iter().map(String::as_str)));
    let owners = peak.owners.iter().map(|it| (path(&it.name, &it.stack), it.bytes, Some(it.allocations)));
    let all: Vec<_> = (peak.before > 0).then_some(before).into_iter().chain(owners).collect();
    let rows = &all[..all.len().min(ROWS)];
    let mut grid = Grid::default();
    grid.names("Allocated by", rows, names, |(name, ..)| name);
    grid.column(("In use", Unit::Memory, ""), rows, |(_, bytes, _)| *bytes);
    let percent = |bytes: u64| 100.0 * bytes as f64 / peak.in_use.max(1) as f64;
    grid.column(("Of the peak", Unit::Percent, ""), rows, |(_, bytes, _)| percent(*bytes));
    grid.column(("Allocations", Unit::Number, ""), rows, |(.., allocations)| *allocations);
    grid.left_out(all.len() - rows.len());
    grid
}

/// Returns the spans that held the memory of GPUs at one moment.
pub(super) fn holders(snapshot: &MemorySnapshot, names: &mut Names) -> Grid {
    let path = |holder: &MemoryHolder<'_>| match holder.frames {
        [] => Average::UNATTRIBUTED.to_owned(),
        frames => shortened_path(frames.iter().map(|frame| &*frame.name)),
    };
    let holders: Vec<_> = snapshot.holders().into_iter().map(|holder| (path(&holder), holder)).collect();
    let rows = &holders[..holders.len().min(ROWS)];
    let mut grid = Grid::default();
    grid.names("Allocated by", rows, names, |(name, _)| name);
    grid.column(("In use", Unit::Memory, ""), rows, |(_, holder)| holder.bytes);
    grid.column(("Allocations", Unit::Number, ""), rows, |(_, holder)| holder.allocations);
    grid.column(("First step", Unit::Number, ""), rows, |(_, holder)| holder.first_step);
    grid.column(("Last step", Unit::Number, ""), rows, |(_, holder)| holder.last_step);
    grid.left_out(holders.len() - rows.len());
    grid
}

/// The spans of a report as a tree, without duplicate paths.
#[derive(Debug)]
pub(super) struct SpanTree {
    rows: Vec<Average>,
    parents: Vec<Option<usize>>,
    /// The first row with each path of names, by that of the path around it.
    by_path: HashMap<(Option<usize>, String), usize>,
    left_out: usize,
}

impl SpanTree {
    /// The maximum number of rows in the table.
    const ROWS: usize = 3_000;
    /// The maximum nesting depth of rows. Deeper ones could not be told apart by indentation.
    const DEPTH: usize = 200;

    pub(super) fn of(report: &Report) -> Self {
        let PathRows { rows, left_out } = report.averages().paths(Self::ROWS, Self::DEPTH);
        let (rows, parents): (Vec<_>, Vec<_>) = rows.into_iter().unzip();
        let mut by_path: HashMap<(Option<usize>, String), usize> = HashMap::new();
        let mut firsts: Vec<usize> = Vec::with_capacity(rows.len());
        for (index, (row, parent)) in rows.iter().zip(&parents).enumerate() {
            let key = (parent.map(|parent: usize| firsts[parent]), row.name.clone());
            firsts.push(*by_path.entry(key).or_insert(index));
        }
        Self { rows, parents, by_path, left_out }
    }

    /// Returns the row of the spans with this path, from the outside in.
    pub(super) fn row(&self, path: &[String]) -> Option<usize> {
        path.iter().try_fold(None, |outer, name| self.by_path.get(&(outer, name.clone())).map(|&row| Some(row)))?
    }

    /// Returns the time of each row on the critical path, if it is known.
    fn exposed(&self, paths: &Paths, names: &mut Names) -> Vec<Option<Duration>> {
        let mut nodes: Vec<Option<usize>> = Vec::with_capacity(self.rows.len());
        for (row, parent) in self.rows.iter().zip(&self.parents) {
            let name = names.index(&row.name);
            nodes.push(match parent {
                None => paths.find(None, name),
                Some(parent) => nodes[*parent].and_then(|outer| paths.find(Some(outer), name)),
            });
        }
        nodes.into_iter().map(|node| paths.cost(node?).map(|cost| cost.exposed)).collect()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    pub(super) fn table(&self, paths: &Paths, names: &mut Names) -> Grid {
        let rows: Vec<_> = self.rows.iter().zip(self.exposed(paths, names)).collect();
        let rows = &rows[..];
        let mut grid = Grid::default();
        grid.names("Name", rows, names, |(row, _)| &row.name);
        let mut column = |title, unit, help, of: &dyn Fn(&Average) -> Cell| {
            grid.column((title, unit, help), rows, |(row, _)| of(row));
        };
        column("Total time", Unit::Total, "on the host, with nested spans", &|row| row.total_cpu.into());
        column("Self time", Unit::Total, "on the host, without nested spans", &|row| row.self_cpu.into());
        let help = "CPU time of the threads, with nested spans: the rest of the total time they did not run";
        column("On CPU", Unit::Total, help, &|row| row.total_on_cpu.into());
        column("CUDA total", Unit::Total, "GPU time, with nested spans", &|row| row.total_gpu.into());
        column("Self CUDA", Unit::Total, "GPU time of what the span launched itself", &|row| row.self_gpu.into());
        let help = "time on the critical path, of the host and of GPUs: the rest is hidden by something else. Of \
                    very large windows, the first steps only";
        grid.column(("Exposed", Unit::Total, help), rows, |(_, exposed)| *exposed);
        let mut column = |title, unit, help, of: &dyn Fn(&Average) -> Cell| {
            grid.column((title, unit, help), rows, |(row, _)| of(row));
        };
        column("# of Calls", Unit::Number, "without calls cut by the edge of a window", &|row| row.calls.into());
        column("p50", Unit::Time, "median time of a call", &|row| percentile(row, row.p50_cpu));
        column("p95", Unit::Time, "95 % of calls took no longer", &|row| percentile(row, row.p95_cpu));
        column("Kernels", Unit::Number, "launched, with nested spans", &|row| row.kernels.into());
        column("Total FLOPs", Unit::Flops, "with nested spans", &|row| nonzero(row.total_flops).into());
        column("FLOP/s", Unit::FlopRate, "operations a second of GPU time", &|row| row.flops_per_second.into());
        column("GPU MFU", Unit::Share, "operations in percent of the GPU's peak", &|row| row.gpu_mfu.into());
        column("Occupancy", Unit::Percent, "estimated", &|row| row.occupancy.into());
        column("CUDA Mem", Unit::Memory, "allocated less freed, with nested spans", &|row| row.total_gpu_memory.into());
        column("CUDA Peak", Unit::Memory, "the most in use after an allocation", &|row| row.peak_gpu_memory.into());
        column("Source", Unit::Text, "", &|row| row.location.clone().into());
        grid.tree(self.parents.clone());
        grid.left_out(self.left_out);
        grid
    }
}

/// Returns a percentile of the times of calls, as precisely as it is known.
fn percentile(row: &Average, time: Duration) -> Cell {
    match Cell::from(row.has_whole_calls().then_some(time)) {
        Cell::Integer(nanos) if !row.has_exact_percentiles() => Cell::Rough(nanos),
        cell => cell,
    }
}

pub(super) fn nonzero(number: u64) -> Option<u64> {
    (number > 0).then_some(number)
}
