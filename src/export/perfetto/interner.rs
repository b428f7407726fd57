//! An interner: the names of a sequence as numbers.

use super::{
    compute_proto::{
        ComputeArg, InternedComputeKernel, InternedGpuSpecification, InternedGraphicsContext, StageCategory,
    },
    proto::{InternedData, InternedName, SourceLocation},
};
use crate::trace::Callsite;
use rustc_hash::FxHashMap;

/// Assigns numbers to the names of one sequence. Each name is written once, with the first event that uses it.
#[derive(Debug)]
pub(super) struct Interner {
    /// Whether each callsite of the trace has been written.
    callsites: Vec<bool>,
    event_names: FxHashMap<String, u64>,
    annotation_names: FxHashMap<String, u64>,
    texts: FxHashMap<String, u64>,
    /// The categories that have been written. There are few.
    categories: Vec<&'static str>,
    /// The names of queues and stages of GPUs.
    specifications: FxHashMap<String, u64>,
    /// The number of kernels so far.
    kernels: u64,
    /// The names of kernels' arguments that have been written. There are few.
    argument_names: Vec<&'static str>,
    /// Names to be written with the next event.
    new: Option<InternedData>,
}

impl Interner {
    /// The maximum number of texts that get a number. Texts that differ every time are not worth one.
    const MAX_TEXTS: usize = 1024;

    /// Returns an interner for a trace with this many callsites.
    pub(super) fn new(callsites: usize) -> Self {
        Self {
            callsites: vec![false; callsites],
            event_names: FxHashMap::default(),
            annotation_names: FxHashMap::default(),
            texts: FxHashMap::default(),
            categories: Vec::new(),
            specifications: FxHashMap::default(),
            kernels: 0,
            argument_names: Vec::new(),
            new: None,
        }
    }

    /// Returns the names that have received a number since the last call.
    pub(super) fn take_new(&mut self) -> Option<InternedData> {
        self.new.take()
    }

    /// Returns the number of a callsite's name and source location. `index` is that of the callsite in the trace.
    pub(super) fn callsite(&mut self, index: usize, callsite: &Callsite) -> u64 {
        let iid = index as u64 + 1;
        if !std::mem::replace(&mut self.callsites[index], true) {
            let new = self.new.get_or_insert_default();
            new.event_names.push(interned(iid, callsite.name()));
            new.source_locations.push(SourceLocation {
                iid: Some(iid),
                file_name: callsite.file().map(str::to_owned),
                function_name: Some(format!("{}::{}", callsite.target(), callsite.name())),
                line_number: callsite.line(),
            });
        }
        iid
    }

    /// Returns the number of an event's name.
    pub(super) fn event_name(&mut self, name: &str) -> u64 {
        self.event_names.get(name).copied().unwrap_or_else(|| {
            // After those of the callsites.
            let iid = (self.callsites.len() + self.event_names.len()) as u64 + 1;
            self.event_names.insert(name.to_owned(), iid);
            self.new.get_or_insert_default().event_names.push(interned(iid, name));
            iid
        })
    }

    /// Returns the number of a category.
    pub(super) fn category(&mut self, name: &'static str) -> u64 {
        if let Some(index) = self.categories.iter().position(|&category| category == name) {
            return index as u64 + 1;
        }
        self.categories.push(name);
        let iid = self.categories.len() as u64;
        self.new.get_or_insert_default().event_categories.push(interned(iid, name));
        iid
    }

    /// Returns the number of an annotation's name.
    pub(super) fn annotation_name(&mut self, name: &str) -> u64 {
        if let Some(&iid) = self.annotation_names.get(name) {
            return iid;
        }
        let iid = self.annotation_names.len() as u64 + 1;
        self.annotation_names.insert(name.to_owned(), iid);
        self.new.get_or_insert_default().debug_annotation_names.push(interned(iid, name));
        iid
    }

    /// Returns the number of an annotation's text, or `None` if there are already too many texts.
    pub(super) fn text(&mut self, text: &str) -> Option<u64> {
        if let Some(&iid) = self.texts.get(text) {
            return Some(iid);
        }
        if self.texts.len() >= Self::MAX_TEXTS {
            return None;
        }
        let iid = self.texts.len() as u64 + 1;
        self.texts.insert(text.to_owned(), iid);
        self.new.get_or_insert_default().debug_annotation_string_values.push(interned(iid, text));
        Some(iid)
    }

    /// Adds the context of GPU work.
    pub(super) fn add_context(&mut self, context: InternedGraphicsContext) {
        self.new.get_or_insert_default().graphics_contexts.push(context);
    }

    /// Returns the number of a queue or stage of a GPU.
    pub(super) fn specification(&mut self, name: &str) -> u64 {
        self.specifications.get(name).copied().unwrap_or_else(|| {
            let iid = self.specifications.len() as u64 + 1;
            self.specifications.insert(name.to_owned(), iid);
            self.new.get_or_insert_default().gpu_specifications.push(InternedGpuSpecification {
                iid: Some(iid),
                name: Some(name.to_owned()),
                category: Some(StageCategory::Compute as i32),
            });
            iid
        })
    }

    /// Adds a kernel, and returns its number.
    pub(super) fn add_kernel(&mut self, kernel: InternedComputeKernel) -> u64 {
        self.kernels += 1;
        let kernel = InternedComputeKernel { iid: Some(self.kernels), ..kernel };
        self.new.get_or_insert_default().compute_kernels.push(kernel);
        self.kernels
    }

    /// Returns an argument of a kernel, without a value.
    pub(super) fn argument(&mut self, name: &'static str) -> ComputeArg {
        let index = self.argument_names.iter().position(|&known| known == name).unwrap_or_else(|| {
            self.argument_names.push(name);
            let iid = self.argument_names.len() as u64;
            self.new.get_or_insert_default().compute_arg_names.push(interned(iid, name));
            self.argument_names.len() - 1
        });
        ComputeArg { name_iid: Some(index as u64 + 1), ..ComputeArg::default() }
    }
}

fn interned(iid: u64, name: &str) -> InternedName {
    InternedName { iid: Some(iid), name: Some(name.to_owned()) }
}
