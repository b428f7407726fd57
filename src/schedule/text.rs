//! Schedules as text: `wait 5, warmup 1, active 3` for people, `wait=5,warmup=1,active=3` to be read.

use super::{Cycle, Kind, Schedule};
use std::{fmt, str::FromStr};

impl fmt::Display for Schedule {
    /// Writes `wait 5, warmup 1, active 3, repeat 2`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Kind::Always => f.write_str("from the start to the end"),
            Kind::Manual => f.write_str("by hand"),
            Kind::Cycle(cycle) => cycle.fmt_plain(f),
            Kind::Range { first, last } => write!(f, "steps {first} to {last}"),
            Kind::Function(_) => f.write_str("a function of the program"),
            Kind::Misused => f.write_str("misused"),
        }
    }
}

impl FromStr for Schedule {
    type Err = String;

    /// Reads a schedule: `wait=5,warmup=1,active=3,repeat=2` (also `skip_first`), `steps=100..110`, `steps=100..=109`,
    /// `always` or `manual`.
    ///
    /// ```
    /// use kernspan::Schedule;
    ///
    /// let cycle: Schedule = "wait=5,warmup=1,active=3,repeat=2".parse()?;
    /// assert_eq!(cycle.to_string(), "wait 5, warmup 1, active 3, repeat 2");
    /// let range: Schedule = "steps=100..110".parse()?;
    /// assert_eq!(range.to_string(), "steps 100 to 109");
    /// assert!("wiat=5".parse::<Schedule>().unwrap_err().contains("wiat"));
    /// # Ok::<(), String>(())
    /// ```
    fn from_str(text: &str) -> Result<Self, String> {
        let invalid = |problem: String| {
            format!(
                "invalid schedule \"{text}\": {problem}; expected \"wait=5,warmup=1,active=3,repeat=2\", \
                 \"steps=100..110\", \"always\" or \"manual\""
            )
        };
        let number =
            |text: &str| text.trim().parse::<u64>().map_err(|_| invalid(format!("\"{text}\" is not a number")));
        let text = text.trim();
        let schedule = match (text, text.strip_prefix("steps=")) {
            ("always", _) => Self::always(),
            ("manual", _) => Self::manual(),
            (_, Some(range)) => match (range.split_once("..="), range.split_once("..")) {
                (Some((first, last)), _) => Self::steps(number(first)?..=number(last)?),
                (None, Some((first, end))) => Self::steps(number(first)?..number(end)?),
                (None, None) => return Err(invalid(format!("\"{range}\" is not a range"))),
            },
            _ => {
                let (mut schedule, mut seen) = (Self::new(), Vec::new());
                for setting in text.split(',') {
                    let (key, value) =
                        setting.split_once('=').ok_or_else(|| invalid(format!("\"{setting}\" has no number")))?;
                    let (key, value) = (key.trim(), number(value)?);
                    if seen.contains(&key) {
                        return Err(invalid(format!("{key} is given twice")));
                    }
                    seen.push(key);
                    schedule = match key {
                        "skip_first" => schedule.skip_first(value),
                        "wait" => schedule.wait(value),
                        "warmup" => schedule.warmup(value),
                        "active" => schedule.active(value),
                        "repeat" => schedule.repeat(value),
                        _ => return Err(invalid(format!("unknown key {key}"))),
                    };
                }
                schedule
            }
        };
        schedule.check().map_err(|error| invalid(error.to_string()))?;
        Ok(schedule)
    }
}

impl Cycle {
    fn fmt_plain(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { skip_first, skip_first_wait, wait, warmup, active, repeat } = *self;
        let no_first_wait = if skip_first_wait { " (not the first time)" } else { "" };
        if skip_first > 0 {
            write!(f, "skip_first {skip_first}, ")?;
        }
        write!(f, "wait {wait}{no_first_wait}, warmup {warmup}, active {active}")?;
        if repeat > 0 { write!(f, ", repeat {repeat}") } else { f.write_str(", repeat until the end") }
    }
}

#[cfg(test)]
mod tests {
    use super::Schedule;

    #[test]
    fn schedules_are_named_as_they_are_made() {
        let cycle = Schedule::new().wait(5).warmup(1).active(3).repeat(2);
        assert_eq!(cycle.to_string(), "wait 5, warmup 1, active 3, repeat 2");
        let skipping = Schedule::new().skip_first(4).skip_first_wait(true).active(1);
        let expected = "skip_first 4, wait 0 (not the first time), warmup 0, active 1, repeat until the end";
        assert_eq!(skipping.to_string(), expected);
        assert_eq!(Schedule::steps(4..9).to_string(), "steps 4 to 8");
    }

    #[test]
    fn schedules_are_read_from_text() {
        let read = |text: &str| text.parse::<Schedule>().map(|schedule| schedule.to_string());
        assert_eq!(read("wait=5, warmup=1,active=3,repeat=2").unwrap(), "wait 5, warmup 1, active 3, repeat 2");
        assert_eq!(read("active=2").unwrap(), "wait 0, warmup 0, active 2, repeat until the end");
        assert_eq!(read("steps=100..110"), read("steps=100..=109"));
        assert_eq!(read("manual").unwrap(), "by hand");
        for (wrong, problem) in [
            ("", "has no number"),
            ("wait", "has no number"),
            ("wait=x", "is not a number"),
            ("wait=-1", "is not a number"),
            ("pause=1", "unknown key pause"),
            ("wait=1,wait=2", "given twice"),
            ("active=0", "active is 0"),
            ("steps=5", "is not a range"),
            ("steps=5..5", "range of steps is empty"),
        ] {
            assert!(read(wrong).unwrap_err().contains(problem), "{wrong}");
        }
    }
}
