//! Totals of the GPU work of each span, including nested spans.

use crate::attributes::{Attributes, name};
use kernspan::trace::{Detail, Span, SpanId, Timestamp, Trace, Work};
use rustc_hash::FxHashMap;
use std::{cmp::Reverse, fmt::Write};

/// The GPU work of every span of a trace.
#[derive(Debug)]
pub(crate) struct GpuTotals {
    /// By span.
    totals: Vec<GpuTotal>,
    /// By span and kernel: the number of launches, and their nanoseconds.
    kernels: FxHashMap<SpanId, FxHashMap<KernelId, (u64, u64)>>,
    names: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct KernelId(usize);

/// The GPU work of one span.
#[derive(Clone, Debug, Default)]
pub(crate) struct GpuTotal {
    kernels: u64,
    copies: u64,
    /// Bytes.
    copied: u64,
    busy: Busy,
    /// Without nested spans.
    self_busy: Busy,
}

/// The time during which any work ran. Work must be added in order of its start; overlapping work counts once.
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

impl GpuTotals {
    /// How many kernels of a span are named: those that took the longest.
    const TOP: usize = 3;

    /// Adds each piece of work to the span that launched it and to the spans around it.
    pub(crate) fn of(trace: &Trace) -> Self {
        Self::by_owner(trace, |work| work.span().into_iter().flat_map(Span::stack).map(Span::id))
    }

    /// Adds each piece of work to the spans that `owners` returns. The first of them launched it.
    pub(crate) fn by_owner<'a, I>(trace: &'a Trace, owners: impl Fn(Work<'a>) -> I) -> Self
    where
        I: IntoIterator<Item = SpanId>,
    {
        let mut totals = Self {
            totals: vec![GpuTotal::default(); trace.spans().len()],
            kernels: FxHashMap::default(),
            names: Vec::new(),
        };
        let mut ids: FxHashMap<&str, KernelId> = FxHashMap::default();
        let mut work: Vec<Work<'_>> = trace.work().collect();
        work.sort_by_key(|work| work.start());
        for work in work {
            let kernel = work.kernel().map(|kernel| {
                *ids.entry(&kernel.name).or_insert_with(|| {
                    totals.names.push(short(&kernel.name).to_owned());
                    KernelId(totals.names.len() - 1)
                })
            });
            let nanos = u64::try_from(work.duration().as_nanos()).unwrap_or(u64::MAX);
            for (depth, span) in owners(work).into_iter().enumerate() {
                let total = &mut totals.totals[span.index()];
                total.add(work);
                if depth == 0 {
                    total.self_busy.add(work);
                }
                if let Some(kernel) = kernel {
                    let (count, time) = totals.kernels.entry(span).or_default().entry(kernel).or_default();
                    (*count, *time) = (*count + 1, *time + nanos);
                }
            }
        }
        totals
    }

    /// Writes the attributes of a span; none if it has no GPU work.
    pub(crate) fn write(&self, span: SpanId, attributes: &mut Attributes<'_>) {
        self.totals[span.index()].write(attributes);
        let Some(kernels) = self.kernels.get(&span) else { return };
        let mut top: Vec<_> =
            kernels.iter().map(|(&kernel, &(count, nanos))| (Reverse(nanos), kernel, count)).collect();
        top.sort_unstable();
        let texts = top.iter().take(Self::TOP).map(|&(Reverse(nanos), KernelId(kernel), count)| {
            let mut text = String::new();
            let _ = write!(text, "{:.3} ms in {count} × {}", nanos as f64 / 1e6, self.names[kernel]);
            text
        });
        attributes.texts(name::TOP_KERNELS, texts);
    }
}

impl GpuTotal {
    pub(crate) fn add(&mut self, work: Work<'_>) {
        match work.detail() {
            Detail::Kernel(_) => self.kernels += 1,
            Detail::Copy(copy) => {
                self.copies += 1;
                self.copied = self.copied.saturating_add(copy.bytes);
            }
            _ => {}
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

    /// Writes the attributes of the span that stands for work without its own spans.
    pub(crate) fn write_folded(&self, attributes: &mut Attributes<'_>) {
        attributes.number(name::KERNELS, self.kernels).number(name::BUSY, self.busy.nanos);
        attributes.number(name::COPIES, self.copies).number(name::COPIED, self.copied);
    }
}

/// The name of a kernel without return type, template arguments and parameters.
pub(crate) fn short(name: &str) -> &str {
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
