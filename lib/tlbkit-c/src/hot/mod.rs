//! The functions of the kernel's that are hot, and how they are reached: by the table, which any archive takes; by
//! names (`linked`); or as instructions in their places, all of them (`x86` as well) or those of the interrupt flag
//! (`flags`).

#[cfg(all(feature = "linked", any(feature = "x86", feature = "flags")))]
mod flags;
#[cfg(all(feature = "linked", feature = "x86"))]
mod inlined;
#[cfg(feature = "linked")]
mod ipi;
#[cfg(all(feature = "linked", not(feature = "x86")))]
mod named;
#[cfg(not(feature = "linked"))]
mod table;

#[cfg(all(feature = "linked", feature = "x86"))]
pub(crate) use inlined::Hot;
#[cfg(all(feature = "linked", not(feature = "x86")))]
pub(crate) use named::Hot;
#[cfg(not(feature = "linked"))]
pub(crate) use table::Hot;
