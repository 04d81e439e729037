// Package offload is the acceleration of KEP-4963: connections to Services with more
// packets than a threshold bypass all rules through a flowtable of the kernel.
//
// It wraps another data plane. [New] returns one driver for both: the wrapped driver
// serves the Services, and the objects of this package (kinds from 128 on, in tables
// of their own) are part of the same diff. A failure here is never an error of the
// whole driver: the Services are served without acceleration, and Status returns why.
// Only the engine's goroutine may call the methods, except Watch, Status, Compare, Survey and Recall.
package offload
