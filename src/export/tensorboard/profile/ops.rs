//! Operations of XProf: paths of spans, and the operations of frameworks inside them.

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

/// A path of spans, or an operation of a framework inside one.
#[derive(Debug)]
pub(super) struct Op<'a> {
    /// The path, such as `train_step/forward/linear`.
    pub(super) path: String,
    /// The kind, such as `Linear`.
    pub(super) kind: String,
    /// The innermost span's place in the source.
    pub(super) callsite: Option<&'a Callsite>,
}

impl Op<'_> {
    /// The path and the kind in one, which XProf splits again.
    pub(super) fn full_name(&self) -> String {
        format!("{}:{}", self.path, self.kind)
    }
}

/// The operations of a trace.
///
/// XProf splits paths at slashes and accepts few characters in them, so names are changed to fit. The trace viewer
/// shows the names as they are.
#[derive(Debug)]
pub(super) struct Ops<'a> {
    ops: Vec<Op<'a>>,
    of_spans: Vec<OpId>,
    with_operations: FxHashMap<(OpId, String), OpId>,
    of_batches: FxHashMap<(BatchId, Option<SpanId>), OpId>,
}

impl<'a> Ops<'a> {
    /// The most operations: with recursion there may be one for each span. Those that come later are
    /// [`OTHERS`](Self::OTHERS).
    pub(super) const MOST: usize = 20_000;
    pub(super) const OTHERS: &'static str = "others";
    /// The operation of work whose span is not known.
    const UNATTRIBUTED: OpId = OpId(0);
    /// The operation named [`OTHERS`](Self::OTHERS).
    const OTHER: OpId = OpId(1);
    /// The longest path, in bytes. Longer ones lose their beginnings.
    const LONGEST: usize = 1000;
    /// The most operations of one kernel that are named.
    const NAMED: usize = 4;

    pub(super) fn new(trace: &'a Trace) -> Self {
        let mut ops = vec![Op::named(None, "unattributed"), Op::named(None, Self::OTHERS)];
        let mut known: FxHashMap<(Option<OpId>, usize), OpId> = FxHashMap::default();
        let mut of_spans: Vec<OpId> = Vec::with_capacity(trace.spans().len());
        for span in trace.spans() {
            let parent = span.parent().map(|parent| of_spans[parent.id().index()]);
            let place = (parent, span.callsite_id().index());
            let id = match known.get(&place) {
                Some(&id) => id,
                None if ops.len() == Self::MOST => Self::OTHER,
                None => {
                    ops.push(Op::of(parent.map(|parent| ops[parent.index()].path.as_str()), span.callsite()));
                    let id = OpId(ops.len() as u32 - 1);
                    known.insert(place, id);
                    id
                }
            };
            of_spans.push(id);
        }
        Self { ops, of_spans, with_operations: FxHashMap::default(), of_batches: FxHashMap::default() }
    }

    /// Whether there may be operations that have no number of their own.
    pub(super) fn left_out(&self) -> bool {
        self.ops.len() == Self::MOST
    }

    pub(super) fn get(&self, id: OpId) -> &Op<'a> {
        &self.ops[id.index()]
    }

    pub(super) fn of_span(&self, span: SpanId) -> OpId {
        self.of_spans[span.index()]
    }

    /// The operation of a piece of work: that of its span, or that of a framework inside it.
    pub(super) fn of_work(&mut self, work: Work<'a>) -> OpId {
        let span = work.span().map(Span::id);
        let own = span.map_or(Self::UNATTRIBUTED, |span| self.of_span(span));
        let Some(batch) = work.batch_id() else { return own };
        if let Some(&known) = self.of_batches.get(&(batch, span)) {
            return known;
        }
        let id = self.of_operations(own, work);
        self.of_batches.insert((batch, span), id);
        id
    }

    fn of_operations(&mut self, own: OpId, work: Work<'a>) -> OpId {
        let operations = work.operations();
        if operations.len() == 0 {
            return own;
        }
        let more = operations.len().saturating_sub(Self::NAMED);
        let mut name = operations.take(Self::NAMED).map(OperationCall::name).collect::<Vec<_>>().join("-");
        if more > 0 {
            name += "-and-more";
        }
        if let Some(&known) = self.with_operations.get(&(own, name.clone())) {
            return known;
        }
        if self.left_out() {
            return own;
        }
        let outer = self.get(own);
        let op = Op { callsite: outer.callsite, ..Op::named(Some(&outer.path), &name) };
        self.ops.push(op);
        let id = OpId(self.ops.len() as u32 - 1);
        self.with_operations.insert((own, name), id);
        id
    }
}

impl<'a> Op<'a> {
    fn of(parent: Option<&str>, callsite: &'a Callsite) -> Self {
        Self { callsite: Some(callsite), ..Self::named(parent, callsite.name()) }
    }

    fn named(parent: Option<&str>, name: &str) -> Self {
        let name = fitting(name);
        let mut path = parent.map_or_else(|| name.clone(), |parent| format!("{parent}/{name}"));
        if path.len() > Ops::LONGEST {
            // All of it is ASCII.
            path = format!("...{}", &path[path.len() - Ops::LONGEST..]);
        }
        Self { path, kind: kind(&name), callsite: None }
    }
}

/// A name changed so that XProf accepts every character, short enough for a table.
fn fitting(name: &str) -> String {
    let mut fitting = String::new();
    // `model::layer` is a path already.
    for c in name.replace("::", "/").chars().take(200) {
        let taken = c.is_ascii_alphanumeric() || "_./-".contains(c);
        fitting.push(if taken { c } else { '_' });
    }
    let fitting = fitting.trim_matches('/');
    if fitting.starts_with(|c: char| c.is_ascii_alphanumeric()) { fitting.to_owned() } else { format!("0{fitting}") }
}

/// The kind of an operation, `TrainStep` for `train_step`: XProf's kinds begin with a capital letter.
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
    use super::{Ops, fitting, kind};
    use crate::trace::{
        SpanData, SpanId,
        sample::{gpu_trace, operations_trace},
    };

    #[test]
    fn names_are_made_of_what_is_taken() {
        assert_eq!(fitting("forward"), "forward");
        assert_eq!(fitting("model::layers.0::attention"), "model/layers.0/attention");
        assert_eq!(fitting("schöne Grüße: 1"), "sch_ne_Gr__e__1");
        assert_eq!(fitting("::<T>\0"), "0_T__");
        assert_eq!(fitting(""), "0");
        assert_eq!(fitting(&"x".repeat(10_000)).len(), 200);
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
        for depth in 0..Ops::MOST {
            let parent = depth.checked_sub(1).map(SpanId::new);
            trace.spans.push(SpanData { parent, ..span.clone() });
        }
        let ops = Ops::new(&trace);
        let last = ops.get(ops.of_span(SpanId::new(Ops::MOST - 1)));
        assert_eq!((last.full_name(), ops.left_out()), ("others:Others".to_owned(), true));
        assert!(ops.ops.iter().all(|op| op.path.len() <= Ops::LONGEST + 3));
    }

    #[test]
    fn work_that_operations_are_known_of_says_them() {
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
