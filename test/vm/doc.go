// Package vm runs a program under another kernel: one of Debian's stock kernels in
// QEMU's emulator. It is for features that this machine's kernel does not have
// (flowtables, IPVS), and for the behaviour of older kernels (how one handles
// Fairlead's rules).
//
// The guest's root file system is this machine's, read-only, over 9p; the repository
// has its own path there. So binaries, Debian's nft and iptables and the test's files
// need no copy. Files written elsewhere are in memory, and are lost when the guest
// ends.
//
// An emulated machine is ten to forty times slower than this one. Guest and host are
// measured with the same work, and the factor is passed to the program in
// FAIRLEAD_PATIENCE, by which package patience multiplies limits. A Steady machine is
// slow only as seen from the host: its clock counts instructions.
package vm
