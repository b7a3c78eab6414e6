//! Protocol.
#![no_std]
