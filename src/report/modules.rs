//! The table of a model's modules: their parameters, FLOPs, times and memory.

use super::{
    average::Average,
    averages::Averages,
    call_tree::CallTree,
    table::Table,
    units,
    view::{View, table_of_rows},
};
use std::{collections::BTreeMap, time::Duration};

/// A table of a model's modules, in the order in which they first ran: see
/// [`convention::MODULE`](crate::trace::convention::MODULE).
///
/// Everything counts with nested modules, so that rows of nested modules do not add up.
///
/// ```
/// # fn show(report: &kernspan::Report) {
/// for module in report.modules().rows() {
///     if let Some(flops) = module.flops_per_parameter {
///         println!("{}: {flops:.1} FLOPs for each parameter in a pass", module.module);
///     }
/// }
/// println!("{}", report.modules());
/// # }
/// ```
#[must_use = "a table does nothing unless it is printed or its rows are taken"]
#[derive(Clone, Copy, Debug)]
pub struct Modules<'a> {
    tree: &'a CallTree,
    view: View,
}

/// A row of [`Modules`]: the spans of one module and one name.
#[derive(Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct ModuleAverage {
    /// The path in the model, such as `layers.0.attention`.
    pub module: String,
    /// The name of the spans.
    pub name: String,
    /// The number of parameters, if the spans state it: see
    /// [`convention::PARAMETERS`](crate::trace::convention::PARAMETERS).
    pub parameters: Option<u64>,
    /// The size of the parameters in bytes, if the spans state it.
    pub parameter_bytes: Option<u64>,
    /// How often the module ran: the number of enters of its spans.
    pub passes: u64,
    /// Floating-point operations of all passes.
    pub flops: u64,
    /// Floating-point operations of a pass, divided by the number of parameters, if both are known. For a linear layer,
    /// this is twice the number of rows of its input.
    pub flops_per_parameter: Option<f64>,
    /// Wall-clock time on the host.
    pub host: Duration,
    /// Time of the GPU work that the module caused. Work that ran at the same time is counted in full.
    pub gpu: Duration,
    /// Floating-point operations for each second of `gpu`, or of `host` if there was no GPU work.
    pub flops_per_second: Option<f64>,
    /// Bytes of GPU memory that the passes allocated, less those they freed: what is kept for the backward pass, say.
    pub gpu_memory: i64,
    /// The most bytes of a GPU's memory in use, by anybody, after an allocation made in the module.
    pub peak_gpu_memory: Option<u64>,
    /// Bytes that the passes allocated on the heap, less those they freed, if that was counted.
    pub heap: Option<i64>,
}

impl<'a> Modules<'a> {
    /// The number of rows by default.
    pub const LIMIT: usize = 100;

    pub(super) fn new(tree: &'a CallTree) -> Self {
        Self { tree, view: View::new(Self::LIMIT) }
    }

    /// Returns the parameters of the whole model: those of the modules that are in no other module with parameters, by
    /// their paths. `None` if no module states any.
    #[must_use]
    pub fn parameters(&self) -> Option<u64> {
        let mut of_modules: BTreeMap<String, u64> = BTreeMap::new();
        for row in self.all_rows() {
            if let Some(parameters) = row.parameters {
                let known = of_modules.entry(row.module).or_default();
                *known = parameters.max(*known);
            }
        }
        let is_nested = |path: &str| path.match_indices('.').any(|(end, _)| of_modules.contains_key(&path[..end]));
        let outermost = of_modules.iter().filter(|(path, _)| !is_nested(path));
        outermost.map(|(_, parameters)| *parameters).reduce(u64::saturating_add)
    }

    fn all_rows(&self) -> Vec<ModuleAverage> {
        let rows = Averages::new(self.tree).group_by_module(true).in_order();
        rows.into_iter().filter_map(ModuleAverage::of).collect()
    }
}

table_of_rows!(Modules, ModuleAverage, "no modules were recorded: no span has the field op.module");

impl ModuleAverage {
    /// Returns the row of a module; `None` if the spans are of none.
    fn of(row: Average) -> Option<Self> {
        let per_pass = (row.total_flops > 0 && row.enters > 0).then(|| row.total_flops as f64 / row.enters as f64);
        let parameters = row.parameters.filter(|&parameters| parameters > 0);
        Some(Self {
            module: row.module?,
            name: row.name,
            parameters: row.parameters,
            parameter_bytes: row.parameter_bytes,
            passes: row.enters,
            flops: row.total_flops,
            flops_per_parameter: per_pass.zip(parameters).map(|(flops, parameters)| flops / parameters as f64),
            host: row.total_cpu,
            gpu: row.total_gpu,
            flops_per_second: row.flops_per_second,
            gpu_memory: row.total_gpu_memory,
            peak_gpu_memory: row.peak_gpu_memory,
            heap: (!row.total_heap.is_nothing()).then(|| row.total_heap.net()),
        })
    }

    /// Returns the table of the rows.
    pub(super) fn table(rows: &[Self]) -> Table {
        let mut table = Table::default();
        let label = |row: &Self| {
            let same = rows.iter().any(|other| other.module == row.module && other.name != row.name);
            if same { format!("{} ({})", row.module, row.name) } else { row.module.clone() }
        };
        let labels: Vec<_> = rows.iter().map(label).collect();
        table.text("Module", &labels, String::clone);
        // No number is not the number 0: a module may have no parameters.
        table.number("Parameters", rows, |row| row.parameters.map(|it| units::count(it).unwrap_or("0".to_owned())));
        table.number("Size", rows, |row| row.parameter_bytes.map(units::bytes)).droppable(4);
        table.number("Passes", rows, |row| row.passes.to_string()).droppable(8);
        table.number("FLOPs", rows, |row| units::flops(row.flops));
        table.number("FLOPs/param", rows, |row| row.flops_per_parameter.map(units::rate));
        table.number("Host time", rows, |row| units::column_time(row.host)).droppable(5);
        if rows.iter().any(|row| !row.gpu.is_zero()) {
            table.number("GPU time", rows, |row| units::column_time(row.gpu));
        }
        table.number("FLOP/s", rows, |row| row.flops_per_second.map(units::flop_rate)).droppable(3);
        if rows.iter().any(|row| row.gpu_memory != 0) {
            table.number("GPU memory", rows, |row| units::memory(row.gpu_memory)).droppable(7);
        }
        table.number("GPU peak", rows, |row| row.peak_gpu_memory.map(units::bytes)).droppable(2);
        table.number("Heap", rows, |row| row.heap.map(units::memory)).droppable(1);
        table
    }
}

#[cfg(test)]
mod tests {
    use crate::{
        report::Report,
        trace::{
            Value,
            sample::{gpu_trace, set_fields},
        },
    };
    use std::time::Duration;

    #[test]
    fn modules_have_parameters_flops_times_and_memory() {
        let mut trace = gpu_trace();
        // Spans 1 and 4 are `forward`, 2 and 5 `backward`.
        for (span, module, parameters) in [(1, "up", 1000_u64), (4, "up", 1000), (2, "down", 0), (5, "down", 0)] {
            let parameters = [
                ("op.module", Value::from(module)),
                ("op.parameters", parameters.into()),
                ("op.parameter_bytes", (4 * parameters).into()),
                ("op.flops", (2000 * 8_u64).into()),
            ];
            set_fields(&mut trace, span, &parameters);
        }
        let report = Report::of([&trace]);
        let [up, down] = &report.modules().rows()[..] else { panic!("{}", report.modules()) };
        assert_eq!((up.module.as_str(), up.name.as_str(), up.passes), ("up", "forward", 2));
        assert_eq!((up.parameters, up.parameter_bytes), (Some(1000), Some(4000)), "they are not those of both passes");
        assert_eq!((up.flops, up.flops_per_parameter), (32_000, Some(16.0)));
        assert_eq!((up.gpu, up.host), (Duration::from_micros(40), Duration::from_micros(60)));
        assert_eq!((up.gpu_memory, up.peak_gpu_memory), (8192, Some(5096)));
        assert_eq!((down.parameters, down.flops_per_parameter), (Some(0), None));
        assert_eq!(report.modules().limit(1).rows().len(), 1);
        let text = report.modules().width(200).to_string();
        assert!(text.contains("\nup ") && text.contains("FLOPs/param") && !text.contains("Heap"), "{text}");
        let spans = report.averages().rows();
        assert!(spans.iter().all(|row| row.parameters.is_none()), "a span is not a module");
    }

    #[test]
    fn parameters_of_nested_modules_count_once() {
        let mut trace = gpu_trace();
        let modules = [("block", Some(30_u64)), ("block.up", Some(20)), ("blocks", Some(7)), ("act", None)];
        for (span, (module, parameters)) in [0, 1, 2, 5].into_iter().zip(modules) {
            let count = parameters.map(|parameters| ("op.parameters", Value::from(parameters)));
            let fields: Vec<_> = [("op.module", Value::from(module))].into_iter().chain(count).collect();
            set_fields(&mut trace, span, &fields);
        }
        assert_eq!(Report::of([&trace]).modules().parameters(), Some(37));
        let none = Report::of([&gpu_trace()]);
        assert_eq!((none.modules().parameters(), none.modules().rows().len()), (None, 0));
    }
}
