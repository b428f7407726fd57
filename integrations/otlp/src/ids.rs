//! Which trace and which span something is. Ids are not drawn but derived, so that the ranks of a run, and whoever looks at it, agree on them
//! without a message.

use std::fmt;

/// Names a trace, as W3C's Trace Context has it.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct TraceId([u64; 2]);

/// Names a span of any trace.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct SpanKey(u64);

/// The span that a run belongs to: an incoming `traceparent`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Parent {
    pub(super) trace: TraceId,
    pub(super) span: SpanKey,
    pub(super) sampled: bool,
}

/// What is derived of one thing is different from what is derived of another.
#[derive(Clone, Copy, Debug)]
pub(super) enum Of {
    /// A run that nobody named.
    Run = 1,
    /// The span of a run, of one rank.
    RunSpan,
    /// The trace of a step.
    Step,
    /// The trace of a window without steps.
    Window,
    /// The span that such a trace has at its root.
    Root,
    /// A span of the program's.
    Span,
    /// A piece of GPU work.
    Work,
    /// What is folded into one span.
    Folded,
    /// All that GPUs did for a span that another sends.
    Gpu,
}

impl TraceId {
    pub(super) fn to_bytes(self) -> [u8; 16] {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&self.0[0].to_be_bytes());
        bytes[8..].copy_from_slice(&self.0[1].to_be_bytes());
        bytes
    }

    /// A trace of another's.
    pub(super) fn foreign(number: u128) -> Self {
        Self([(number >> 64) as u64, number as u64])
    }

    /// What a run is called by whom started it becomes its trace.
    pub(super) fn of_text(text: &str) -> Self {
        text.bytes().fold(Self([0, 0]), |id, byte| id.derive(Of::Run, [byte.into(), 0]))
    }

    /// What this is below a parent.
    pub(super) fn under(self, parent: Parent) -> Self {
        parent.trace.derive(Of::Run, [parent.span.0, self.0[0] ^ self.0[1]])
    }

    /// The trace of something in this one.
    pub(super) fn derive(self, of: Of, parts: [u64; 2]) -> Self {
        let first = self.mix(of, parts, 0);
        // Neither half may be missing: one that is all zeros is none.
        Self([first, self.mix(of, parts, first).max(1)])
    }

    /// A span of this trace.
    pub(super) fn span(self, of: Of, part: u64) -> SpanKey {
        SpanKey(self.mix(of, [part, 0], 0).max(1))
    }

    fn mix(self, of: Of, parts: [u64; 2], seed: u64) -> u64 {
        [self.0[0], self.0[1], of as u64, parts[0], parts[1]]
            .into_iter()
            .fold(seed, |hash, part| split_mix(hash ^ part))
    }

    /// Whether it is among the share of traces that is kept, as OpenTelemetry's samplers have it.
    pub(super) fn is_in(self, share: f64) -> bool {
        // The lower 63 bits, against as much of them.
        share >= 1.0 || ((self.0[1] >> 1) as f64) < share.max(0.0) * (1_u64 << 63) as f64
    }
}

/// The next of SplitMix64's numbers, which are all different and look like drawn ones.
fn split_mix(state: u64) -> u64 {
    let state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let state = (state ^ state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let state = (state ^ state >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    state ^ state >> 31
}

impl SpanKey {
    /// A span of another's.
    pub(super) fn foreign(number: u64) -> Self {
        Self(number)
    }

    pub(super) fn to_bytes(self) -> [u8; 8] {
        self.0.to_be_bytes()
    }
}

impl Parent {
    /// Reads a `traceparent` of W3C's Trace Context: `00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01`.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let mut parts = text.trim().split('-');
        let mut hex = |length: usize| {
            let part = parts.next().filter(|part| part.len() == length)?;
            let lower = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
            part.bytes().all(lower).then_some(part)
        };
        let number = |part: &str| u64::from_str_radix(part, 16).ok();
        let (version, trace, span, flags) = (hex(2)?, hex(32)?, hex(16)?, hex(2)?);
        // Later versions may have more to say, at the end; this one may not.
        if version == "ff" || (version == "00" && parts.next().is_some()) {
            return None;
        }
        let trace = TraceId([number(&trace[..16])?, number(&trace[16..])?]);
        let span = SpanKey(number(span)?);
        (trace != TraceId([0, 0]) && span != SpanKey(0)).then_some(Self {
            trace,
            span,
            sampled: number(flags)? & 1 == 1,
        })
    }
}

impl fmt::Debug for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}{:016x}", self.0[0], self.0[1])
    }
}

impl fmt::Debug for SpanKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::{Of, Parent, TraceId};
    use std::collections::BTreeSet;

    const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    #[test]
    fn a_traceparent_reads_as_it_is_written() {
        let parent = Parent::parse(PARENT).unwrap();
        assert_eq!(format!("{:?}", parent.trace), "0af7651916cd43dd8448eb211c80319c");
        assert_eq!(format!("{:?}", parent.span), "b7ad6b7169203331");
        assert!(parent.sampled && !Parent::parse(&PARENT.replace("-01", "-00")).unwrap().sampled);
        assert_eq!(parent.trace.to_bytes()[..3], [0x0a, 0xf7, 0x65]);
        // A later version, with more.
        assert_eq!(Parent::parse(&format!("cc{}-what-else", &PARENT[2..])), Some(parent));
    }

    #[test]
    fn what_is_no_traceparent_is_none() {
        let zero_trace = PARENT.replace("0af7651916cd43dd8448eb211c80319c", &"0".repeat(32));
        let zero_span = PARENT.replace("b7ad6b7169203331", &"0".repeat(16));
        let wrong =
            ["", "00", "00-1-2-01", &zero_trace, &zero_span, &PARENT.replace("00-", "ff-"), &PARENT.to_uppercase()];
        for text in wrong.into_iter().chain([&*format!("{PARENT}-more"), "0é-xx"]) {
            assert_eq!(Parent::parse(text), None, "{text}");
        }
    }

    /// Whoever derives ids elsewhere, as a script that looks for a step, relies on these.
    #[test]
    fn ranks_and_releases_agree_on_ids() {
        let run = Parent::parse(PARENT).unwrap().trace;
        let step = run.derive(Of::Step, [7, 1]);
        assert_eq!(
            format!("{step:?} {:?}", step.span(Of::Root, 0)),
            "39ab91607d4e572a6a39043e2b254412 77669de848c71c39"
        );
    }

    #[test]
    fn ids_are_all_different() {
        let run = TraceId::of_text("run 1");
        let traces = (0..1000).flat_map(|step| (0..8).map(move |rank| run.derive(Of::Step, [step, rank]).to_bytes()));
        assert_eq!(traces.collect::<BTreeSet<_>>().len(), 8000);
        assert_eq!(
            (0..100_000).map(|span| run.span(Of::Span, span).to_bytes()).collect::<BTreeSet<_>>().len(),
            100_000
        );
        assert_ne!(run, TraceId::of_text("run 2"));
        assert_ne!(run.derive(Of::Step, [1, 0]), run.derive(Of::Window, [1, 0]));
    }

    #[test]
    fn a_share_of_traces_is_kept() {
        let run = TraceId::of_text("run");
        let kept = |share| (0..10_000).filter(|&step| run.derive(Of::Step, [step, 0]).is_in(share)).count();
        assert_eq!((kept(0.0), kept(1.0)), (0, 10_000));
        assert!((2300..2700).contains(&kept(0.25)), "{}", kept(0.25));
    }
}
