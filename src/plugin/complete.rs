//! What may stand at a place of a command line, in the form in which kubectl asks its plugins for it.
//! Never fails: where nothing is known, nothing is offered.

use clap::{Arg, Command, CommandFactory as _};

use crate::plugin::Words;

/// Says that a file's name is none of it, as the shells' scripts of kubectl read it.
const NO_FILES: &str = ":4\n";

/// What only the API server knows the names of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Choice {
    /// The clusters of the namespace.
    Clusters,
    /// The `ValkeyConfig`s.
    Configs,
}

/// A line up to the word that is being typed, which is its last.
pub(super) struct Line<'a> {
    before: &'a [String],
    last: &'a str,
    grammar: Command,
}

/// What the words of a line are, by the grammar.
struct Reading<'a> {
    command: Option<&'a Command>,
    /// Options with a value, each with it.
    given: Vec<(&'a Arg, &'a str)>,
    /// The option whose value is being typed.
    open: Option<&'a Arg>,
    /// How many words without an option were given to the command.
    places_taken: usize,
    /// What is typed so far of the word or value.
    begun: &'a str,
}

impl<'a> Line<'a> {
    pub(super) fn of(words: &'a [String]) -> Self {
        let (last, before) = words
            .split_last()
            .map_or(("", words), |(last, before)| (last.as_str(), before));
        let mut grammar = Words::command();
        grammar.build();
        Self {
            before,
            last,
            grammar,
        }
    }

    /// What an option was given before.
    pub(super) fn value_of(&self, option: &str) -> Option<&str> {
        let given = self.read().given;
        let last = given.iter().rfind(|(one, _)| one.get_id() == option);
        last.map(|(_, value)| *value)
    }

    /// What is asked of the API server for it.
    pub(super) fn choice(&self) -> Option<Choice> {
        let reading = self.read();
        let command = reading.command?;
        if let Some(option) = reading.open {
            return (option.get_id() == "cluster").then_some(Choice::Clusters);
        }
        if reading.begun.starts_with('-') || reading.places_taken > 0 {
            return None;
        }
        match command.get_positionals().next()?.get_id().as_str() {
            "name" => Some(Choice::Clusters),
            "config" => Some(Choice::Configs),
            _ => None,
        }
    }

    /// The answer, with the names that were found.
    pub(super) fn answer(&self, found: &[String]) -> String {
        let reading = self.read();
        let offered = self.words(&reading).into_iter();
        let named = found.iter().map(|name| (name.clone(), String::new()));
        let fitting = offered
            .chain(named)
            .filter(|(word, _)| word.starts_with(reading.begun));
        let lines = fitting.map(|(word, help)| match help.as_str() {
            "" => format!("{word}\n"),
            help => format!("{word}\t{help}\n"),
        });
        lines.chain([NO_FILES.to_owned()]).collect()
    }

    fn read(&self) -> Reading<'_> {
        let mut reading = Reading {
            command: None,
            given: Vec::new(),
            open: None,
            places_taken: 0,
            begun: self.last,
        };
        for word in self.before {
            if let Some(option) = reading.open.take() {
                reading.given.push((option, word));
                continue;
            }
            match (self.option_of(&reading, word), reading.command) {
                (Some((option, Some(value))), _) => reading.given.push((option, value)),
                (Some((option, None)), _) => {
                    reading.open = option.get_action().takes_values().then_some(option);
                }
                (None, _) if word.starts_with('-') => {}
                (None, None) => reading.command = self.grammar.find_subcommand(word),
                (None, Some(_)) => reading.places_taken += 1,
            }
        }
        // The shell's script puts the option before what is offered for its value.
        if reading.open.is_none()
            && self.last.contains('=')
            && let Some((option, Some(value))) = self.option_of(&reading, self.last)
        {
            (reading.open, reading.begun) = (Some(option), value);
        }
        reading
    }

    /// The option that a word names, and its value if that is in the same word.
    fn option_of<'b>(
        &'b self,
        reading: &Reading<'b>,
        word: &'b str,
    ) -> Option<(&'b Arg, Option<&'b str>)> {
        // Options of all commands are among those of each.
        let command = reading.command.unwrap_or(&self.grammar);
        let mut options = command.get_arguments();
        options.find_map(|option| given(option, word))
    }

    /// Words of the grammar that may stand here.
    fn words(&self, reading: &Reading<'_>) -> Vec<(String, String)> {
        let place = match (reading.open, reading.command) {
            (Some(option), _) => Some(option),
            (None, None) => return self.commands(),
            (None, Some(command)) if reading.begun.starts_with('-') => {
                return command.get_arguments().filter_map(flag).collect();
            }
            (None, Some(command)) => command.get_positionals().nth(reading.places_taken),
        };
        let values = place.map(Arg::get_possible_values).unwrap_or_default();
        let told =
            |value: clap::builder::PossibleValue| (value.get_name().to_owned(), String::new());
        values.into_iter().map(told).collect()
    }

    fn commands(&self) -> Vec<(String, String)> {
        let commands = self.grammar.get_subcommands();
        let shown = commands.filter(|command| !command.is_hide_set());
        let told = |about: &clap::builder::StyledStr| about.to_string();
        let with_help = shown.map(|one| {
            (
                one.get_name().to_owned(),
                one.get_about().map(told).unwrap_or_default(),
            )
        });
        with_help.collect()
    }
}

/// The option if the word names it, and its value: nothing where that is the next word, or where it takes none.
fn given<'a>(option: &'a Arg, word: &'a str) -> Option<(&'a Arg, Option<&'a str>)> {
    let takes_values = option.get_action().takes_values();
    let after_long = option
        .get_long()
        .and_then(|long| word.strip_prefix("--")?.strip_prefix(long));
    match after_long {
        Some("") => return Some((option, None)),
        Some(rest) if takes_values && rest.starts_with('=') => {
            return Some((option, rest.get(1..)));
        }
        Some(_) | None => {}
    }
    match word.strip_prefix('-')?.strip_prefix(option.get_short()?)? {
        "" => Some((option, None)),
        rest if takes_values => Some((option, Some(rest.strip_prefix('=').unwrap_or(rest)))),
        _ => None,
    }
}

fn flag(option: &Arg) -> Option<(String, String)> {
    let long = option.get_long()?;
    let help = option.get_help().map(ToString::to_string);
    Some((format!("--{long}"), help.unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(line: &str) -> (Option<Choice>, String) {
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        let line = Line::of(&words);
        (line.choice(), line.answer(&["cache".to_owned()]))
    }

    #[test]
    fn commands_are_offered_with_what_they_do() {
        let (choice, answer) = asked("c");
        assert_eq!(choice, None);
        let words: Vec<&str> = answer
            .lines()
            .filter_map(|line| line.split('\t').next())
            .collect();
        assert_eq!(words, ["connect", "can-i", "completion", "cache", ":4"]);
        assert!(
            answer.contains("\tHow clients connect to a cluster"),
            "{answer}"
        );
        assert!(!asked("").1.contains("__complete"));
    }

    #[test]
    fn names_are_asked_for_where_one_stands() {
        for line in [
            "status ",
            "-n shop plan ",
            "wait --timeout 5m ",
            "can-i app get --cluster ",
            "can-i app get --cluster=",
            "-n plan status ",
            "-nshop plan ",
            "--namespace=shop plan ",
            "status -o json ",
            "status -w ",
        ] {
            assert_eq!(asked(line).0, Some(Choice::Clusters), "{line}");
        }
        for line in ["menu ", "-n status menu ", "menu --used-by "] {
            assert_eq!(asked(line).0, Some(Choice::Configs), "{line}");
        }
        for line in [
            "status cache ",
            "status --",
            "wait --timeout ",
            "can-i app ",
            "sta",
        ] {
            assert_eq!(asked(line).0, None, "{line}");
        }
        assert_eq!(asked("status x").1, ":4\n");
    }

    #[test]
    fn options_and_their_values_are_offered() {
        let (_, answer) = asked("wait --t");
        assert!(answer.starts_with("--timeout\tFor how long"), "{answer}");
        for line in ["status -o j", "status --output=j", "-o j", "--output=j"] {
            assert_eq!(asked(line).1, "json\n:4\n", "{line}");
        }
        assert_eq!(asked("can-i app get --cluster=c").1, "cache\n:4\n");
        assert!(asked("completion z").1.starts_with("zsh\n"));
    }

    #[test]
    fn what_was_given_before_counts_however_it_is_written() {
        for given in [
            "-n shop",
            "-nshop",
            "-n=shop",
            "--namespace shop",
            "--namespace=shop",
            "-n plan -n shop",
        ] {
            for line in [format!("{given} status "), format!("status {given} ")] {
                let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
                let line = Line::of(&words);
                assert_eq!(line.value_of("namespace"), Some("shop"), "{words:?}");
                assert_eq!(line.value_of("context"), None);
                assert_eq!(line.choice(), Some(Choice::Clusters), "{words:?}");
            }
        }
        let words = ["-n", "plan", ""].map(str::to_owned);
        let line = Line::of(&words);
        assert_eq!(line.value_of("namespace"), Some("plan"));
        assert_eq!(line.choice(), None);
    }
}
