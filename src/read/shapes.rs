//! The shapes of events: the text around their values, which most events share with an earlier one.

use super::{
    event::{Event, Member, ScannedValue},
    scanner::{Scanner, Wrong},
};

/// The shapes of the events read so far, as a tree: each node is the text between two values, with the key of the
/// second, and has the nodes that came next.
///
/// A profiler writes its events with the same keys in the same order, and the same white space between them. Comparing
/// this text is faster than scanning it: of 545 million instructions to scan 30 MB, 215 million were for keys, and 130
/// million are saved (`valgrind --tool=callgrind`).
#[derive(Debug, Default)]
pub(super) struct Shapes {
    nodes: Vec<Node>,
    /// The nodes that an event can begin with.
    first: Vec<u32>,
    /// How many events had a known shape, minus those that did not, within limits.
    luck: i32,
    /// The values of the event being scanned.
    values: Vec<ScannedValue>,
}

#[derive(Debug)]
struct Node {
    /// The text after the previous value, up to its own value; up to the end of the event if it has none.
    text: Box<str>,
    /// What its value is; `None` at the end of an event.
    value: Option<Member>,
    /// Where the key is in the text.
    key: (usize, usize),
    /// The nodes that came next, that of the latest event first.
    next: Vec<u32>,
}

impl Shapes {
    /// The maximum number of nodes, and of nodes that follow one. PyTorch's files in the fixtures have up to 114, and
    /// up to 6.
    const MOST: usize = 4096;
    const MOST_NEXT: usize = 32;
    /// The limit of that count: after this many more events without a known shape than with one, shapes are no longer
    /// looked for. It leaves room for all shapes of a file to come first.
    const PATIENCE: i32 = 1000;

    /// Reads an event, replacing another.
    #[inline]
    pub(super) fn read<'t>(&mut self, scanner: &mut Scanner<'t>, event: &mut Event<'t>) -> Result<(), Wrong> {
        if self.luck > -Self::PATIENCE {
            let start = scanner.position();
            event.clear();
            if self.follow(scanner, event) {
                self.luck = (self.luck + 1).min(Self::PATIENCE);
                return Ok(());
            }
            self.luck -= 1;
            scanner.go_back(start);
        }
        self.scan(scanner, event)
    }

    /// Reads an event that has no known shape.
    fn scan<'t>(&mut self, scanner: &mut Scanner<'t>, event: &mut Event<'t>) -> Result<(), Wrong> {
        self.values.clear();
        scanner.peek();
        let (start, text) = (scanner.position(), scanner.rest());
        event.read(scanner, &mut self.values)?;
        if !self.values.is_empty() {
            self.learn(&text[..scanner.position() - start]);
        }
        Ok(())
    }

    /// Reads an event with a known shape. Returns whether it has one; if not, the scanner may be anywhere.
    #[inline]
    fn follow<'t>(&mut self, scanner: &mut Scanner<'t>, event: &mut Event<'t>) -> bool {
        scanner.peek();
        let mut latest: Option<usize> = None;
        loop {
            let rest = scanner.rest();
            let next = match latest {
                Some(latest) => &self.nodes[latest].next,
                None => &self.first,
            };
            let is_here = |node: &u32| rest.as_bytes().starts_with(self.nodes[*node as usize].text.as_bytes());
            let Some(place) = next.iter().position(is_here) else { return false };
            let index = next[place] as usize;
            if place > 0 {
                let next = match latest {
                    Some(latest) => &mut self.nodes[latest].next,
                    None => &mut self.first,
                };
                next.swap(0, place);
            }
            let node = &self.nodes[index];
            scanner.advance(node.text.len());
            let Some(member) = node.value else { return true };
            if event.set(member, &rest[node.key.0..node.key.1], scanner).is_err() {
                return false;
            }
            latest = Some(index);
        }
    }

    /// Adds the shape of the scanned event, whose text begins with its bracket.
    fn learn(&mut self, text: &str) {
        let mut latest: Option<usize> = None;
        let mut from = 0;
        for index in 0..=self.values.len() {
            let (value, key, start, end) = match self.values.get(index) {
                Some(&ScannedValue { member, key, start, end }) => (Some(member), key, start, end),
                None => (None, 0, text.len(), text.len()),
            };
            let before = &text[from..start];
            from = end;
            let next = match latest {
                Some(latest) => &self.nodes[latest].next,
                None => &self.first,
            };
            let known = next.iter().find(|node| *self.nodes[**node as usize].text == *before);
            let index = match known {
                Some(&known) => known,
                None if self.nodes.len() < Self::MOST && next.len() < Self::MOST_NEXT => {
                    let index = self.nodes.len() as u32;
                    // Only arguments need their keys. What comes after one has no quotes.
                    let quote = before.rfind('"').filter(|_| value == Some(Member::Argument)).unwrap_or(0);
                    let key = (quote.saturating_sub(key), quote);
                    self.nodes.push(Node { text: before.into(), value, key, next: Vec::new() });
                    match latest {
                        Some(latest) => self.nodes[latest].next.push(index),
                        None => self.first.push(index),
                    }
                    index
                }
                None => return,
            };
            latest = Some(index as usize);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Event, Scanner, Shapes};
    use proptest::prelude::*;

    const VALUES: [&str; 9] =
        ["1", "-2.5e3", "\"x\"", "\"\\n\\\"}\"", "[1, {\"a\": 2}]", "{}", "{\"ts\": 3}", "null", "\"é\""];
    const KEYS: [&str; 10] = ["ph", "cat", "name", "ts", "dur", "args", "x", "é", "a\\n", ""];

    /// An event as text. Other numbers and space make it different from others with the same members.
    fn event() -> impl Strategy<Value = String> {
        let pair = (
            prop::sample::select(&KEYS[..]),
            prop::sample::select(&VALUES[..]),
            prop::sample::select(&["", " ", "\n  "][..]),
        );
        let pair = pair.prop_map(|(key, value, space)| format!("{space}\"{key}\":{space}{value}{space}"));
        let pairs = move || prop::collection::vec(pair.clone(), 0..4);
        (pairs(), prop::option::of(pairs()), pairs(), 0..20_u8).prop_map(|(before, args, after, corrupted)| {
            let args = args.map(|args| format!("\"args\": {{{}}}", args.join(",")));
            let members: Vec<_> = before.into_iter().chain(args).chain(after).collect();
            let text = format!(" {{{}}}", members.join(","));
            if corrupted == 0 { text.replacen(':', ";", 1) } else { text }
        })
    }

    proptest! {
        #[test]
        fn events_of_known_shapes_are_read_as_others_are(events in prop::collection::vec(event(), 1..30)) {
            let mut shapes = Shapes::default();
            // Twice, so that all shapes are known.
            for text in events.iter().chain(&events) {
                let read = |shapes: &mut Shapes| {
                    let (mut scanner, mut event) = (Scanner::new(text), Event::default());
                    let result = shapes.read(&mut scanner, &mut event);
                    (result.map(|()| format!("{event:?}")), scanner.position())
                };
                prop_assert_eq!(read(&mut shapes), read(&mut Shapes::default()), "{}", text);
            }
        }
    }

    #[test]
    fn the_second_of_two_alike_has_a_known_shape() {
        let mut shapes = Shapes::default();
        for (text, luck) in [
            (r#"{"ph": "X", "args": {"a": 1, "b": [2]}, "ts": 3}"#, -1),
            (r#"{"ph": "i", "args": {"a": "c", "b": 4}, "ts": 50}"#, 0),
            (r#"{"ph": "i", "args": {"a": "c", "b": 4}, "dur": 50}"#, -1),
            (r#"{"ph": "i", "args": {"a": "c", "b": 4}, "dur": 50}"#, 0),
            (r#"{"ph": "i", "args": {"a": "c", "b": 4}, "ts": 50}"#, 1),
        ] {
            shapes.read(&mut Scanner::new(text), &mut Event::default()).unwrap();
            assert_eq!(shapes.luck, luck, "{text}");
        }
    }
}
