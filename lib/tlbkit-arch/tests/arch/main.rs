//! The manuals' facts: arithmetic of addresses and entries, and what each instruction drops.

mod facts;
mod table;
