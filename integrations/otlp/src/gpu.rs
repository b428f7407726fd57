//! What GPUs did for each span, its nested spans included.

use super::attributes::{Attributes, name};
use crate::trace::{Detail, Span, SpanId, Timestamp, Trace, Work};
use rustc_hash::FxHashMap;
use std::{cmp::Reverse, fmt::Write};

/// The GPU's part in every span of a trace.
#[derive(Debug)]
pub(super) struct GpuParts {
    /// By span.
    parts: Vec<GpuPart>,
    /// By span and kernel: how often, and how many nanoseconds.
    kernels: FxHashMap<SpanId, FxHashMap<KernelId, (u64, u64)>>,
    names: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct KernelId(usize);

/// The GPU's part in one span. Work at the same time is counted once.
#[derive(Clone, Debug, Default)]
pub(super) struct GpuPart {
    kernels: u64,
    copies: u64,
    copied: u64,
    busy: Busy,
    self_busy: Busy,
}

/// Time in which anything was done, of work that comes in order of its start.
#[derive(Clone, Copy, Debug, Default)]
struct Busy {
    nanos: u64,
    until: Timestamp,
}

impl Busy {
    fn add(&mut self, work: Work<'_>) {
        let from = work.start().max(self.until);
        self.nanos += u64::try_from(work.end().since(from).as_nanos()).unwrap_or(u64::MAX);
        self.until = self.until.max(work.end());
    }
}

impl GpuParts {
    /// Kernels of a span that are told of, those that took longest.
    const TOP: usize = 3;

    pub(super) fn of(trace: &Trace) -> Self {
        Self::for_spans(trace, |work| work.span().into_iter().flat_map(Span::stack).map(Span::id))
    }

    /// Gives each piece of work to the spans that `whose` says, first to the one that it is of itself.
    pub(super) fn for_spans<'a, I>(trace: &'a Trace, whose: impl Fn(Work<'a>) -> I) -> Self
    where
        I: IntoIterator<Item = SpanId>,
    {
        let mut parts = Self {
            parts: vec![GpuPart::default(); trace.spans().len()],
            kernels: FxHashMap::default(),
            names: Vec::new(),
        };
        let mut ids: FxHashMap<&str, KernelId> = FxHashMap::default();
        let mut work: Vec<Work<'_>> = trace.work().collect();
        work.sort_by_key(|work| work.start());
        for work in work {
            let kernel = work.kernel().map(|kernel| {
                *ids.entry(&kernel.name).or_insert_with(|| {
                    parts.names.push(short(&kernel.name).to_owned());
                    KernelId(parts.names.len() - 1)
                })
            });
            let nanos = u64::try_from(work.duration().as_nanos()).unwrap_or(u64::MAX);
            for (depth, span) in whose(work).into_iter().enumerate() {
                let part = &mut parts.parts[span.index()];
                part.add(work);
                if depth == 0 {
                    part.self_busy.add(work);
                }
                if let Some(kernel) = kernel {
                    let told = parts.kernels.entry(span).or_default().entry(kernel).or_default();
                    *told = (told.0 + 1, told.1 + nanos);
                }
            }
        }
        parts
    }

    /// Says what there is of a span; nothing, where the GPU had no part in it.
    pub(super) fn write(&self, span: SpanId, attributes: &mut Attributes<'_>) {
        let part = &self.parts[span.index()];
        part.write(attributes);
        let Some(kernels) = self.kernels.get(&span) else { return };
        let mut top: Vec<_> =
            kernels.iter().map(|(&kernel, &(count, nanos))| (Reverse(nanos), kernel, count)).collect();
        top.sort_unstable();
        let told = top.iter().take(Self::TOP).map(|&(Reverse(nanos), KernelId(kernel), count)| {
            let mut text = String::new();
            let _ = write!(text, "{:.3} ms in {count} × {}", nanos as f64 / 1e6, self.names[kernel]);
            text
        });
        attributes.texts(name::TOP_KERNELS, told);
    }
}

impl GpuPart {
    pub(super) fn add(&mut self, work: Work<'_>) {
        match work.detail() {
            Detail::Kernel(_) => self.kernels += 1,
            Detail::Copy(copy) => {
                self.copies += 1;
                self.copied = self.copied.saturating_add(copy.bytes);
            }
            Detail::Fill(_) => {}
        }
        self.busy.add(work);
    }

    fn write(&self, attributes: &mut Attributes<'_>) {
        if self.busy.until == Timestamp::default() {
            return;
        }
        attributes.number(name::KERNELS, self.kernels).number(name::BUSY, self.busy.nanos);
        attributes.number(name::SELF_BUSY, self.self_busy.nanos);
        if self.copies > 0 {
            attributes.number(name::COPIES, self.copies).number(name::COPIED, self.copied);
        }
    }

    /// The same of work that is in no span of its own.
    pub(super) fn write_folded(&self, attributes: &mut Attributes<'_>) {
        attributes.number(name::KERNELS, self.kernels).number(name::BUSY, self.busy.nanos);
        attributes.number(name::COPIES, self.copies).number(name::COPIED, self.copied);
    }
}

/// A kernel's name without what it returns, its template's arguments and its parameters, for a row in a list.
pub(super) fn short(name: &str) -> &str {
    let start = name.strip_prefix("void ").unwrap_or(name);
    let anonymous = "(anonymous namespace)::";
    let skip = start.rfind(anonymous).map_or(0, |place| place + anonymous.len());
    let end = start[skip..].find(['<', '(']).map_or(start.len(), |place| skip + place);
    let short = &start[..end];
    if short.is_empty() { name } else { short }
}

#[cfg(test)]
mod tests {
    use super::short;

    #[test]
    fn names_are_short() {
        let kernels = [
            ("void gemm<float, 128>(float*, int)", "gemm"),
            ("at::native::(anonymous namespace)::copy<int>(int)", "at::native::(anonymous namespace)::copy"),
            ("nvjet_hsh_128x64", "nvjet_hsh_128x64"),
            ("<lambda>", "<lambda>"),
            ("", ""),
        ];
        for (name, expected) in kernels {
            assert_eq!(short(name), expected);
        }
    }
}
