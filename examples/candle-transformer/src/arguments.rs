use std::collections::BTreeMap;

/// The command line: a command and numbers by name, as in `train --steps 120`.
#[derive(Debug)]
pub(crate) struct Arguments {
    command: Option<String>,
    numbers: BTreeMap<String, usize>,
}

impl Arguments {
    pub(crate) fn parse(arguments: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut arguments = arguments.peekable();
        let command = arguments.next_if(|argument| !argument.starts_with('-'));
        let mut numbers = BTreeMap::new();
        while let Some(name) = arguments.next() {
            if !name.starts_with("--") {
                return Err(format!("`{name}` is not an option: they are given as `--name number`"));
            }
            let value = arguments.next().ok_or_else(|| format!("{name} needs a number"))?;
            let number = value.parse().map_err(|_| format!("{name} needs a number, not `{value}`"))?;
            if numbers.insert(name.clone(), number).is_some() {
                return Err(format!("{name} is there twice"));
            }
        }
        Ok(Self { command, numbers })
    }

    pub(crate) fn command(&self) -> Option<&str> {
        self.command.as_deref()
    }

    /// Takes a number, which has to be 1 or more, or returns the default.
    pub(crate) fn take(&mut self, name: &str, default: usize) -> Result<usize, String> {
        match self.numbers.remove(name) {
            Some(0) => Err(format!("{name} has to be 1 or more")),
            number => Ok(number.unwrap_or(default)),
        }
    }

    /// Returns an error if a number was given that no `take` asked for.
    pub(crate) fn finish(self) -> Result<(), String> {
        match self.numbers.keys().next() {
            Some(name) => Err(format!("no option `{name}` here")),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Arguments;

    fn parse(line: &str) -> Result<Arguments, String> {
        Arguments::parse(line.split_whitespace().map(str::to_owned))
    }

    #[test]
    fn a_command_is_followed_by_numbers() -> Result<(), String> {
        let mut arguments = parse("train --steps 120")?;
        assert_eq!(arguments.command(), Some("train"));
        assert_eq!(arguments.take("--steps", 1), Ok(120));
        assert_eq!(arguments.take("--active", 10), Ok(10));
        arguments.finish()
    }

    #[test]
    fn without_a_command_there_are_numbers_still() -> Result<(), String> {
        let mut arguments = parse("--tokens 3")?;
        assert_eq!(arguments.command(), None);
        assert_eq!(arguments.take("--tokens", 1), Ok(3));
        arguments.finish()
    }

    #[test]
    fn what_is_wrong_is_named() {
        let error = |line| parse(line).and_then(|mut it| it.take("--steps", 1).and_then(|_| it.finish())).unwrap_err();
        assert_eq!(error("train --steps"), "--steps needs a number");
        assert_eq!(error("train --steps many"), "--steps needs a number, not `many`");
        assert_eq!(error("train --steps 0"), "--steps has to be 1 or more");
        assert_eq!(error("train --steps 1 --steps 2"), "--steps is there twice");
        assert_eq!(error("train --stops 1"), "no option `--stops` here");
        assert_eq!(error("train 5"), "`5` is not an option: they are given as `--name number`");
    }
}
