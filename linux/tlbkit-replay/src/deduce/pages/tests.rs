//! What is known of one space after faults, calls and forks.

use super::*;

#[test]
fn the_second_writer_after_a_fork_keeps_the_frame() {
    let (mut frames, mut parent) = (Frames::default(), Pages::default());
    parent.first_store(&mut frames, 7);
    let mut child = parent.fork(&mut frames);
    assert!(parent.store(&mut frames, 7), "the first writer copies");
    assert!(!child.store(&mut frames, 7), "the second is alone with it");
}

#[test]
fn a_read_of_a_file_maps_what_is_around_it_but_not_beyond_the_mapping() {
    let mut pages = Pages::default();
    pages.map(30..40, Backing::File);
    pages.first_load(33);
    assert_eq!(pages.span(&(0..100)), Some(32..40));
    pages.map(505..530, Backing::File);
    pages.first_load(506);
    assert_eq!(pages.span(&(500..600)), Some(505..512), "from the mapping's begin, to the end of the table");
    pages.map(1029..1060, Backing::File);
    pages.first_load(1030);
    assert_eq!(pages.span(&(1024..1100)), Some(1029..1045));
    pages.map(100..200, Backing::Private);
    pages.first_load(150);
    assert_eq!(pages.span(&(100..200)), Some(150..151));
}

#[test]
fn forbidding_stores_changes_what_was_stored_to() {
    let (mut frames, mut pages) = (Frames::default(), Pages::default());
    pages.map(32..40, Backing::File);
    pages.first_load(33);
    assert_eq!(pages.span_of_stores(&frames, &(32..40)), None);
    pages.store(&mut frames, 35);
    assert_eq!(pages.span_of_stores(&frames, &(32..40)), Some(35..36));
    let child = pages.fork(&mut frames);
    assert_eq!(child.span_of_stores(&frames, &(32..40)), None, "a fork has forbidden them already");
}

#[test]
fn unmapping_the_middle_leaves_two_mappings() {
    let (mut frames, mut pages) = (Frames::default(), Pages::default());
    pages.map(0..100, Backing::File);
    assert!(!pages.unmap(&mut frames, &(40..60)));
    assert_eq!((pages.mapping(39), pages.mapping(50)), (Some((0..40, Backing::File)), None));
    assert_eq!(pages.mapping(60), Some((60..100, Backing::File)));
}

#[test]
fn a_table_goes_with_the_last_mapping_under_it() {
    let (mut frames, mut pages) = (Frames::default(), Pages::default());
    pages.map(512..520, Backing::Private);
    pages.map(600..610, Backing::Private);
    pages.first_store(&mut frames, 513);
    pages.first_store(&mut frames, 600);
    assert!(!pages.unmap(&mut frames, &(512..520)));
    assert!(pages.unmap(&mut frames, &(600..610)));
}

#[test]
fn what_is_moved_to_takes_the_place_of_what_was_there() {
    let (mut frames, mut parent) = (Frames::default(), Pages::default());
    parent.first_store(&mut frames, 3);
    parent.first_store(&mut frames, 70);
    let mut child = parent.fork(&mut frames);
    parent.rename(&mut frames, &(0..10), 67);
    assert!(!child.store(&mut frames, 70), "the parent has given up its reference");
    assert!(child.store(&mut frames, 3), "and has kept this one");
    parent.rename(&mut frames, &(66..76), 60);
    assert_eq!(parent.present(&(0..100)), [64]);
}

#[test]
fn shared_memory_is_flushed_table_by_table_however_far_apart_its_pages_are() {
    const END: u64 = 1 << 35;
    let (mut frames, mut pages) = (Frames::default(), Pages::default());
    pages.map(0..END, Backing::Shared);
    [3, 5, 511, 512, END - 1].into_iter().for_each(|page| pages.first_store(&mut frames, page));
    assert_eq!(pages.zapped(&(4..END)), [5..512, 512..513, END - 1..END]);
}
