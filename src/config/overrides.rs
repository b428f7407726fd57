//! Settings from the command line of programs that use clap.

use super::{
    decode::decode,
    layer::CYCLE,
    node::Node,
    profiling::{KeyInfo, Profiling},
};
use clap::{
    Arg, ArgMatches, Command,
    builder::{NonEmptyStringValueParser, TypedValueParser},
    error::ErrorKind,
};

/// Options such as `--profiling.active 2`, one for each key of [`Profiling`], for programs that use clap.
///
/// ```
/// use clap::Parser;
/// use kernspan::config::{ProfilingArgs, Settings};
///
/// #[derive(Parser)]
/// struct Args {
///     #[arg(long, default_value_t = 32)]
///     batch: u32,
///     #[command(flatten)]
///     profiling: ProfilingArgs,
/// }
///
/// let args = Args::parse_from(["train", "--batch", "64", "--profiling.active", "2"]);
/// let settings = Settings::new().with(args.profiling.into(), "command line")?;
/// assert_eq!(settings.profiling().active, Some(2));
/// # assert_eq!(args.batch, 64);
/// # Ok::<(), kernspan::config::ConfigError>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct ProfilingArgs(Profiling);

impl ProfilingArgs {
    fn read(key: &str, text: &str) -> Result<Profiling, String> {
        decode(&Node::map([(key, Node::untyped(text))])).map_err(|error| {
            let problem = error.problem;
            problem.strip_prefix(&format!("`{key}`: ")).map(str::to_owned).unwrap_or(problem)
        })
    }
}

impl From<ProfilingArgs> for Profiling {
    fn from(args: ProfilingArgs) -> Self {
        args.0
    }
}

impl clap::Args for ProfilingArgs {
    fn augment_args(command: Command) -> Command {
        Profiling::KEYS.iter().fold(command, |command, &KeyInfo { name, option, value, help }| {
            let parser = NonEmptyStringValueParser::new().try_map(move |text| Self::read(name, &text));
            let mut arg = Arg::new(option).long(option).value_name(value);
            arg = arg.help(help.trim_end_matches('.')).value_parser(parser).help_heading("Profiling");
            // A range is not repeated.
            if name == "steps" {
                let cycle = Profiling::KEYS.iter().filter(|key| CYCLE.contains(&key.name));
                arg = arg.conflicts_with_all(cycle.map(|key| key.option));
            }
            command.arg(arg)
        })
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl clap::FromArgMatches for ProfilingArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut args = Self::default();
        args.update_from_arg_matches(matches)?;
        Ok(args)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        for key in Profiling::KEYS {
            let found = matches.try_get_one::<Profiling>(key.option);
            let found = found.map_err(|error| clap::Error::raw(ErrorKind::InvalidValue, error))?;
            if let Some(profiling) = found {
                self.0.take(profiling.clone(), |_| ());
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::ProfilingArgs;
    use crate::config::Profiling;
    use clap::{Args, Command, FromArgMatches};

    fn parse(arguments: &[&str]) -> Result<Profiling, String> {
        let command = ProfilingArgs::augment_args(Command::new("train"));
        let matches = command.try_get_matches_from(["train"].iter().chain(arguments)).map_err(|it| it.to_string())?;
        Ok(ProfilingArgs::from_arg_matches(&matches).map_err(|it| it.to_string())?.into())
    }

    #[test]
    fn every_setting_has_an_option() {
        let given = parse(&["--profiling.steps", "3..7", "--profiling.export", "html,stacks:x", "--profiling.dir=out"]);
        let text = |key: &str| given.as_ref().unwrap().text(key);
        assert_eq!(
            ["steps", "export", "dir"].map(text),
            ["3..7", "html,stacks:x", "out"].map(|it| Some(it.to_owned()))
        );
        assert_eq!(text("active"), None);
        assert_eq!(parse(&[]), Ok(Profiling::default()));
    }

    #[test]
    fn mistakes_are_errors_of_the_command_line() {
        for (arguments, expected) in [
            (&["--profiling.active", "five"][..], "expected a whole number, found \"five\""),
            (&["--profiling.export", "crome"], "unknown format `crome`: did you mean `chrome`?"),
            (&["--profiling.actve", "5"], "a similar argument exists: '--profiling.active'"),
            (&["--profiling.steps", "3..7", "--profiling.wait", "1"], "cannot be used with"),
        ] {
            let error = parse(arguments).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
    }
}
