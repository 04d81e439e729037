package iptables

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

// Family is an IP family by its version number.
type Family uint8

// The families.
const (
	IPv4 Family = 4
	IPv6 Family = 6
)

// program returns the prefix of the names of the family's programs.
func (f Family) program() string {
	if f == IPv6 {
		return "ip6tables"
	}
	return "iptables"
}

// Backend is the kernel interface that the programs write to.
type Backend string

// The backends.
const (
	Legacy Backend = "legacy" // x_tables: each write replaces a whole table
	NFT    Backend = "nft"    // nf_tables
)

// Kernel is the interface between a data plane and iptables.
type Kernel interface {
	// Backend returns the backend of the programs.
	Backend() Backend
	// Restore passes input to iptables-restore --noflush: chains that input does not
	// mention stay unchanged. Each table is written in one transaction, in the order of the input.
	// Restore returns the stamp of the resulting state, provided that no other program wrote concurrently.
	// It returns that stamp also with a *RestoreError: the tables before the rejected one are written then.
	// Errors: ErrMoved (nothing was written), *LockError (nothing was written),
	// *RestoreError, ErrNoProgram, else failures to run the program.
	Restore(ctx context.Context, r Restore) (Stamp, error)
	// Save streams the lines of one table, as iptables-save prints them. A table
	// that does not exist has no lines. The slice is valid until emit returns.
	// Errors: ErrNoProgram, else failures to run the program.
	Save(ctx context.Context, f Family, table string, emit func(line []byte) error) error
	// SaveAll is Save for several tables, whose lines are streamed table by table in any order. With nf_tables each run of the
	// program reads all tables of the family, whichever table it prints, so SaveAll runs it once.
	SaveAll(ctx context.Context, f Family, tables []string, emit func(table string, line []byte) error) error
	// Read emits a subset of the lines of SaveAll for one table without running a program, in the format of package xt: the owned
	// chains, their rules, and those rules of built-in chains that jump to an owned chain. A table that does not exist has no
	// lines. ErrUnreadable: the table holds something that Read cannot parse; the caller must discard the emitted lines and call
	// SaveAll. Any goroutine may call Read, concurrently with every other method.
	Read(ctx context.Context, r Reading, emit func(line []byte) error) error
	// List returns the rules of one chain, as iptables -S prints them; nil for a
	// missing chain.
	List(ctx context.Context, f Family, table, chain string) ([]string, error)
	// Stamp returns an identifier of the present state. It takes microseconds.
	Stamp(ctx context.Context) (Stamp, error)
	// Watch reads the stamp each watchPeriod and calls seen with it, until ctx
	// ends. It calls seen also if the stamp is unchanged: between two reads rules may
	// have been repaired and damaged again.
	Watch(ctx context.Context, seen func(Stamp)) error
}

// Reading is the request of a Read.
type Reading struct {
	Family Family
	Table  string
	Ours   func(chain string) bool // reports whether a chain is owned, so that its rules are requested
	// Began, unless it is nil, is called before the first line is emitted, with the Mark that a
	// later Reading may pass as Since. Not every Kernel calls it.
	Began func(Mark)
	// Since makes Read skip an owned chain if the chain is unchanged since the Reading whose
	// Began received this Mark, and if Same, called with the chain's name, returns true:
	// the caller then relies on the lines that the earlier Reading emitted.
	Since Mark
	Same  func(chain string) bool
}

// Restore is one run of iptables-restore.
type Restore struct {
	Family  Family
	Input   []byte
	Commits int   // COMMIT lines in Input
	Expect  Stamp // write only if this is the present stamp; the zero Stamp: write unconditionally
}

// Stamp identifies one state of the namespace's rules. With nf_tables it
// is the generation, which each write increments. With x_tables it is the size of each
// table, and the number and offsets of its rules. That detects each rule added or removed,
// but not a rule replaced by another of the same size, which the audit detects.
type Stamp struct {
	Generation uint32
	Tables     [5]TableStamp // nat, filter and mangle of IPv4, then nat and filter of IPv6
}

// Precedes reports whether one commit to nf_tables turns this generation into the given one.
func (s Stamp) Precedes(generation uint32) bool {
	return s.Generation != 0 && nextGeneration(s.Generation, 1) == generation
}

// TableStamp is what x_tables reports of a table without copying it.
type TableStamp struct{ Entries, Size, Places uint32 }

// Entries returns the number of rules in all tables, with x_tables only.
func (s Stamp) Entries() int {
	n := 0
	for _, t := range s.Tables {
		n += int(t.Entries)
	}
	return n
}

// ErrMoved: another program wrote since the expected stamp; nothing was written.
var ErrMoved = errors.New("another program changed the iptables rules since the last read")

// ErrUnreadable: only the programs can print one of the rules, or the kernel denies the read.
var ErrUnreadable = errors.New("rules that only the programs can read")

// LockError: another program holds the xtables lock for longer than lockWait.
type LockError struct {
	File   string
	Holder string // "iptables-restore (pid 12)"; "" if unknown
}

// Error implements error.
func (e *LockError) Error() string {
	by := "another program"
	if e.Holder != "" {
		by = e.Holder
	}
	return fmt.Sprintf("%s holds the xtables lock %s: waited %s", by, e.File, lockWait)
}

// RestoreError: iptables-restore rejected its input.
type RestoreError struct {
	Program string
	Lines   []int  // line numbers in the program's message, from 1; empty if it names none
	Message string // the program's message, on one line
	Code    int    // exit code
	// Commit: the only line named is a COMMIT: the kernel rejected some line of
	// the table, and x_tables does not report which.
	Commit bool
	Text   string // the first line named
	// Committed counts the COMMITs before the line named: those tables are written.
	Committed int
}

// Error implements error.
func (e *RestoreError) Error() string {
	if e.Text != "" && !e.Commit {
		return fmt.Sprintf("%s: %s; line %d: %s", e.Program, e.Message, e.Lines[0], e.Text)
	}
	return fmt.Sprintf("%s: %s", e.Program, e.Message)
}

// Busy reports whether the failure is transient, so that a retry may succeed.
func (e *RestoreError) Busy() bool {
	for _, s := range [...]string{"temporarily unavailable", "annot allocate memory", "resource problem", "Interrupted", "No buffer space"} {
		if strings.Contains(e.Message, s) {
			return true
		}
	}
	return false
}

// Denied reports whether the process lacks the privilege, or the kernel lacks the interface.
func (e *RestoreError) Denied() bool {
	for _, s := range [...]string{"Permission denied", "must be root", "do you need to insmod", "Table does not exist"} {
		if strings.Contains(e.Message, s) {
			return true
		}
	}
	return false
}
