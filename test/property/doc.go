// Package property contains the tests of "one diff": after any sequence of events
// (changes in any order, restarts, commits that fail or whose answer is lost, foreign
// edits) the actual state of the kernel is exactly what an agent writes that starts from
// scratch with the same inputs. The tests run the real engine and driver on the model of
// the kernel, in virtual time, and on the real kernel in its own namespace. They also
// check, in every mode, that the output of `fairlead trace` for packets in such worlds
// matches what the kernel does with the packets.
package property
