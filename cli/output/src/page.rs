//! What every page has in common: it is one file with its style inside, and it loads nothing.

use maud::{DOCTYPE, Markup, PreEscaped, html};

use crate::svg;

const STYLE: &str = include_str!("page.css");

/// How every page begins.
pub const START: &str = "<!DOCTYPE html><html lang=\"en\"><head><meta charset=\"utf-8\">";

/// The page called `title` around `body`.
pub fn around(title: &str, body: &Markup) -> String {
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { (title) }
                style { (PreEscaped(svg::STYLE)) (PreEscaped(STYLE)) }
            }
            body {
                h1 { (title) }
                (body)
            }
        }
    };
    page.into_string()
}
