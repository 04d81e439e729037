// Package property holds the test behind "one diff": whatever happens (changes
// in any order, restarts, commits that fail or whose answer is lost, foreign
// edits), the kernel ends up holding exactly what an agent that starts from
// scratch with the same inputs writes. It runs the real engine and driver on the
// model of the kernel, in virtual time, and on the real kernel in a namespace of
// its own. Besides, in every mode: what `fairlead trace` says of packets in such
// worlds is what becomes of them.
package property
