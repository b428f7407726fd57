//! Names and lines of sampled addresses, from symbol tables and debug information.

use super::{
    modules::CodeModule,
    stacks::{PREEMPTED, RawSample, SampledStacks},
};
use crate::{
    sampling::{ResolvedSample, ResolvedStacks},
    trace::{StackFrame, StackFrameId, StackNode, StackNodeId, StackSampling},
};
use addr2line::Loader;
use object::{Object, ObjectSymbol, ObjectSymbolTable, SymbolIndex, SymbolKind};
use rustc_hash::FxHashMap;
use std::{cmp::Reverse, collections::hash_map::Entry, fmt, sync::Arc};

/// The names and lines of addresses that were looked up so far, in all windows.
#[derive(Default)]
pub(crate) struct Symbols {
    /// By the address of the [`CodeModule`], which each entry keeps alive.
    modules: FxHashMap<usize, ModuleSymbols>,
}

impl Symbols {
    /// Resolves the addresses of a window's stacks. Each is looked up once in the run.
    pub(crate) fn resolve(&mut self, stacks: SampledStacks) -> ResolvedStacks {
        let mut sampling = StackSampling {
            hertz: stacks.hertz,
            lost: stacks.lost,
            problem: stacks.problem,
            ..StackSampling::default()
        };
        let (mut frames, mut nodes) = (FxHashMap::default(), FxHashMap::default());
        let mut resolved: Vec<Option<StackNodeId>> = Vec::with_capacity(stacks.nodes.len());
        for node in &stacks.nodes {
            let mut caller = node.caller.and_then(|caller| resolved[caller as usize]);
            let function = match node.address {
                PREEMPTED => StackFrame::PREEMPTED.to_owned(),
                address => format!("{address:#x}"),
            };
            let unknown = [StackFrame { function, ..StackFrame::default() }];
            let found = node.module.as_ref().map(|module| self.frames(module, node.address));
            // The function that others were inlined into comes first, as it is the caller.
            for frame in found.unwrap_or(&unknown).iter().rev() {
                let id = match frames.entry(frame.clone()) {
                    Entry::Occupied(known) => *known.get(),
                    Entry::Vacant(new) => {
                        sampling.frames.push(frame.clone());
                        *new.insert(StackFrameId::new(sampling.frames.len() - 1))
                    }
                };
                let node = StackNode { frame: id, caller };
                caller = Some(*nodes.entry(node).or_insert_with(|| {
                    sampling.nodes.push(node);
                    StackNodeId::new(sampling.nodes.len() - 1)
                }));
            }
            resolved.push(caller);
        }
        drop(stacks.nodes);
        // Libraries that were unloaded are only known here.
        self.modules.retain(|_, symbols| Arc::strong_count(&symbols.module) > 1);
        let sample = |sample: &RawSample| ResolvedSample {
            at: sample.at,
            nanos: sample.nanos,
            thread: sample.thread,
            stack: sample.stack.and_then(|node| resolved[node as usize]),
            waiting: sample.waiting,
            truncated: sample.truncated,
        };
        ResolvedStacks { sampling, samples: stacks.samples.iter().map(sample).collect(), threads: stacks.threads }
    }

    /// Returns the functions at an address, innermost first.
    fn frames(&mut self, module: &Arc<CodeModule>, address: u64) -> &[StackFrame] {
        let symbols = self.modules.entry(Arc::as_ptr(module).addr()).or_insert_with(|| ModuleSymbols::new(module));
        symbols.frames(address.wrapping_sub(symbols.module.bias))
    }
}

/// The symbols of one library.
struct ModuleSymbols {
    module: Arc<CodeModule>,
    /// Functions in the order of their addresses: start, end, and where the name is.
    functions: Vec<(u64, u64, SymbolIndex)>,
    /// Debug information, if the file has any.
    lines: Option<Loader>,
    found: FxHashMap<u64, Box<[StackFrame]>>,
}

impl ModuleSymbols {
    fn new(module: &Arc<CodeModule>) -> Self {
        let parsed = module.data().and_then(|data| object::File::parse(data).ok());
        let mut functions: Vec<_> = parsed.iter().flat_map(functions).collect();
        // The first name in the table if a function has several, and the function rather than its first part.
        functions.sort_by_key(|&(start, end, _)| (start, Reverse(end)));
        functions.dedup_by_key(|(start, ..)| *start);
        let has_lines = parsed.is_some_and(|file| file.section_by_name(".debug_line").is_some());
        let lines = module.file.as_ref().filter(|_| has_lines).and_then(|file| Loader::new(file).ok());
        Self { module: Arc::clone(module), functions, lines, found: FxHashMap::default() }
    }

    fn frames(&mut self, address: u64) -> &[StackFrame] {
        // Not by `entry`, as all of this is read to find the frames.
        if !self.found.contains_key(&address) {
            let frames = self.look_up(address);
            self.found.insert(address, frames.into());
        }
        &self.found[&address]
    }

    fn look_up(&self, address: u64) -> Vec<StackFrame> {
        let library = &self.module.name;
        let mut frames = Vec::new();
        let mut found = self.lines.as_ref().and_then(|lines| lines.find_frames(address).ok());
        while let Some(frame) = found.as_mut().and_then(|frames| frames.next().ok().flatten()) {
            let function = frame.function.and_then(|name| Some(demangle(&name.raw_name().ok()?)));
            let (file, line) = frame.location.map_or((None, None), |place| (place.file, place.line));
            frames.push(StackFrame {
                function: function.unwrap_or_default(),
                file: file.map(str::to_owned),
                line,
                library: library.clone(),
                inlined: true,
            });
        }
        if frames.is_empty() {
            frames.push(StackFrame { library: library.clone(), ..StackFrame::default() });
        }
        if let Some(outer) = frames.last_mut() {
            outer.inlined = false;
            // Line tables alone name functions without their paths, and symbol tables with them.
            if let Some(name) = self.symbol(address) {
                outer.function = name;
            }
        }
        // Each address would be a function of its own.
        for frame in frames.iter_mut().filter(|frame| frame.function.is_empty()) {
            frame.function = format!("[{library}]");
        }
        frames
    }

    /// Returns the name of the function at an address by the symbol table.
    fn symbol(&self, address: u64) -> Option<String> {
        let after = self.functions.partition_point(|(start, ..)| *start <= address);
        let &(_, _, index) = self.functions[..after].last().filter(|(_, end, _)| address < *end)?;
        let file = object::File::parse(self.module.data()?).ok()?;
        let name = match file.symbol_table().filter(|table| table.symbols().next().is_some()) {
            Some(table) => table.symbol_by_index(index).ok()?.name().ok()?.to_owned(),
            None => file.dynamic_symbol_table()?.symbol_by_index(index).ok()?.name().ok()?.to_owned(),
        };
        Some(demangle(&name))
    }
}

/// Lists the functions in a file: those of the symbol table, or of the dynamic one if there is no other.
fn functions(file: &object::File<'_>) -> Vec<(u64, u64, SymbolIndex)> {
    let is_function = |kind| matches!(kind, SymbolKind::Text | SymbolKind::Unknown);
    let table = file.symbol_table().filter(|table| table.symbols().next().is_some());
    let table = table.or_else(|| file.dynamic_symbol_table());
    let symbols = table.iter().flat_map(ObjectSymbolTable::symbols);
    let functions = symbols.filter(|symbol| is_function(symbol.kind()) && symbol.is_definition() && symbol.size() > 0);
    functions.map(|it| (it.address(), it.address().saturating_add(it.size()), it.index())).collect()
}

/// Returns the readable form of a name of Rust or C++.
fn demangle(name: &str) -> String {
    if let Ok(rust) = rustc_demangle::try_demangle(name) {
        return format!("{rust:#}");
    }
    if !name.starts_with("_Z") {
        return name.to_owned();
    }
    let options = cpp_demangle::DemangleOptions::new().recursion_limit(256).no_return_type();
    let mut readable = Bounded(String::new());
    let symbol = cpp_demangle::Symbol::new(name).ok();
    match symbol.and_then(|symbol| symbol.structured_demangle(&mut readable, &options).ok()) {
        Some(()) => readable.0,
        None => name.to_owned(),
    }
}

/// A text of bounded length: templates may become gigabytes.
struct Bounded(String);

impl cpp_demangle::DemangleWrite for Bounded {
    fn write_string(&mut self, text: &str) -> fmt::Result {
        const MOST_BYTES: usize = 1 << 15;
        if self.0.len() + text.len() > MOST_BYTES {
            return Err(fmt::Error);
        }
        self.0.push_str(text);
        Ok(())
    }
}
