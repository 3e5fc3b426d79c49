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
    begun: &'a str,
    grammar: Command,
}

impl<'a> Line<'a> {
    pub(super) fn of(words: &'a [String]) -> Self {
        let (begun, before) = words
            .split_last()
            .map_or(("", words), |(begun, before)| (begun.as_str(), before));
        let mut grammar = Words::command();
        grammar.build();
        Self {
            before,
            begun,
            grammar,
        }
    }

    /// What an option was given before.
    pub(super) fn value_of(&self, names: &[&str]) -> Option<&str> {
        let at = self
            .before
            .iter()
            .rposition(|word| names.contains(&word.as_str()))?;
        self.before.get(at + 1).map(String::as_str)
    }

    /// What is asked of the API server for it.
    pub(super) fn choice(&self) -> Option<Choice> {
        let command = self.command()?;
        if let Some(option) = self.open_option(command) {
            return (option.get_id() == "cluster").then_some(Choice::Clusters);
        }
        if self.begun.starts_with('-') || self.places_taken(command) > 0 {
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
        let offered = self.words().into_iter();
        let named = found.iter().map(|name| (name.clone(), String::new()));
        let fitting = offered
            .chain(named)
            .filter(|(word, _)| word.starts_with(self.begun));
        let lines = fitting.map(|(word, help)| match help.as_str() {
            "" => format!("{word}\n"),
            help => format!("{word}\t{help}\n"),
        });
        lines.chain([NO_FILES.to_owned()]).collect()
    }

    /// The command that was named.
    fn command(&self) -> Option<&Command> {
        self.before
            .iter()
            .find_map(|word| self.grammar.find_subcommand(word))
    }

    /// The option whose value is being typed.
    fn open_option<'b>(&self, command: &'b Command) -> Option<&'b Arg> {
        let last = self.before.last()?;
        let mut options = command.get_arguments();
        options.find(|option| option.get_action().takes_values() && is_called(option, last))
    }

    /// How many words without a name were given to the command.
    fn places_taken(&self, command: &Command) -> usize {
        let own = |word: &&String| command.get_name() != word.as_str();
        let mut words = self.before.iter().filter(own);
        let mut taken = 0;
        while let Some(word) = words.next() {
            let option = command
                .get_arguments()
                .find(|option| is_called(option, word));
            match option {
                Some(option) if option.get_action().takes_values() => drop(words.next()),
                Some(_) => {}
                None => taken += 1,
            }
        }
        taken
    }

    /// Words of the grammar that may stand here.
    fn words(&self) -> Vec<(String, String)> {
        let Some(command) = self.command() else {
            let commands = self.grammar.get_subcommands();
            let shown = commands.filter(|command| !command.is_hide_set());
            let told = |about: &clap::builder::StyledStr| about.to_string();
            return shown
                .map(|one| {
                    (
                        one.get_name().to_owned(),
                        one.get_about().map(told).unwrap_or_default(),
                    )
                })
                .collect();
        };
        let place = if self.begun.starts_with('-') {
            return command.get_arguments().filter_map(flag).collect();
        } else if let Some(option) = self.open_option(command) {
            Some(option)
        } else {
            command.get_positionals().nth(self.places_taken(command))
        };
        let values = place.map(Arg::get_possible_values).unwrap_or_default();
        let told =
            |value: clap::builder::PossibleValue| (value.get_name().to_owned(), String::new());
        values.into_iter().map(told).collect()
    }
}

fn is_called(option: &Arg, word: &str) -> bool {
    let long = option
        .get_long()
        .is_some_and(|long| word.strip_prefix("--") == Some(long));
    let short = option
        .get_short()
        .is_some_and(|short| word.strip_prefix('-') == Some(&short.to_string()));
    long || short
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
        ] {
            assert_eq!(asked(line).0, Some(Choice::Clusters), "{line}");
        }
        assert_eq!(asked("menu ").0, Some(Choice::Configs));
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
        assert_eq!(asked("status -o j").1, "json\n:4\n");
        assert!(asked("completion z").1.starts_with("zsh\n"));
    }

    #[test]
    fn what_was_given_before_counts() {
        let words = ["-n", "shop", "status", ""].map(str::to_owned);
        let line = Line::of(&words);
        assert_eq!(line.value_of(&["-n", "--namespace"]), Some("shop"));
        assert_eq!(line.value_of(&["--context"]), None);
    }
}
