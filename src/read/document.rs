//! The JSON document: members of its header, and its events, which are passed on one by one.

use super::{
    event::Event,
    intake::Intake,
    scanner::{Scanner, Wrong},
};

impl<'a> Intake<'a> {
    /// Reads a document: an object with a list of events, or such a list.
    pub(super) fn read(&mut self, scanner: &mut Scanner<'a>) -> Result<(), Wrong> {
        let mut has_events = false;
        match scanner.peek() {
            b'[' => {
                self.read_events(scanner)?;
                has_events = true;
            }
            _ => scanner.object(|scanner, key| {
                if key == "traceEvents" {
                    has_events = true;
                    return self.read_events(scanner);
                }
                self.add_member(key, scanner.value()?);
                Ok(())
            })?,
        }
        scanner.end()?;
        if has_events { Ok(()) } else { Err(Wrong::Missing("traceEvents")) }
    }

    fn read_events(&mut self, scanner: &mut Scanner<'a>) -> Result<(), Wrong> {
        let mut event = Event::default();
        scanner.list(|scanner| {
            event.read(scanner)?;
            self.add_event(&event);
            Ok(())
        })
    }
}
