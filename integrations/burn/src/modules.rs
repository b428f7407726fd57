use burn::{
    module::{Module, ModuleVisitor, Param, ParamId, Parameter},
    tensor::{Bool, DType, Device, Int, Tensor},
};
use std::{
    collections::{HashMap, HashSet},
    fmt,
};

/// Returns the modules of a model, each with its path, type, parameters and bytes.
///
/// ```
/// use burn::{module::Module, nn::{Linear, LinearConfig}, tensor::Device};
///
/// #[derive(Module, Debug)]
/// struct Mlp {
///     fc1: Linear,
///     fc2: Linear,
/// }
///
/// # let device = Device::flex();
/// let model = Mlp { fc1: LinearConfig::new(784, 128).init(&device), fc2: LinearConfig::new(128, 10).init(&device) };
/// let modules = kernspan_burn::modules(&model);
/// assert_eq!(modules.get("fc1").unwrap().parameters, 784 * 128 + 128);
/// assert_eq!(modules.path_of(model.fc2.weight.id), Some("fc2"));
/// assert_eq!(modules.to_string(), "\
/// ------  ------  ----------  ---------
/// Module  Type    Parameters      Bytes
/// ------  ------  ----------  ---------
/// .       Mlp        101,770  397.54 KB
/// fc1     Linear     100,480  392.50 KB
/// fc2     Linear       1,290    5.04 KB
/// ------  ------  ----------  ---------
/// ");
/// ```
pub fn modules<M: Module>(model: &M) -> Modules {
    let mut collector = ModuleCollector::new();
    model.visit(&mut collector);
    collector.finish()
}

/// The modules of a model, displayed as a table; made by [`modules`].
///
/// A module's parameters include those of the modules inside it. Everything that Burn visits as a parameter counts as
/// one, such as the running mean of a `BatchNorm`. A shared parameter counts once. Modules without fields that Burn
/// visits are not listed.
#[derive(Clone, Debug, Default)]
pub struct Modules {
    rows: Vec<ModuleSummary>,
    parameters: HashMap<ParamId, ParameterSummary>,
    shared: u64,
}

/// A module of a model.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ModuleSummary {
    /// The path in the model, such as `blocks.0.norm`; empty for the model itself.
    pub path: String,
    /// The name of the module's type, or `Vec`, `Array`, `Tuple`.
    pub kind: String,
    /// The number of elements of its parameters, including those of the modules inside it.
    pub parameters: u64,
    /// The bytes of the parameters. For a parameter that is not initialized yet, they follow from the device's default
    /// element type; for a quantized one, they are those of the values without the scales.
    pub bytes: u64,
}

impl Modules {
    /// Returns the modules, each before those inside it, in the order of their fields. The first is the model.
    pub fn rows(&self) -> &[ModuleSummary] {
        &self.rows
    }

    /// Returns the module at a path.
    pub fn get(&self, path: &str) -> Option<&ModuleSummary> {
        self.rows.iter().find(|row| row.path == path)
    }

    /// Returns the path of the module that a parameter belongs to; the first, if several share it.
    pub fn path_of(&self, parameter: ParamId) -> Option<&str> {
        self.parameters.get(&parameter).map(|parameter| parameter.module.as_str())
    }
}

/// The elements, the bytes and the module of a parameter.
#[derive(Clone, Debug)]
struct ParameterSummary {
    count: u64,
    bytes: u64,
    module: String,
}

/// A visitor that collects the modules of a model.
struct ModuleCollector {
    nodes: Vec<Node>,
    /// The nodes from the model to the field that is being visited.
    open: Vec<usize>,
    parameters: HashMap<ParamId, ParameterSummary>,
    shared: u64,
}

/// A visited field. It is a module if something is inside it, and else a parameter.
struct Node {
    path: String,
    kind: Option<String>,
    parameters: HashSet<ParamId>,
}

impl Node {
    fn new(path: String) -> Self {
        Self { path, kind: None, parameters: HashSet::new() }
    }
}

impl ModuleCollector {
    fn new() -> Self {
        Self { nodes: vec![Node::new(String::new())], open: vec![0], parameters: HashMap::new(), shared: 0 }
    }

    fn parameter<T: Parameter>(
        &mut self,
        parameter: &Param<T>,
        dtype_of: impl FnOnce(&T) -> DType,
        dtype_on: impl FnOnce(&Device) -> DType,
    ) {
        for &node in &self.open {
            self.nodes[node].parameters.insert(parameter.id);
        }
        let count = parameter.lazy_shape().num_elements() as u64;
        if self.parameters.contains_key(&parameter.id) {
            self.shared += count;
            return;
        }
        // Reading the value would initialize the parameter, earlier than without this call, and so with other random
        // numbers.
        let dtype = match parameter.is_initialized() {
            true => dtype_of(&parameter.base()),
            false => dtype_on(&parameter.lazy_device()),
        };
        let bytes = match dtype {
            DType::QFloat(scheme) => (count * scheme.size_bits_value() as u64).div_ceil(8),
            dtype => count * dtype.size() as u64,
        };
        // The last open node is the parameter itself.
        let module = self.open.iter().rev().nth(1).or(self.open.last());
        let module = module.map(|&node| self.nodes[node].path.clone()).unwrap_or_default();
        self.parameters.insert(parameter.id, ParameterSummary { count, bytes, module });
    }

    fn finish(self) -> Modules {
        let Self { nodes, parameters, shared, .. } = self;
        let row = |Node { path, kind, parameters: ids }: Node| {
            let own = || ids.iter().filter_map(|id| parameters.get(id));
            let (count, bytes) = (own().map(|own| own.count).sum(), own().map(|own| own.bytes).sum());
            Some(ModuleSummary { path, kind: kind?, parameters: count, bytes })
        };
        let rows = nodes.into_iter().filter_map(row).collect();
        Modules { rows, parameters, shared }
    }
}

impl ModuleVisitor for ModuleCollector {
    /// Burn passes the name of the field, and the type of the module that has the field.
    fn enter_module(&mut self, name: &str, container_type: &str) {
        let parent = &mut self.nodes[self.open.last().copied().unwrap_or_default()];
        let kind = || container_type.rsplit(':').next().unwrap_or(container_type).to_owned();
        parent.kind.get_or_insert_with(kind);
        let path = if parent.path.is_empty() { name.to_owned() } else { format!("{}.{name}", parent.path) };
        self.open.push(self.nodes.len());
        self.nodes.push(Node::new(path));
    }

    fn exit_module(&mut self, _name: &str, _container_type: &str) {
        self.open.pop();
    }

    fn visit_float<const D: usize>(&mut self, parameter: &Param<Tensor<D>>) {
        self.parameter(parameter, Tensor::dtype, |device| device.settings().float_dtype.into());
    }

    fn visit_int<const D: usize>(&mut self, parameter: &Param<Tensor<D, Int>>) {
        self.parameter(parameter, Tensor::dtype, |device| device.settings().int_dtype.into());
    }

    fn visit_bool<const D: usize>(&mut self, parameter: &Param<Tensor<D, Bool>>) {
        self.parameter(parameter, Tensor::dtype, |device| device.settings().bool_dtype.into());
    }
}

impl fmt::Display for Modules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let titles = ["Module", "Type", "Parameters", "Bytes"].map(str::to_owned);
        let cells: Vec<[String; 4]> = self.rows.iter().map(cells).collect();
        let widths: [usize; 4] = std::array::from_fn(|column| {
            let all = cells.iter().chain([&titles]).map(|row| row[column].chars().count());
            all.max().unwrap_or_default()
        });
        let line = widths.map(|width| "-".repeat(width)).join("  ");
        let [module, kind, parameters, bytes] = widths;
        let write_row = |f: &mut fmt::Formatter<'_>, row: &[String; 4]| {
            let [a, b, c, d] = row;
            writeln!(f, "{a:module$}  {b:kind$}  {c:>parameters$}  {d:>bytes$}")
        };
        writeln!(f, "{line}")?;
        write_row(f, &titles)?;
        writeln!(f, "{line}")?;
        cells.iter().try_for_each(|row| write_row(f, row))?;
        writeln!(f, "{line}")?;
        if self.shared > 0 {
            writeln!(f, "{} parameters are shared, and counted once", thousands(self.shared))?;
        }
        Ok(())
    }
}

fn cells(row: &ModuleSummary) -> [String; 4] {
    let path = if row.path.is_empty() { ".".to_owned() } else { row.path.clone() };
    [path, row.kind.clone(), thousands(row.parameters), memory(row.bytes)]
}

/// Formats a number with commas: `1,234,567`.
fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let comma = |index: usize| if index > 0 && (digits.len() - index).is_multiple_of(3) { "," } else { "" };
    digits.chars().enumerate().map(|(index, digit)| format!("{}{digit}", comma(index))).collect()
}

/// Formats bytes as the report does: two decimals, `KB` of 1024 bytes.
fn memory(bytes: u64) -> String {
    let (unit, name) = match bytes {
        0x4000_0000.. => (1_u64 << 30, "GB"),
        0x10_0000.. => (1 << 20, "MB"),
        0x400.. => (1 << 10, "KB"),
        _ => return format!("{bytes} B"),
    };
    format!("{:.2} {name}", bytes as f64 / unit as f64)
}
