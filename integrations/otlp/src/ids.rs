//! Ids of traces and spans. They are derived, not random: the ranks of a run, and scripts that look for a step, compute
//! the same ids without communicating.

use std::fmt;

/// The id of a trace, as in W3C Trace Context.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct TraceId([u64; 2]);

/// The id of a span in any trace.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct SpanKey(u64);

/// The parent span of a run, from a `traceparent`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Parent {
    pub(crate) trace: TraceId,
    pub(crate) span: SpanKey,
    pub(crate) sampled: bool,
}

/// The kind of thing that an id is derived for. Different kinds with the same number have different ids.
#[derive(Clone, Copy, Debug)]
pub(crate) enum IdKind {
    /// A run, from its name.
    Run = 1,
    /// The span of a run, on one rank.
    RunSpan,
    /// The trace of a step.
    Step,
    /// The trace of everything outside the steps of a window.
    Window,
    /// The root span of a step's or a window's trace.
    Root,
    /// A span of the program.
    Span,
    /// A piece of GPU work.
    Work,
    /// The span that stands for work without its own span.
    Folded,
    /// The span for all GPU work of a span that another layer sends.
    Gpu,
}

impl TraceId {
    pub(crate) fn to_bytes(self) -> [u8; 16] {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&self.0[0].to_be_bytes());
        bytes[8..].copy_from_slice(&self.0[1].to_be_bytes());
        bytes
    }

    /// The id of a trace that another layer sends.
    pub(crate) fn foreign(number: u128) -> Self {
        Self([(number >> 64) as u64, number as u64])
    }

    /// The trace of a run with this name.
    pub(crate) fn of_text(text: &str) -> Self {
        text.bytes().fold(Self([0, 0]), |id, byte| id.derive(IdKind::Run, [byte.into(), 0]))
    }

    /// The id of a run with this id as a child of `parent`.
    pub(crate) fn under(self, parent: Parent) -> Self {
        parent.trace.derive(IdKind::Run, [parent.span.0, self.0[0] ^ self.0[1]])
    }

    /// Derives the id of another trace from this one.
    pub(crate) fn derive(self, kind: IdKind, parts: [u64; 2]) -> Self {
        let first = self.mix(kind, parts, 0);
        // An id that is all zeros is invalid.
        Self([first, self.mix(kind, parts, first).max(1)])
    }

    /// Derives the id of a span from this trace.
    pub(crate) fn span(self, kind: IdKind, part: u64) -> SpanKey {
        SpanKey(self.mix(kind, [part, 0], 0).max(1))
    }

    fn mix(self, kind: IdKind, parts: [u64; 2], seed: u64) -> u64 {
        [self.0[0], self.0[1], kind as u64, parts[0], parts[1]]
            .into_iter()
            .fold(seed, |hash, part| split_mix(hash ^ part))
    }

    /// Whether a sampler with this ratio keeps this trace. It decides by the id, as OpenTelemetry's `TraceIdRatioBased`
    /// does.
    pub(crate) fn is_in(self, share: f64) -> bool {
        // The lower 63 bits, compared with the same fraction of their range.
        share >= 1.0 || ((self.0[1] >> 1) as f64) < share.max(0.0) * (1_u64 << 63) as f64
    }
}

/// SplitMix64: a bijection whose results look random.
fn split_mix(state: u64) -> u64 {
    let state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let state = (state ^ state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let state = (state ^ state >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    state ^ state >> 31
}

impl SpanKey {
    /// The id of a span that another layer sends.
    pub(crate) fn foreign(number: u64) -> Self {
        Self(number)
    }

    pub(crate) fn to_bytes(self) -> [u8; 8] {
        self.0.to_be_bytes()
    }
}

impl Parent {
    /// Parses a W3C Trace Context `traceparent`, such as `00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01`.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let mut parts = text.trim().split('-');
        let mut hex = |length: usize| {
            let part = parts.next().filter(|part| part.len() == length)?;
            let lower = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
            part.bytes().all(lower).then_some(part)
        };
        let number = |part: &str| u64::from_str_radix(part, 16).ok();
        let (version, trace, span, flags) = (hex(2)?, hex(32)?, hex(16)?, hex(2)?);
        // Versions after 00 may have more parts at the end.
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

    /// The error message for an invalid `traceparent`.
    pub(crate) fn invalid(setting: &str, text: &str) -> String {
        format!("invalid {setting} {text:?}: expected 00-<trace id>-<span id>-<flags>")
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
    use super::{IdKind, Parent, TraceId};
    use std::collections::BTreeSet;

    const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    #[test]
    fn a_traceparent_reads_as_it_is_written() {
        let parent = Parent::parse(PARENT).unwrap();
        assert_eq!(format!("{:?}", parent.trace), "0af7651916cd43dd8448eb211c80319c");
        assert_eq!(format!("{:?}", parent.span), "b7ad6b7169203331");
        assert!(parent.sampled && !Parent::parse(&PARENT.replace("-01", "-00")).unwrap().sampled);
        assert_eq!(parent.trace.to_bytes()[..3], [0x0a, 0xf7, 0x65]);
        // A later version, with more parts.
        assert_eq!(Parent::parse(&format!("cc{}-what-else", &PARENT[2..])), Some(parent));
    }

    #[test]
    fn an_invalid_traceparent_is_none() {
        let zero_trace = PARENT.replace("0af7651916cd43dd8448eb211c80319c", &"0".repeat(32));
        let zero_span = PARENT.replace("b7ad6b7169203331", &"0".repeat(16));
        let wrong =
            ["", "00", "00-1-2-01", &zero_trace, &zero_span, &PARENT.replace("00-", "ff-"), &PARENT.to_uppercase()];
        for text in wrong.into_iter().chain([&*format!("{PARENT}-more"), "0é-xx"]) {
            assert_eq!(Parent::parse(text), None, "{text}");
        }
    }

    /// Scripts that look for the trace of a step derive ids themselves and rely on these.
    #[test]
    fn ranks_and_releases_agree_on_ids() {
        let run = Parent::parse(PARENT).unwrap().trace;
        let step = run.derive(IdKind::Step, [7, 1]);
        assert_eq!(
            format!("{step:?} {:?}", step.span(IdKind::Root, 0)),
            "39ab91607d4e572a6a39043e2b254412 77669de848c71c39"
        );
    }

    #[test]
    fn ids_are_all_different() {
        let run = TraceId::of_text("run 1");
        let traces =
            (0..1000).flat_map(|step| (0..8).map(move |rank| run.derive(IdKind::Step, [step, rank]).to_bytes()));
        assert_eq!(traces.collect::<BTreeSet<_>>().len(), 8000);
        assert_eq!(
            (0..100_000).map(|span| run.span(IdKind::Span, span).to_bytes()).collect::<BTreeSet<_>>().len(),
            100_000
        );
        assert_ne!(run, TraceId::of_text("run 2"));
        assert_ne!(run.derive(IdKind::Step, [1, 0]), run.derive(IdKind::Window, [1, 0]));
    }

    #[test]
    fn a_share_of_traces_is_kept() {
        let run = TraceId::of_text("run");
        let kept = |share| (0..10_000).filter(|&step| run.derive(IdKind::Step, [step, 0]).is_in(share)).count();
        assert_eq!((kept(0.0), kept(1.0)), (0, 10_000));
        assert!((2300..2700).contains(&kept(0.25)), "{}", kept(0.25));
    }
}
