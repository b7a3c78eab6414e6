//! Explores the model to its end, then with each mistake in it, and prints what was found.

use std::process::ExitCode;

use tlbkit_model::entry::{self, Mistake, Taken};
use tlbkit_model::{Deviation, Explored, directories, explore, retire, world};

fn main() -> ExitCode {
    println!("{:<24} {:>11} {:>11} {:>6} {:>8}  properties", "configuration", "states", "unique", "depth", "seconds");
    let worlds = world::small().into_iter().chain(world::large());
    let is_sound = worlds.map(|world| print_sound(world.name, &explore(world, None))).fold(true, |all, one| all & one);
    println!("\n{:<24} {:>11} {:>6} {:>8}  caught by", "mistake", "unique", "depth", "seconds");
    let is_sound = print_entries() & print_retiring() & print_directories() & is_sound;
    let is_sharp = Deviation::ALL.iter().copied().map(print_caught).fold(true, |all, one| all & one);
    if is_sound && is_sharp { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn print_sound(name: &str, found: &Explored) -> bool {
    let Explored { states, unique_states, depth, seconds, broken, .. } = found;
    let verdict = if broken.is_empty() { "all hold" } else { "BROKEN" };
    println!("{name:<24} {states:>11} {unique_states:>11} {depth:>6} {seconds:>8.1}  {verdict}");
    for (property, way) in broken {
        println!("    {property}: {way:?}");
    }
    broken.is_empty()
}

/// The handshake of entries into the kernel, with pages, with a table, and with each mistake.
fn print_entries() -> bool {
    let kinds = [[Taken::Page, Taken::Page], [Taken::Page, Taken::Table]];
    let is_right = |(taken, mistake): ([Taken; 2], Option<Mistake>)| {
        let found = entry::explore(taken, mistake);
        let verdict = if found.broken.is_empty() { "all hold".to_owned() } else { found.broken.join(", ") };
        println!(
            "{:<24} {:>11}  {verdict}",
            mistake.map_or("entry".to_owned(), |one| format!("{one:?}")),
            found.unique_states
        );
        found.broken.is_empty() == mistake.is_none()
    };
    let sound = kinds.map(|taken| (taken, None));
    let broken = Mistake::ALL.map(|mistake| (kinds[usize::from(mistake == Mistake::DefersTables)], Some(mistake)));
    sound.into_iter().chain(broken).map(is_right).fold(true, |all, one| all & one)
}

/// The handshake of grace periods with each ending, and with each mistake.
fn print_retiring() -> bool {
    let is_right = |(ending, mistake): (retire::Ending, Option<retire::Mistake>)| {
        let found = retire::explore(ending, mistake);
        let verdict = if found.broken.is_empty() { "all hold".to_owned() } else { found.broken.join(", ") };
        let name = mistake.map_or(format!("retire: {ending:?}"), |one| format!("{one:?}"));
        println!("{name:<24} {:>11}  {verdict}", found.unique_states);
        found.broken.is_empty() == mistake.is_none()
    };
    let sound = retire::Ending::ALL.map(|ending| (ending, None));
    let broken = retire::Mistake::ALL.into_iter().flat_map(|one| one.endings().iter().map(move |&at| (at, Some(one))));
    sound.into_iter().chain(broken).map(is_right).fold(true, |all, one| all & one)
}

/// The handshake of directories in each of its worlds, and with each mistake.
fn print_directories() -> bool {
    let is_right = |(world, mistake): (directories::World, Option<directories::Mistake>)| {
        let found = directories::explore(world, mistake);
        let verdict = if found.broken.is_empty() { "all hold".to_owned() } else { found.broken.join(", ") };
        let name = mistake.map_or(format!("directories, {}", world.name), |one| format!("{one:?}"));
        println!("{name:<24} {:>11}  {verdict}", found.unique_states);
        found.broken.is_empty() == mistake.is_none()
    };
    let sound = directories::WORLDS.map(|world| (world, None));
    let broken = directories::Mistake::ALL.map(|mistake| (*mistake.world(), Some(mistake)));
    sound.into_iter().chain(broken).map(is_right).fold(true, |all, one| all & one)
}

fn print_caught(deviation: Deviation) -> bool {
    let (name, property) = deviation.breaks();
    let found = explore(world::named(name).deviating(deviation), Some(property));
    let depth = found.broken.first().map_or(0, |(_, way)| way.len());
    let verdict = if found.broken.is_empty() { "NOTHING" } else { property };
    let Explored { unique_states, seconds, .. } = found;
    println!("{:<24} {unique_states:>11} {depth:>6} {seconds:>8.1}  {verdict}", format!("{deviation:?}"));
    !found.broken.is_empty()
}
