// Package spec is the DNS-based service discovery specification, version 1.1.0, as a
// table: objects, queries, and the expected records. Its test queries Fairlead and, if
// it has been built, CoreDNS. Where CoreDNS differs, the table states how and why.
package spec
