//! XProf's operations: paths of spans, and framework operations inside them.

use crate::trace::{BatchId, Callsite, OperationCall, Span, SpanId, Trace, Work};
use rustc_hash::FxHashMap;

/// The number of an [`Op`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct OpId(u32);

impl OpId {
    pub(super) fn index(self) -> usize {
        self.0 as usize
    }
}

/// A path of spans, or a framework operation inside one.
#[derive(Debug)]
pub(super) struct Op<'a> {
    /// The path, such as `train_step/forward/linear`.
    pub(super) path: String,
    /// The kind, such as `Linear`.
    pub(super) kind: String,
    /// The callsite of the innermost span.
    pub(super) callsite: Option<&'a Callsite>,
}

impl Op<'_> {
    /// Returns the path and the kind in one text, which XProf splits again.
    pub(super) fn full_name(&self) -> String {
        format!("{}:{}", self.path, self.kind)
    }
}

/// The operations of a trace.
///
/// XProf splits paths at slashes and accepts few characters in them, so names are changed to fit. The trace viewer
/// shows the original names.
#[derive(Debug)]
pub(super) struct Ops<'a> {
    ops: Vec<Op<'a>>,
    /// The bytes of all paths.
    bytes: usize,
    by_span: Vec<OpId>,
    /// The framework operations, by the operation of their span and their names.
    by_names: FxHashMap<(OpId, String), OpId>,
    by_batch: FxHashMap<(BatchId, Option<SpanId>), OpId>,
}

impl<'a> Ops<'a> {
    /// The maximum number of operations: with recursion there may be one per span. Later ones are
    /// [`OTHERS`](Self::OTHERS).
    pub(super) const MAX: usize = 20_000;
    /// The maximum size of all paths in bytes: a hundred per operation. A path deep in recursion has up to ten times
    /// that.
    const MAX_BYTES: usize = 100 * Self::MAX;
    /// The name of the operation that stands for all later ones.
    pub(super) const OTHERS: &'static str = "others";
    /// The operation of unattributed work.
    const UNATTRIBUTED: OpId = OpId(0);
    /// The operation named [`OTHERS`](Self::OTHERS).
    const OTHER: OpId = OpId(1);
    /// The maximum length of a path in bytes. Longer ones lose their beginnings.
    const MAX_PATH: usize = 1000;
    /// The maximum number of operations named for one kernel.
    const MAX_NAMES: usize = 4;

    pub(super) fn new(trace: &'a Trace) -> Self {
        let mut all = Self {
            ops: vec![Op::named(None, "unattributed"), Op::named(None, Self::OTHERS)],
            bytes: 0,
            by_span: Vec::with_capacity(trace.spans().len()),
            by_names: FxHashMap::default(),
            by_batch: FxHashMap::default(),
        };
        let mut known: FxHashMap<(Option<OpId>, usize), OpId> = FxHashMap::default();
        for span in trace.spans() {
            let parent = span.parent().map(|parent| all.of_span(parent.id()));
            let key = (parent, span.callsite_id().index());
            let id = match known.get(&key) {
                Some(&id) => id,
                None if all.is_full() => Self::OTHER,
                None => {
                    let parent = parent.map(|parent| all.get(parent).path.as_str());
                    let id = all.push(Op::of(parent, span.callsite()));
                    known.insert(key, id);
                    id
                }
            };
            all.by_span.push(id);
        }
        all
    }

    fn push(&mut self, op: Op<'a>) -> OpId {
        self.bytes += op.path.len();
        self.ops.push(op);
        OpId(self.ops.len() as u32 - 1)
    }

    /// Returns the number of operations.
    pub(super) fn len(&self) -> usize {
        self.ops.len()
    }

    /// Returns whether no more operations fit, so that there may be [`OTHERS`](Self::OTHERS).
    pub(super) fn is_full(&self) -> bool {
        self.ops.len() == Self::MAX || self.bytes >= Self::MAX_BYTES
    }

    pub(super) fn get(&self, id: OpId) -> &Op<'a> {
        &self.ops[id.index()]
    }

    pub(super) fn of_span(&self, span: SpanId) -> OpId {
        self.by_span[span.index()]
    }

    /// Returns the operation of a piece of work: that of its span, or that of a framework inside it.
    pub(super) fn of_work(&mut self, work: Work<'a>) -> OpId {
        let span = work.span().map(Span::id);
        let own = span.map_or(Self::UNATTRIBUTED, |span| self.of_span(span));
        let Some(batch) = work.batch_id() else { return own };
        if let Some(&known) = self.by_batch.get(&(batch, span)) {
            return known;
        }
        let id = self.of_operations(own, work);
        self.by_batch.insert((batch, span), id);
        id
    }

    fn of_operations(&mut self, own: OpId, work: Work<'a>) -> OpId {
        let operations = work.operations();
        if operations.len() == 0 {
            return own;
        }
        let more = operations.len().saturating_sub(Self::MAX_NAMES);
        let mut name = operations.take(Self::MAX_NAMES).map(OperationCall::name).collect::<Vec<_>>().join("-");
        if more > 0 {
            name += "-and-more";
        }
        if let Some(&known) = self.by_names.get(&(own, name.clone())) {
            return known;
        }
        if self.is_full() {
            return own;
        }
        let outer = self.get(own);
        let op = Op { callsite: outer.callsite, ..Op::named(Some(&outer.path), &name) };
        let id = self.push(op);
        self.by_names.insert((own, name), id);
        id
    }
}

impl<'a> Op<'a> {
    fn of(parent: Option<&str>, callsite: &'a Callsite) -> Self {
        Self { callsite: Some(callsite), ..Self::named(parent, callsite.name()) }
    }

    fn named(parent: Option<&str>, name: &str) -> Self {
        let name = sanitize(name);
        let mut path = parent.map_or_else(|| name.clone(), |parent| format!("{parent}/{name}"));
        if path.len() > Ops::MAX_PATH {
            // All of it is ASCII.
            path = format!("...{}", &path[path.len() - Ops::MAX_PATH..]);
        }
        Self { path, kind: kind(&name), callsite: None }
    }
}

/// Returns a name in which XProf accepts every character, short enough for a table.
fn sanitize(name: &str) -> String {
    let mut clean = String::new();
    // `model::layer` is already a path.
    for c in name.replace("::", "/").chars().take(200) {
        let accepted = c.is_ascii_alphanumeric() || "_./-".contains(c);
        clean.push(if accepted { c } else { '_' });
    }
    let clean = clean.trim_matches('/');
    if clean.starts_with(|c: char| c.is_ascii_alphanumeric()) { clean.to_owned() } else { format!("0{clean}") }
}

/// Returns the kind of an operation, `TrainStep` for `train_step`: XProf's kinds begin with a capital letter.
fn kind(name: &str) -> String {
    let last = name.rsplit('/').next().unwrap_or(name);
    let mut kind = String::new();
    for word in last.split(|c: char| !c.is_ascii_alphanumeric()) {
        let mut letters = word.chars();
        kind.extend(letters.next().map(|first| first.to_ascii_uppercase()));
        kind.extend(letters);
    }
    if kind.starts_with(|c: char| c.is_ascii_uppercase()) { kind } else { format!("_{kind}") }
}

#[cfg(test)]
mod tests {
    use super::{Ops, kind, sanitize};
    use crate::trace::{
        SpanData, SpanId,
        sample::{gpu_trace, operations_trace},
    };

    #[test]
    fn names_have_only_characters_that_are_accepted() {
        assert_eq!(sanitize("forward"), "forward");
        assert_eq!(sanitize("model::layers.0::attention"), "model/layers.0/attention");
        assert_eq!(sanitize("schöne Grüße: 1"), "sch_ne_Gr__e__1");
        assert_eq!(sanitize("::<T>\0"), "0_T__");
        assert_eq!(sanitize(""), "0");
        assert_eq!(sanitize(&"x".repeat(10_000)).len(), 200);
    }

    #[test]
    fn kinds_begin_with_a_capital_letter() {
        assert_eq!(
            [kind("train_step"), kind("model/linear"), kind("3x3"), kind("0")],
            ["TrainStep", "Linear", "_3x3", "_0"]
        );
    }

    #[test]
    fn spans_at_the_same_place_are_the_same_op() {
        let trace = gpu_trace();
        let ops = Ops::new(&trace);
        let paths: Vec<_> = trace.spans().map(|span| ops.get(ops.of_span(span.id())).full_name()).collect();
        let step = ["train_step:TrainStep", "train_step/forward:Forward", "train_step/backward:Backward"];
        assert_eq!(paths, [step, step].concat());
        assert_eq!(ops.ops.len(), 2 + 3);
    }

    #[test]
    fn recursion_comes_to_an_end() {
        let mut trace = gpu_trace();
        let span = trace.spans[0].clone();
        trace.spans.clear();
        for depth in 0..Ops::MAX {
            let parent = depth.checked_sub(1).map(SpanId::new);
            trace.spans.push(SpanData { parent, ..span.clone() });
        }
        let ops = Ops::new(&trace);
        assert!(ops.ops.iter().map(|op| op.path.len()).sum::<usize>() <= Ops::MAX_BYTES + 2 * Ops::MAX_PATH);
        let last = ops.get(ops.of_span(SpanId::new(Ops::MAX - 1)));
        assert_eq!((last.full_name(), ops.is_full()), ("others:Others".to_owned(), true));
        assert!(ops.ops.iter().all(|op| op.path.len() <= Ops::MAX_PATH + 3));
    }

    #[test]
    fn work_of_known_operations_has_their_names() {
        let trace = operations_trace();
        let mut ops = Ops::new(&trace);
        let paths: Vec<_> = trace.work().take(7).map(|work| ops.of_work(work)).collect();
        let paths: Vec<_> = paths.into_iter().map(|id| ops.get(id).full_name()).collect();
        let step = [
            "train_step:TrainStep",
            "train_step/forward/matmul:Matmul",
            "train_step/backward/matmul-add-add:MatmulAddAdd",
        ];
        assert_eq!(paths, [&step[..], &step, &["unattributed:Unattributed"]].concat());
    }
}
