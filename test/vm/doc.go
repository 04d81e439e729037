// Package vm runs a program under another kernel: one of Debian's stock kernels in
// QEMU's emulator, for what this machine's kernel cannot do (flowtables, IPVS) or
// does not show (how an older kernel takes our rules).
//
// The guest's root file system is this machine's, read-only, over 9p; the
// repository is there under its own path. So binaries, Debian's nft and iptables and
// the test's files need no copy. What is written elsewhere is in memory, and gone
// with the guest.
//
// An emulated machine is ten to forty times slower than this one. Guest and host are
// measured with the same work, and the factor is handed to the program in
// FAIRLEAD_PATIENCE, which package patience multiplies limits by. A Steady machine is
// slow for those outside only: its clock counts instructions.
package vm
