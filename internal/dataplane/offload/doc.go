// Package offload is the acceleration of KEP-4963: connections to Services that have
// had more than so many packets go on past all rules, by a flowtable of the kernel.
//
// It is a data plane beside another one. [New] makes one driver of both: the other
// serves the Services, and the objects of this package (kinds from 128 on, in a table
// of their own) hang on the same diff. What goes wrong here is never an error of the
// whole: the Services are served without it, and Status says why. Its methods belong
// to the engine's goroutine, but for Watch and Status.
package offload
