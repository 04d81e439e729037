// Package spec is the DNS-based service discovery specification, version 1.1.0,
// as a table: objects, questions, and the records that must come back. Its test
// asks Fairlead and, where it has been built, CoreDNS; where CoreDNS differs,
// the table says how and why.
package spec
