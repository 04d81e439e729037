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

// program is the first part of the names of the family's programs.
func (f Family) program() string {
	if f == IPv6 {
		return "ip6tables"
	}
	return "iptables"
}

// Backend is which kernel interface the programs write to.
type Backend string

// The backends.
const (
	Legacy Backend = "legacy" // x_tables: each write replaces a whole table
	NFT    Backend = "nft"    // nf_tables
)

// Kernel is what a data plane may ask of iptables.
type Kernel interface {
	// Backend reports which programs these are.
	Backend() Backend
	// Restore feeds input to iptables-restore --noflush: what is not mentioned
	// stays. Each table is written in one transaction, in the order of the input.
	// It returns the stamp that stands after it, if nobody else wrote meanwhile,
	// also with a *RestoreError: tables before the refused one are written then.
	// Errors: ErrMoved (nothing was written), *LockError (nothing was written),
	// *RestoreError, ErrNoProgram, else failures to run the program.
	Restore(ctx context.Context, r Restore) (Stamp, error)
	// Save streams the lines of one table, as iptables-save prints them. A table
	// that does not exist has no lines. The slice is valid until emit returns.
	// Errors: ErrNoProgram, else failures to run the program.
	Save(ctx context.Context, f Family, table string, emit func(line []byte) error) error
	// SaveAll is Save for several tables, whose lines come together, table by table in any order. With nf_tables the program
	// reads all tables of the family in each run, whichever it is to print, so it is run once.
	SaveAll(ctx context.Context, f Family, tables []string, emit func(table string, line []byte) error) error
	// Read returns what SaveAll gives of one table without running a program, in the words of package xt: the chains that are
	// ours, their rules, and those rules of built-in chains that lead to one of them. A table that does not exist has no
	// lines. ErrUnreadable: something there is not known; what was emitted is to be forgotten, and SaveAll to be asked. It may
	// be called by any goroutine, beside all else.
	Read(ctx context.Context, r Reading, emit func(line []byte) error) error
	// List returns the rules of one chain, as iptables -S prints them; of a missing
	// chain nil.
	List(ctx context.Context, f Family, table, chain string) ([]string, error)
	// Stamp distinguishes the present state from others, in microseconds.
	Stamp(ctx context.Context) (Stamp, error)
	// Watch looks at the stamp each watchPeriod and calls seen with it, until ctx
	// ends. A stamp that was seen before is told too: between two looks rules may
	// have been repaired and damaged again.
	Watch(ctx context.Context, seen func(Stamp)) error
}

// Reading is what a Read is about.
type Reading struct {
	Family Family
	Table  string
	Ours   func(chain string) bool // tells which chains' rules are wanted
	// Began, unless it is nil, is told before anything is emitted what a later Reading may
	// have as Since. Not every Kernel knows that.
	Began func(Mark)
	// Since makes Read leave out what a Reading that Began then has emitted of a chain of
	// ours, if that has not changed since and Same, which is told its name, says that it
	// will do.
	Since Mark
	Same  func(chain string) bool
}

// Restore is one run of iptables-restore.
type Restore struct {
	Family  Family
	Input   []byte
	Commits int   // COMMIT lines in Input
	Expect  Stamp // write only if this is the present one; the zero Stamp: whatever it is
}

// Stamp distinguishes one state of the namespace's rules from another. With nf_tables it
// is the generation, which any write moves. With x_tables it is the size of each
// table, number and place of its rules: exact for rules added or taken away,
// blind for a rule replaced by another of the same size, which the audit finds.
type Stamp struct {
	Generation uint32
	Tables     [5]TableStamp // nat, filter and mangle of IPv4, then nat and filter of IPv6
}

// Precedes reports whether one commit to nf_tables makes the given generation of this one.
func (s Stamp) Precedes(generation uint32) bool {
	return s.Generation != 0 && nextGeneration(s.Generation, 1) == generation
}

// TableStamp is what x_tables tells of a table without copying it.
type TableStamp struct{ Entries, Size, Places uint32 }

// Entries is the number of rules in all tables, with x_tables only.
func (s Stamp) Entries() int {
	n := 0
	for _, t := range s.Tables {
		n += int(t.Entries)
	}
	return n
}

// ErrMoved: somebody wrote since the stamp that was expected; nothing was done.
var ErrMoved = errors.New("iptables rules changed since we last looked")

// ErrUnreadable: a rule is of a kind that only the programs can print, or the kernel does not let us read.
var ErrUnreadable = errors.New("rules that only the programs can read")

// LockError: another program holds the xtables lock for longer than we wait.
type LockError struct {
	File   string
	Holder string // "iptables-restore (pid 12)"; "" if it cannot be found out
}

// Error implements error.
func (e *LockError) Error() string {
	by := "another program"
	if e.Holder != "" {
		by = e.Holder
	}
	return fmt.Sprintf("%s holds the xtables lock %s: waited %s", by, e.File, lockWait)
}

// RestoreError: iptables-restore refused its input.
type RestoreError struct {
	Program string
	Lines   []int  // numbers of the lines it names, from 1; empty if it names none
	Message string // what it said, on one line
	Code    int    // exit code
	// Commit: the only line named is a COMMIT: the kernel refused some line of
	// the table, and x_tables does not tell which.
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

// Busy reports whether the failure may pass by itself.
func (e *RestoreError) Busy() bool {
	for _, s := range [...]string{"temporarily unavailable", "annot allocate memory", "resource problem", "Interrupted", "No buffer space"} {
		if strings.Contains(e.Message, s) {
			return true
		}
	}
	return false
}

// Denied reports whether we lack the privilege, or the kernel the interface.
func (e *RestoreError) Denied() bool {
	for _, s := range [...]string{"Permission denied", "must be root", "do you need to insmod", "Table does not exist"} {
		if strings.Contains(e.Message, s) {
			return true
		}
	}
	return false
}
