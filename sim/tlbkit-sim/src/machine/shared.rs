//! Files of numbers that hold for every machine, as `noise.toml` and `cold.toml`: they are part of the program.

use serde::de::DeserializeOwned;

use super::check::first_complaint;
use super::quantity::{Limit, Quantity};

/// The numbers of a built-in file that holds for every machine, read from its `text`.
///
/// # Panics
/// If the file is wrong: it is part of the program.
pub(super) fn numbers<T: DeserializeOwned>(
    file: &str,
    text: &str,
    visit: for<'q> fn(&'q T, &mut dyn FnMut(String, &'q Quantity, Limit)),
) -> T {
    let numbers: T = toml::from_str(text).unwrap_or_else(|error| panic!("{file}: {error}"));
    if let Some(complaint) = first_complaint(file, text, |each| visit(&numbers, each)) {
        panic!("{complaint}");
    }
    numbers
}

/// Makes such a file a part of the program: `$model` is what `sim/machines/$file` holds, and is read once. The names of
/// its numbers begin with `$prefix`.
macro_rules! same_for_all {
    ($model:ident, $prefix:literal, $file:literal) => {
        static MODEL: std::sync::LazyLock<$model> = std::sync::LazyLock::new(|| {
            let text = include_str!(concat!("../../../machines/", $file));
            $crate::machine::shared::numbers(concat!("sim/machines/", $file), text, |model: &$model, each| {
                model.visit($prefix, each);
            })
        });

        impl $model {
            /// The numbers of the file, which is part of the program.
            #[must_use]
            pub fn builtin() -> &'static Self {
                &MODEL
            }

            /// Every number with its name, in the order of the file.
            #[must_use]
            pub fn quantities(&self) -> Vec<(String, &Quantity)> {
                let mut all = Vec::new();
                self.visit($prefix, &mut |name, quantity, _: Limit| all.push((name, quantity)));
                all
            }
        }
    };
}
pub(super) use same_for_all;
