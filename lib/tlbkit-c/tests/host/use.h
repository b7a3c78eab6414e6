// The parts of the test.

#pragma once

// Right use, under every preset; use.c.
void use_everything(void);
// Wrong use, and the answer to each; misuse.c.
void misuse_everything(void);
// Calls in another CPU's name, and CPUs that do not answer; misplaced.c.
void misplace_everything(void);
// Flushes with flags, and on one CPU alone; flush.c.
void flush_everything(void);
// What tracepoints are told, which only an archive with events does; events.c.
void tell_everything(void);
// CPUs that get no interrupt, which only an archive for guests, isolated CPUs or broadcasts has; spare.c.
void spare_everything(void);
