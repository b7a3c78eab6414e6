// Takes 64 MiB, touches them and gives them back, thirty times.
package main

import "runtime/debug"

var kept [][]byte

func main() {
	for round := 0; round < 30; round++ {
		kept = nil
		for n := 0; n < 64; n++ {
			block := make([]byte, 1<<20)
			for at := 0; at < len(block); at += 4096 {
				block[at] = 1
			}
			kept = append(kept, block)
		}
		kept = nil
		debug.FreeOSMemory()
	}
}
