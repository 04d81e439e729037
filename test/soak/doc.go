// Command soak runs the real agent in a lab for minutes: 2000 Services, 200 random changes a second through the manifests folder, and
// real requests all the time. It ends with a table and fails unless
//
//   - every request to a Service that had a ready backend all along was answered, and none by an endpoint that had long been removed;
//   - memory was as large at the end as near the start;
//   - the actual state of the kernel equals what a second agent, started on the same manifests in a fresh lab, writes there from scratch;
//   - a restart writes nothing.
//
// The "steady" Services are those that get requests. They change as often as all others, but keep one endpoint, the anchor, and the
// address that the requests use.
// `make soak` runs it; SOAK=60s makes it short.
package main
