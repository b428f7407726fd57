use super::{measured::GpuMeasured, table::Table, units};
use crate::analysis::percent_of;
use std::time::Duration;

/// What the rows are sorted by, the largest first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SortBy {
    /// Time with nested spans.
    #[default]
    TotalCpu,
    /// Time without nested spans.
    SelfCpu,
    /// Time with nested spans, by call.
    AverageCpu,
    /// Number of calls.
    Calls,
    /// Floating-point operations, with nested spans.
    Flops,
    /// GPU time without nested spans.
    SelfGpu,
    /// GPU time with nested spans.
    TotalGpu,
    /// GPU memory, with nested spans.
    GpuMemory,
    /// The name, the first in the alphabet first.
    Name,
}

/// One row: the spans of one name, and of one shape and stack if it was asked for.
#[derive(Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Average {
    /// The name.
    pub name: String,
    /// The target, by default the module path.
    pub target: String,
    /// `file:line`, if known.
    pub location: Option<String>,
    /// The path of the module in its model, when grouped by module: see [`convention::MODULE`](crate::trace::convention::MODULE).
    pub module: Option<String>,
    /// Shapes of the arguments, when grouped by shape.
    pub shapes: Option<String>,
    /// The names of the spans around it, from the inside out, when grouped by stack.
    pub stack: Vec<String>,
    /// How many instances there were.
    pub calls: u64,
    /// Time without nested spans.
    pub self_cpu: Duration,
    /// Time with nested spans. A span nested in one of the same row is not counted twice.
    pub total_cpu: Duration,
    /// Time with nested spans of one instance, on average.
    pub average_cpu: Duration,
    /// The longest instance.
    pub longest_cpu: Duration,
    /// `self_cpu` in percent of all recorded time of all threads.
    pub self_percent: f64,
    /// `total_cpu` in percent of all recorded time of all threads.
    pub total_percent: f64,
    /// Floating-point operations, as far as spans say: see [`convention::FLOPS`](crate::trace::convention::FLOPS).
    pub flops: u64,
    /// The same, with nested spans: a span comes to what it says itself, and if it says nothing, to what the spans nested in it on
    /// its thread come to, and the [operations](crate::trace::Operation) that frameworks were asked for in it. A span nested in one of the same
    /// row is not counted twice.
    pub total_flops: u64,
    /// `total_flops` a second of `total_gpu`, or of `total_cpu` where GPUs did nothing; none if there are no operations.
    pub flops_per_second: Option<f64>,
    /// How much of the GPUs' [peak](crate::trace::Device::peak_flops) that is, in percent: the time that `total_flops` would take at the
    /// peak for their element types, by `total_gpu`. The type is that of the first argument of floating-point
    /// numbers, or else of the result: see [`convention::DTYPE`](crate::trace::convention::DTYPE). By GPU time: what is usually called
    /// MFU, by the time of whole steps, is [`GpuUsage::mfu`](crate::analysis::GpuUsage::mfu). None where GPUs did nothing, or where a peak is not known, or
    /// which of several GPUs did the operations.
    pub gpu_mfu: Option<f64>,
    /// Bytes moved, as far as spans say: see [`convention::BYTES`](crate::trace::convention::BYTES).
    pub bytes: u64,
    /// Time of the GPU work that the spans themselves caused, each piece by itself even where some ran at the same time.
    pub self_gpu: Duration,
    /// The same, with nested spans. A span nested in one of the same row is not counted twice.
    pub total_gpu: Duration,
    /// GPU time with nested spans of one instance, on average.
    pub average_gpu: Duration,
    /// `self_gpu` in percent of the time of all GPU work.
    pub self_gpu_percent: f64,
    /// Bytes of GPU memory that the spans themselves allocated, less those they freed.
    pub self_gpu_memory: i64,
    /// The same, with nested spans. A span nested in one of the same row is not counted twice.
    pub total_gpu_memory: i64,
    /// The most bytes of a GPU's memory that were in use, by whomever, after an allocation made by the spans or by nested ones; none
    /// where they allocated nothing. See [`Allocation::in_use`](crate::trace::Allocation::in_use).
    pub peak_gpu_memory: Option<u64>,
    /// Kernels launched, with nested spans. A span nested in one of the same row is not counted twice.
    pub kernels: u64,
    /// The estimated [`Occupancy`](crate::trace::Occupancy) of these kernels in percent, a long one counting for more, if it is known.
    pub occupancy: Option<f64>,
}

impl Average {
    /// The name of the row of what GPUs did for no known span. It is there if there is any such work.
    pub const UNATTRIBUTED: &'static str = "[unattributed]";

    /// What GPUs did for the spans of a row, where all of it took `all`.
    pub(super) fn of_gpu(own: &GpuMeasured, total: &GpuMeasured, all: Duration) -> Self {
        Self {
            self_gpu: own.time,
            total_gpu: total.time,
            self_gpu_percent: percent_of(own.time, all),
            self_gpu_memory: own.memory,
            total_gpu_memory: total.memory,
            peak_gpu_memory: total.peak_memory,
            kernels: total.kernels,
            occupancy: total.occupancy.percent(),
            ..Self::default()
        }
    }

    /// The table, with PyTorch's titles. Columns in which no row has anything are left out.
    pub(super) fn table(rows: &[Self]) -> Table<'_, Self> {
        let mut table = Table::new(rows);
        table.text("Name", |row| row.label(rows));
        table.number("Self CPU %", |row| units::percent(row.self_percent)).spare(3);
        table.number("Self CPU", |row| units::time(row.self_cpu));
        table.number("CPU total %", |row| units::percent(row.total_percent)).spare(2);
        table.number("CPU total", |row| units::time(row.total_cpu));
        table.number("CPU time avg", |row| units::time(row.average_cpu)).spare(6);
        if rows.iter().any(|row| !row.total_gpu.is_zero()) {
            table.number("Self CUDA", |row| units::time(row.self_gpu));
            table.number("Self CUDA %", |row| units::percent(row.self_gpu_percent)).spare(8);
            table.number("CUDA total", |row| units::time(row.total_gpu));
            table.number("CUDA time avg", |row| units::time(row.average_gpu)).spare(5);
        }
        if rows.iter().any(|row| row.self_gpu_memory != 0 || row.total_gpu_memory != 0) {
            table.number("CUDA Mem", |row| units::memory(row.total_gpu_memory));
            table.number("Self CUDA Mem", |row| units::memory(row.self_gpu_memory)).spare(7);
        }
        if rows.iter().any(|row| row.peak_gpu_memory.is_some()) {
            // After the CPU's average, which is to its left and has the same turn.
            table.number("CUDA Peak", |row| units::or_none(row.peak_gpu_memory.map(units::bytes))).spare(6);
        }
        if rows.iter().any(|row| row.occupancy.is_some()) {
            table.number("Occupancy", |row| units::or_none(row.occupancy.map(units::percent)));
        }
        table.number("# of Calls", |row| row.calls.to_string());
        if rows.iter().any(|row| row.shapes.is_some()) {
            table.text("Input Shapes", |row| row.shapes.clone().unwrap_or_default());
        }
        if rows.iter().any(|row| !row.stack.is_empty()) {
            table.text("Inside", |row| row.stack.join(" < "));
        }
        if rows.iter().any(|row| row.total_flops > 0) {
            table.number("Total FLOPs", |row| units::count(row.total_flops)).spare(4);
        }
        if rows.iter().any(|row| row.flops_per_second.is_some()) {
            table.number("FLOP/s", |row| units::or_none(row.flops_per_second.map(units::rate))).spare(9);
        }
        if rows.iter().any(|row| row.gpu_mfu.is_some()) {
            table.number("GPU MFU", |row| units::or_none(row.gpu_mfu.map(|mfu| units::digits(mfu) + "%")));
        }
        if rows.iter().any(|row| row.bytes > 0) {
            table.number("Total Bytes", |row| units::count(row.bytes)).spare(1);
        }
        table
    }

    /// The name, with the target before it where another row has the same name; or the module, when grouped so.
    fn label(&self, rows: &[Self]) -> String {
        if let Some(module) = &self.module {
            let same = rows.iter().any(|other| other.module.as_ref() == Some(module) && other.name != self.name);
            return if same { format!("{module} ({})", self.name) } else { module.clone() };
        }
        let same = |other: &&Self| other.name == self.name && other.target != self.target;
        match rows.iter().find(same) {
            Some(_) => format!("{}::{}", self.target, self.name),
            None => self.name.clone(),
        }
    }
}

impl SortBy {
    pub(super) fn order(self, a: &Average, b: &Average) -> std::cmp::Ordering {
        match self {
            Self::TotalCpu => b.total_cpu.cmp(&a.total_cpu),
            Self::SelfCpu => b.self_cpu.cmp(&a.self_cpu),
            Self::AverageCpu => b.average_cpu.cmp(&a.average_cpu),
            Self::Calls => b.calls.cmp(&a.calls),
            Self::Flops => b.total_flops.cmp(&a.total_flops),
            Self::SelfGpu => b.self_gpu.cmp(&a.self_gpu),
            Self::TotalGpu => b.total_gpu.cmp(&a.total_gpu),
            Self::GpuMemory => b.total_gpu_memory.cmp(&a.total_gpu_memory),
            Self::Name => a.name.cmp(&b.name),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Average;
    use std::{fmt, time::Duration};
    use unicode_width::UnicodeWidthStr;

    fn row(name: &str, micros: u64, calls: u64) -> Average {
        Average {
            name: name.to_owned(),
            target: "model".to_owned(),
            calls,
            self_cpu: Duration::from_micros(micros / 2),
            total_cpu: Duration::from_micros(micros),
            average_cpu: Duration::from_micros(micros / calls),
            self_percent: 12.5,
            total_percent: 25.0,
            ..Average::default()
        }
    }

    fn table(rows: &[Average], left_out: usize, width: usize) -> String {
        struct Table<'a>(&'a [Average], usize, usize);
        impl fmt::Display for Table<'_> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                Average::table(self.0).write(f, self.1, self.2)
            }
        }
        format!("\n{}", Table(rows, left_out, width))
    }

    #[test]
    fn numbers_are_to_the_right_and_names_to_the_left() {
        let rows = [row("train_step", 12_000, 3), row("模型", 600, 60)];
        assert_eq!(
            table(&rows, 2, 120),
            "
----------  ----------  ---------  -----------  ---------  ------------  ----------
Name        Self CPU %   Self CPU  CPU total %  CPU total  CPU time avg  # of Calls
----------  ----------  ---------  -----------  ---------  ------------  ----------
train_step      12.50%    6.000ms       25.00%   12.000ms       4.000ms           3
模型            12.50%  300.000µs       25.00%  600.000µs      10.000µs          60
----------  ----------  ---------  -----------  ---------  ------------  ----------
2 more rows
"
        );
    }

    #[test]
    fn columns_that_say_nothing_are_left_out_and_others_give_way() {
        let mut rows = [row("model::layers::0::attention::query", 12_000, 3), row("model::layers::0::mlp", 600, 60)];
        rows[0].shapes = Some("[64, 512], [512, 512]".to_owned());
        rows[0].total_flops = 33_554_432;
        assert_eq!(
            table(&rows, 0, 132),
            "
-----------------------  ----------  ---------  -----------  ---------  ------------  ----------  ---------------------  -----------
Name                     Self CPU %   Self CPU  CPU total %  CPU total  CPU time avg  # of Calls  Input Shapes           Total FLOPs
-----------------------  ----------  ---------  -----------  ---------  ------------  ----------  ---------------------  -----------
model::laye…tion::query      12.50%    6.000ms       25.00%   12.000ms       4.000ms           3  [64, 512], [512, 512]      33.554M
model::layers::0::mlp        12.50%  300.000µs       25.00%  600.000µs      10.000µs          60                                  --
-----------------------  ----------  ---------  -----------  ---------  ------------  ----------  ---------------------  -----------
"
        );
    }

    #[test]
    fn rates_and_utilisation_are_shown_where_there_is_room() {
        let mut rows = [row("matmul", 12_000, 3), row("add", 600, 60)];
        rows[0].total_flops = 2_000_000_000;
        rows[0].flops_per_second = Some(61.25e9);
        rows[0].gpu_mfu = Some(0.091_418);
        assert_eq!(
            table(&rows, 0, 120),
            "
------  ----------  ---------  -----------  ---------  ------------  ----------  -----------  ------  -------
Name    Self CPU %   Self CPU  CPU total %  CPU total  CPU time avg  # of Calls  Total FLOPs  FLOP/s  GPU MFU
------  ----------  ---------  -----------  ---------  ------------  ----------  -----------  ------  -------
matmul      12.50%    6.000ms       25.00%   12.000ms       4.000ms           3       2.000G   61.2G  0.0914%
add         12.50%  300.000µs       25.00%  600.000µs      10.000µs          60           --      --       --
------  ----------  ---------  -----------  ---------  ------------  ----------  -----------  ------  -------
"
        );
        let narrow = table(&rows, 0, 70);
        assert!(narrow.ends_with("no room for CPU total %, Self CPU %, Total FLOPs, CPU time avg\n"), "{narrow}");
    }

    #[test]
    fn no_line_is_wider_than_the_terminal() {
        let rows = [row(&"x".repeat(500), 1, 1), row("y", 1, 1)];
        for width in [90, 100, 200, 700] {
            assert!(table(&rows, 0, width).lines().all(|line| line.width() <= width), "{width}");
        }
    }

    #[test]
    fn rows_of_one_name_say_where_they_are_from() {
        let mut rows = [row("forward", 2, 1), row("forward", 1, 1), row("other", 1, 1)];
        rows[1].target = "loss".to_owned();
        let table = table(&rows, 0, 120);
        assert!(["model::forward ", "loss::forward ", "\nother "].iter().all(|name| table.contains(name)), "{table}");
    }
}
