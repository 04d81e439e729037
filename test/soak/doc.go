// Command soak runs the real agent in a lab for minutes: 2000 Services, 200 random changes a second through the manifests folder, real
// requests all the while. It ends with a table and fails unless
//
//   - every request to a Service that had a ready backend all along was answered, and none by an endpoint that had long been removed;
//   - memory was as large at the end as near the start;
//   - the kernel holds what a second agent, started on the same manifests in a fresh lab, writes there from scratch;
//   - a restart writes nothing.
//
// The asked Services ("steady" ones) change as wildly as all others, but keep one endpoint, the anchor, and the way they are asked.
// `make soak` runs it; SOAK=60s makes it short.
package main
