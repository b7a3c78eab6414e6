// The two halves of the test.

#pragma once

// Right use, under every preset; use.c.
void use_everything(void);
// Wrong use, and the answer to each; misuse.c.
void misuse_everything(void);
