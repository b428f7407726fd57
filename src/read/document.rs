//! The JSON document: members of its header, and its events, which are passed on one by one.

use super::{
    ReadError,
    event::Event,
    intake::Intake,
    scanner::{Scanner, Wrong},
    shapes::Shapes,
    text::Text,
};

impl Intake {
    /// Reads a document: an object with a list of events, or such a list.
    pub(super) fn read(&mut self, text: &mut Text<'_>) -> Result<(), ReadError> {
        if text.part(|scanner| Ok(scanner.peek()))? == b'[' {
            self.read_events(text)?;
            return text.end();
        }
        let mut has_events = false;
        text.part(|scanner| scanner.expect(b'{', "expected an object"))?;
        let mut goes_on = !text.part(|scanner| Ok(scanner.take(b'}')))?;
        while goes_on {
            let key = text.part(|scanner| Ok(scanner.key()?.into_owned()))?;
            match key == "traceEvents" {
                true => {
                    has_events = true;
                    self.read_events(text)?;
                }
                false => {
                    let value = text.part(|scanner| Ok(scanner.value()?.0.to_owned()))?;
                    self.header.add(key, value);
                }
            }
            goes_on = text.part(|scanner| scanner.goes_on(b'}'))?;
        }
        text.end()?;
        if has_events { Ok(()) } else { Err(text.error(Wrong::Missing("traceEvents"), 0)) }
    }

    fn read_events(&mut self, text: &mut Text<'_>) -> Result<(), ReadError> {
        text.part(|scanner| scanner.expect(b'[', "expected a list"))?;
        if text.part(|scanner| Ok(scanner.take(b']')))? {
            return Ok(());
        }
        let mut shapes = Shapes::default();
        let mut is_first = true;
        loop {
            // All events that are entirely in memory, each with the comma before it.
            let mut scanner = text.scanner();
            let mut event = Event::default();
            let mut scanned = 0;
            let end = loop {
                match self.read_event(&mut scanner, &mut event, &mut shapes, is_first) {
                    Ok(true) => (scanned, is_first) = (scanner.position(), false),
                    end => break end,
                }
            };
            let (at, is_at_end) = (scanner.position() - scanned, scanner.is_at_end());
            text.advance(scanned);
            match end {
                Ok(_) => {
                    text.advance(at);
                    return Ok(());
                }
                Err(wrong) if !is_at_end || !text.more()? => return Err(text.error(wrong, at)),
                Err(_) => {}
            }
        }
    }

    /// Reads an event, and the comma before it, replacing another. Returns whether there was one.
    #[inline]
    fn read_event<'t>(
        &mut self,
        scanner: &mut Scanner<'t>,
        event: &mut Event<'t>,
        shapes: &mut Shapes,
        is_first: bool,
    ) -> Result<bool, Wrong> {
        if !is_first && !scanner.goes_on(b']')? {
            return Ok(false);
        }
        shapes.read(scanner, event)?;
        self.add_event(event);
        Ok(true)
    }
}
