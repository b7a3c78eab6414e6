//! Parameters of a workload: named numbers with a default and a range, set by `key=value`.

use core::fmt;

/// What can be said about one parameter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Parameter {
    /// The key.
    pub name: &'static str,
    /// What it does, and where its default comes from.
    pub meaning: &'static str,
    /// Its value when nobody sets it.
    pub default: u64,
    /// The smallest value allowed.
    pub least: u64,
    /// The largest value allowed.
    pub most: u64,
}

/// The parameters of one workload.
pub trait Parameters {
    /// All of them, in the order of their declaration.
    fn list(&self) -> &'static [Parameter];
    /// The present value of `name`.
    fn get(&self, name: &str) -> Option<u64>;
    /// Where the value of `name` is kept.
    fn place(&mut self, name: &str) -> Option<&mut u64>;
}

/// Why a setting was refused. Each prints as one line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ParameterError<'a> {
    /// The text has no `=`.
    NotASetting(&'a str),
    /// The workload has no such parameter.
    Unknown {
        /// The key that was given.
        name: &'a str,
        /// The keys there are.
        known: &'static [Parameter],
    },
    /// The value is not a whole number.
    NotANumber {
        /// The key that was given.
        name: &'static str,
        /// The value that was given.
        value: &'a str,
    },
    /// The value is outside the range.
    OutOfRange {
        /// The parameter, with its range.
        parameter: Parameter,
        /// The value that was given.
        value: u64,
    },
}

impl fmt::Display for ParameterError<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotASetting(text) => write!(f, "{text}: must be key=value"),
            Self::Unknown { name, known } => {
                write!(f, "{name}: no such parameter; there are")?;
                known.iter().try_for_each(|parameter| write!(f, " {}", parameter.name))
            }
            Self::NotANumber { name, value } => write!(f, "{name}={value}: must be a whole number"),
            Self::OutOfRange { parameter: Parameter { name, least, most, .. }, value } => {
                write!(f, "{name}={value}: must be {least} to {most}")
            }
        }
    }
}

impl core::error::Error for ParameterError<'_> {}

/// Sets one parameter from `key=value`.
pub(crate) fn set<'a>(parameters: &mut dyn Parameters, setting: &'a str) -> Result<(), ParameterError<'a>> {
    let (name, value) = setting.split_once('=').ok_or(ParameterError::NotASetting(setting))?;
    let (name, text) = (name.trim(), value.trim());
    let known = parameters.list();
    let parameter =
        *known.iter().find(|parameter| parameter.name == name).ok_or(ParameterError::Unknown { name, known })?;
    let value = text.parse().map_err(|_| ParameterError::NotANumber { name: parameter.name, value: text })?;
    if !(parameter.least..=parameter.most).contains(&value) {
        return Err(ParameterError::OutOfRange { parameter, value });
    }
    *parameters.place(name).expect("a listed parameter has a place") = value;
    Ok(())
}

/// Declares a struct of parameters; each field is `/// meaning`, then `name = default, least..=most;`.
macro_rules! parameters {
    ($(#[$meta:meta])* pub struct $name:ident {
        $($(#[doc = $doc:literal])+ $field:ident = $default:expr, $least:literal..=$most:expr;)+
    }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub struct $name { $($(#[doc = $doc])+ pub $field: u64,)+ }

        impl Default for $name {
            fn default() -> Self {
                Self { $($field: $default),+ }
            }
        }

        impl $crate::parameters::Parameters for $name {
            fn list(&self) -> &'static [$crate::parameters::Parameter] {
                const LIST: &[$crate::parameters::Parameter] = &[$($crate::parameters::Parameter {
                    name: stringify!($field),
                    meaning: concat!($($doc),+).trim_ascii(),
                    default: $default,
                    least: $least,
                    most: $most,
                }),+];
                LIST
            }
            fn get(&self, name: &str) -> Option<u64> {
                match name { $(stringify!($field) => Some(self.$field),)+ _ => None }
            }
            fn place(&mut self, name: &str) -> Option<&mut u64> {
                match name { $(stringify!($field) => Some(&mut self.$field),)+ _ => None }
            }
        }
    };
}

/// No practical limit, and small enough that products of two stay within 64 bits.
pub(crate) const MANY: u64 = 1 << 31;
/// The most threads, processes or pairs of one workload.
pub(crate) const MOST_TASKS: u64 = 8192;
/// The most pages of one mapping: 64 GiB.
pub(crate) const MOST_PAGES: u64 = 1 << 24;
