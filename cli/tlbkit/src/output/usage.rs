//! What was typed wrongly, in one line: the argument, what is wrong with it, and where help is.

use clap::Command;
use clap::error::{ContextKind, ContextValue, Error, ErrorKind};

/// The line; none if what was asked for is help, or the version.
pub(crate) fn complaint(error: &Error, command: &Command, words: &[String]) -> Option<String> {
    if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) {
        return None;
    }
    let text = match error.kind() {
        ErrorKind::MissingRequiredArgument => missing(error, command, words),
        _ if UNREADABLE.iter().any(|said| error.to_string().contains(said)) => within_limits(error, command, words),
        _ => error.render().to_string(),
    };
    let is_wanted = |line: &&str| !line.is_empty() && !line.starts_with("For more information");
    let wrong = text.lines().map(str::trim).take_while(|line| !line.starts_with("Usage:")).filter(is_wanted);
    let wrong: Vec<_> = wrong.map(|line| line.trim_start_matches("error: ")).collect();
    let wrong = match error.kind() {
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => "no verb is given".to_owned(),
        _ => joined(&wrong),
    };
    let wrong = wrong.replace(NO_DIGITS, "must be a whole number without a sign");
    let wrong = wrong.replace("cannot parse integer from empty string", "must be a whole number");
    let wrong = wrong.replace("invalid float literal", "must be a number");
    let wrong = range_in_words(&wrong);
    Some(format!("{wrong}; see {} --help", verb(command, words)))
}

/// The parser's message for a number that is too large for its type; it names no limit.
const TOO_LARGE: &str = "number too large to fit in target type";

/// The parser's message for text that is no number, or for a number with a sign; it names no limit either.
const NO_DIGITS: &str = "invalid digit found in string";
const UNREADABLE: [&str; 2] = [TOO_LARGE, NO_DIGITS];

/// The message for such a number with the limit that it exceeds. If the argument has a range, the limit is that: it is
/// found by parsing the words again with the largest number that can be read. Otherwise it is that of the type.
fn within_limits(error: &Error, command: &Command, words: &[String]) -> String {
    let Some(ContextValue::String(value)) = error.get(ContextKind::InvalidValue) else { return error.to_string() };
    let readable = i64::MAX.to_string();
    let named = std::iter::once(command.get_name().to_owned());
    let smaller = named.chain(words.iter().map(|word| word.replace(value.as_str(), &readable)));
    let own = command.clone().try_get_matches_from(smaller).err().map(|error| error.to_string());
    let own = own.filter(|said| said.contains(" is not in ")).map(|said| said.replace(&readable, value));
    own.unwrap_or_else(|| error.to_string().replace(TOO_LARGE, &format!("must be at most {}", u64::MAX)))
}

/// A range as a person writes it, in place of `0 is not in 1..=100`.
fn range_in_words(wrong: &str) -> String {
    let Some((before, range)) = wrong.split_once(" is not in ") else { return wrong.to_owned() };
    let Some((before, _)) = before.rsplit_once(": ") else { return wrong.to_owned() };
    let Some((low, high)) = range.split_once("..") else { return wrong.to_owned() };
    let high = high.trim_start_matches('=');
    if high.is_empty() {
        format!("{before}: must be {low} or more")
    } else {
        format!("{before}: must be {low} to {high}")
    }
}

/// The message for missing arguments. If one option alone would be enough, only that is named. If a command behind `--`
/// is missing, the message says where `--` belongs.
fn missing(error: &Error, command: &Command, words: &[String]) -> String {
    let text = error.render().to_string();
    let Some(ContextValue::Strings(lacking)) = error.get(ContextKind::InvalidArg) else { return text };
    let at = words.iter().position(|word| word == "--").unwrap_or(words.len());
    let is_enough = |option: &&String| {
        let typed = words[..at].iter().chain([*option]).chain(&words[at..]);
        let named = [command.get_name().to_owned()];
        let again = command.clone().try_get_matches_from(named.iter().chain(typed));
        again.is_ok_and(|_| lacking.len() > 1)
    };
    if let Some(option) = lacking.iter().filter(|lacks| lacks.starts_with("--")).find(is_enough) {
        return format!("the following required arguments were not provided: {option}");
    }
    let mut behind = verb_of(command, words).0.get_arguments().filter(|arg| arg.is_last_set());
    let is_behind = behind.any(|arg| {
        let name = arg.get_value_names().and_then(<[_]>::first).map_or(arg.get_id().as_str(), |name| name.as_str());
        lacking.iter().any(|lacks| lacks.starts_with(&format!("<{name}>")))
    });
    let hint = if is_behind && at == words.len() { "; put -- before the command" } else { "" };
    format!("the following required arguments were not provided: {}{hint}", lacking.join(", "))
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
    verb_of(command, words).1
}

/// The verb that was meant, and as it is typed.
fn verb_of<'a>(command: &'a Command, words: &[String]) -> (&'a Command, String) {
    let (mut at, mut typed) = (command, command.get_name().to_owned());
    for word in words.iter().filter(|word| !word.starts_with('-')) {
        let Some(verb) = at.find_subcommand(word) else { break };
        at = verb;
        typed = format!("{typed} {word}");
    }
    (at, typed)
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
        let behind = || Arg::new("command").last(true).num_args(1..);
        let trace = Arg::new("trace").required_unless_present("try");
        let flag = Arg::new("try").long("try").action(clap::ArgAction::SetTrue);
        let tune = Command::new("tune").args([trace, flag, behind().requires("try")]);
        let change = Arg::new("change").required(true).num_args(1..);
        let trying = Command::new("try").args([change, behind().required(true)]);
        Command::new("tlbkit").subcommands([run, tune, trying]).subcommand_required(true).arg_required_else_help(true)
    }

    fn said(line: &str) -> Option<String> {
        let words: Vec<String> = line.split_whitespace().map(String::from).collect();
        let error = command().try_get_matches_from(["tlbkit".to_owned()].iter().chain(&words)).unwrap_err();
        complaint(&error, &command(), &words)
    }

    #[test]
    fn each_mistake_is_one_line_with_what_is_wrong_and_where_help_is() {
        let seeds = "invalid value '0' for '--seeds <seeds>': must be 1 to 100; see tlbkit run --help";
        assert_eq!(said("run x --seeds 0").unwrap(), seeds);
        let missing = "the following required arguments were not provided: <WORKLOAD>; see tlbkit run --help";
        assert_eq!(said("run").unwrap(), missing);
        let tip =
            "unexpected argument '--seed' found, tip: a similar argument exists: '--seeds'; see tlbkit run --help";
        assert_eq!(said("run x --seed 1").unwrap(), tip);
        let values = "invalid value 'on' for '--colour <colour>' [possible values: auto, never]; see tlbkit run --help";
        assert_eq!(said("run x --colour on").unwrap(), values);
        let many = "9".repeat(30);
        let ranged = format!("invalid value '{many}' for '--seeds <seeds>': must be 1 to 100");
        assert_eq!(said(&format!("run x --seeds {many}")).unwrap(), ranged + "; see tlbkit run --help");
        let whole = format!("invalid value '{many}' for '--first <first>': must be at most 18446744073709551615");
        assert_eq!(said(&format!("run x --first={many}")).unwrap(), whole + "; see tlbkit run --help");
        for wrong in ["-7", "many"] {
            let ranged = format!("invalid value '{wrong}' for '--seeds <seeds>': must be 1 to 100");
            assert_eq!(said(&format!("run x --seeds={wrong}")).unwrap(), ranged + "; see tlbkit run --help");
            let whole = format!("invalid value '{wrong}' for '--first <first>': must be a whole number without a sign");
            assert_eq!(said(&format!("run x --first={wrong}")).unwrap(), whole + "; see tlbkit run --help");
        }
        let verb = "unrecognized subcommand 'rum', tip: a similar subcommand exists: 'run'; see tlbkit --help";
        assert_eq!(said("rum").unwrap(), verb);
        assert_eq!(said("").unwrap(), "no verb is given; see tlbkit --help");
    }

    #[test]
    fn what_lacks_is_what_is_enough_and_where_it_stands() {
        let lacking = "the following required arguments were not provided: ";
        assert_eq!(said("tune -- true").unwrap(), format!("{lacking}--try; see tlbkit tune --help"));
        assert_eq!(said("tune").unwrap(), format!("{lacking}<trace>; see tlbkit tune --help"));
        let behind = "<command>...; put -- before the command; see tlbkit try --help";
        assert_eq!(said("try FOO=1 sleep").unwrap(), lacking.to_owned() + behind);
        assert_eq!(said("try FOO=1 --").unwrap(), format!("{lacking}<command>...; see tlbkit try --help"));
    }

    #[test]
    fn help_is_no_mistake() {
        assert_eq!(said("--help"), None);
        assert_eq!(said("run --help"), None);
    }
}
