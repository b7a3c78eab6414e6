//! What was typed wrongly, in one line: the argument, what is wrong with it, and where help is.

use clap::Command;
use clap::error::{ContextKind, ContextValue, Error, ErrorKind};

/// The line; none if what was asked for is help, or the version.
pub(crate) fn complaint(error: &Error, command: &Command, words: &[String]) -> Option<String> {
    if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) {
        return None;
    }
    let text = if error.to_string().contains(TOO_LARGE) {
        within_limits(error, command, words)
    } else {
        error.render().to_string()
    };
    let is_wanted = |line: &&str| !line.is_empty() && !line.starts_with("For more information");
    let wrong = text.lines().map(str::trim).take_while(|line| !line.starts_with("Usage:")).filter(is_wanted);
    let wrong: Vec<_> = wrong.map(|line| line.trim_start_matches("error: ")).collect();
    let wrong = match error.kind() {
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => "no verb is given".to_owned(),
        _ => joined(&wrong),
    };
    let wrong = wrong.replace("invalid digit found in string", "must be a whole number, 0 or more");
    let wrong = wrong.replace("cannot parse integer from empty string", "must be a whole number, 0 or more");
    let wrong = wrong.replace("invalid float literal", "must be a number");
    Some(format!("{wrong}; see {} --help", verb(command, words)))
}

/// What is said of a number that no word of the machine holds; it names no limit.
const TOO_LARGE: &str = "number too large to fit in target type";

/// What is said of such a number with the limit that it passes: its own of an argument that has one, which is told of
/// the largest number that is read as one, or else that of a word.
fn within_limits(error: &Error, command: &Command, words: &[String]) -> String {
    let Some(ContextValue::String(value)) = error.get(ContextKind::InvalidValue) else { return error.to_string() };
    let readable = i64::MAX.to_string();
    let named = std::iter::once(command.get_name().to_owned());
    let smaller = named.chain(words.iter().map(|word| word.replace(value.as_str(), &readable)));
    let own = command.clone().try_get_matches_from(smaller).err().map(|error| error.to_string());
    let own = own.filter(|said| said.contains(" is not in ")).map(|said| said.replace(&readable, value));
    own.unwrap_or_else(|| error.to_string().replace(TOO_LARGE, &format!("must be at most {}", u64::MAX)))
}

/// Lines as one; what follows a colon is a list.
fn joined(lines: &[&str]) -> String {
    let mut all = String::new();
    for line in lines {
        let between = match all.chars().next_back() {
            None => "",
            Some(':') => " ",
            _ if line.starts_with('[') => " ",
            _ => ", ",
        };
        all += between;
        all += line;
    }
    all
}

/// The verb that was meant, as it is typed.
fn verb(command: &Command, words: &[String]) -> String {
    let (mut at, mut typed) = (command, command.get_name().to_owned());
    for word in words.iter().filter(|word| !word.starts_with('-')) {
        let Some(verb) = at.find_subcommand(word) else { break };
        at = verb;
        typed = format!("{typed} {word}");
    }
    typed
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::{Arg, value_parser};

    fn command() -> Command {
        let seeds = Arg::new("seeds").long("seeds").value_parser(value_parser!(u16).range(1..=100));
        let colour = Arg::new("colour").long("colour").value_parser(["auto", "never"]);
        let first = Arg::new("first").long("first").value_parser(value_parser!(u64));
        let run = Command::new("run").arg(Arg::new("WORKLOAD").required(true)).args([seeds, colour, first]);
        Command::new("tlbkit").subcommand(run).subcommand_required(true).arg_required_else_help(true)
    }

    fn said(line: &str) -> Option<String> {
        let words: Vec<String> = line.split_whitespace().map(String::from).collect();
        let error = command().try_get_matches_from(["tlbkit".to_owned()].iter().chain(&words)).unwrap_err();
        complaint(&error, &command(), &words)
    }

    #[test]
    fn each_mistake_is_one_line_with_what_is_wrong_and_where_help_is() {
        let seeds = "invalid value '0' for '--seeds <seeds>': 0 is not in 1..=100; see tlbkit run --help";
        assert_eq!(said("run x --seeds 0").unwrap(), seeds);
        let missing = "the following required arguments were not provided: <WORKLOAD>; see tlbkit run --help";
        assert_eq!(said("run").unwrap(), missing);
        let tip =
            "unexpected argument '--seed' found, tip: a similar argument exists: '--seeds'; see tlbkit run --help";
        assert_eq!(said("run x --seed 1").unwrap(), tip);
        let values = "invalid value 'on' for '--colour <colour>' [possible values: auto, never]; see tlbkit run --help";
        assert_eq!(said("run x --colour on").unwrap(), values);
        let many = "9".repeat(30);
        let ranged = format!("invalid value '{many}' for '--seeds <seeds>': {many} is not in 1..=100");
        assert_eq!(said(&format!("run x --seeds {many}")).unwrap(), ranged + "; see tlbkit run --help");
        let whole = format!("invalid value '{many}' for '--first <first>': must be at most 18446744073709551615");
        assert_eq!(said(&format!("run x --first={many}")).unwrap(), whole + "; see tlbkit run --help");
        let verb = "unrecognized subcommand 'rum', tip: a similar subcommand exists: 'run'; see tlbkit --help";
        assert_eq!(said("rum").unwrap(), verb);
        assert_eq!(said("").unwrap(), "no verb is given; see tlbkit --help");
    }

    #[test]
    fn help_is_no_mistake() {
        assert_eq!(said("--help"), None);
        assert_eq!(said("run --help"), None);
    }
}
