package iptables

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fairlead/fairlead/internal/kernel/iptables/nftsave"
	"github.com/fairlead/fairlead/internal/kernel/netlink"
)

// restoreLimit bounds one run of iptables-restore. The end of the agent does not
// cut a run short: the kernel would be left with one table updated and another stale.
const restoreLimit = 2 * time.Minute

// Config configures a Conn.
type Config struct {
	Backend  Backend
	Programs Programs // as Detect found them
	// LockFile is the lock that programs of the legacy backend share; "" means
	// XTABLES_LOCKFILE, or /run/xtables.lock.
	LockFile string
	// Namespace is a descriptor of the network namespace to work in; 0 means the
	// process's.
	Namespace int
}

// Conn is the Kernel that talks to the real kernel.
type Conn struct {
	cfg       Config
	lock      lock
	stamps    stamper
	reader    tableReader
	contended atomic.Uint64
	apart     atomic.Bool // the program fails unless it is run with -t TABLE
	nft       *nftables   // nil for the other backend
	turn      sync.Locker // held by a Restore, which takes precedence over reads
}

var _ Kernel = (*Conn)(nil)

// Open returns a Conn in the network namespace of cfg.
func Open(cfg Config) (*Conn, error) { return open(cfg, nftsave.Config{NetNS: cfg.Namespace}) }

func open(cfg Config, reader nftsave.Config) (*Conn, error) {
	c := &Conn{cfg: cfg}
	err := c.inside(func() (err error) {
		if cfg.Backend == NFT {
			n, err := openNFTables(reader)
			if err == nil {
				c.stamps, c.reader, c.turn, c.nft = n, n, &n.turn, n
			}
			return err
		}
		x, err := openXtables()
		if err == nil {
			c.stamps, c.reader, c.turn = x, x, &x.turn
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	if cfg.Backend == Legacy {
		if c.lock, err = openLock(cfg.LockFile); err != nil {
			return nil, errors.Join(err, c.stamps.Close())
		}
	}
	return c, nil
}

// Close releases the sockets.
func (c *Conn) Close() error { return errors.Join(c.stamps.Close(), c.lock.close()) }

// Backend implements Kernel.
func (c *Conn) Backend() Backend { return c.cfg.Backend }

// Contended returns the number of Restores that found the xtables lock held by another program.
func (c *Conn) Contended() uint64 { return c.contended.Load() }

// Stamp implements Kernel.
func (c *Conn) Stamp(context.Context) (Stamp, error) { return c.stamps.stamp() }

// Restore implements Kernel. Restore holds the lock from the check of the stamp to the
// end of the run, so that no program that honours the lock can write in between.
func (c *Conn) Restore(ctx context.Context, r Restore) (Stamp, error) {
	if c.cfg.Backend == Legacy {
		waited, err := c.lock.take(ctx)
		if waited {
			c.contended.Add(1)
		}
		if err != nil {
			return Stamp{}, err
		}
		defer c.lock.release()
	}
	c.turn.Lock()
	defer c.turn.Unlock()
	before, err := c.stamps.stamp()
	if err != nil {
		return Stamp{}, err
	}
	if r.Expect != (Stamp{}) && before != r.Expect {
		return Stamp{}, ErrMoved
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), restoreLimit)
	defer cancel()
	if c.nft != nil {
		defer c.nft.aside(ctx)()
	}
	err = c.run(ctx, r)
	done := r.Commits
	if refused := (*RestoreError)(nil); errors.As(err, &refused) {
		done = refused.Committed
	} else if err != nil {
		if c.nft != nil {
			c.nft.ledger.wrote(&r, before.Generation, 0)
		}
		return Stamp{}, err
	}
	if c.nft != nil { // each COMMIT is one transaction
		after := nextGeneration(before.Generation, done)
		c.nft.ledger.wrote(&r, before.Generation, after)
		return c.nft.ended(before, after), err
	}
	after, stampErr := c.stamps.stamp() // the lock is still held: no other program wrote in between
	return after, errors.Join(err, stampErr)
}

// waitDelay bounds the wait for the output of a killed program: a child process of that
// program (iptables starts modprobe) may hold the pipe open.
const waitDelay = time.Second

func (c *Conn) run(ctx context.Context, r Restore) error {
	name := c.cfg.Programs.of(r.Family, "restore")
	cmd := exec.CommandContext(ctx, name, "--noflush")
	cmd.WaitDelay = waitDelay
	cmd.Stdin = bytes.NewReader(r.Input)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if c.cfg.Backend == Legacy {
		cmd.Env = c.lock.childEnv()
		cmd.ExtraFiles = c.lock.childFiles()
	}
	err := c.inside(cmd.Run)
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return explain(name, exit.ExitCode(), out.String(), r.Input)
	}
	if errors.Is(err, exec.ErrNotFound) {
		return fmt.Errorf("%w: %w", ErrNoProgram, err)
	}
	if err != nil {
		return fmt.Errorf("run %s: %w", name, err)
	}
	return nil
}

// inside runs f in the Conn's namespace.
func (c *Conn) inside(f func() error) error { return netlink.Inside(c.cfg.Namespace, f) }

// Save implements Kernel.
func (c *Conn) Save(ctx context.Context, f Family, table string, emit func([]byte) error) error {
	return c.save(ctx, f, []string{"-t", table}, emit)
}

// SaveAll implements Kernel. A table of another program that iptables-save cannot print may make the run for all tables fail:
// after such a failure SaveAll runs the program once per table.
func (c *Conn) SaveAll(ctx context.Context, f Family, tables []string, emit func(table string, line []byte) error) error {
	if c.cfg.Backend == Legacy || c.apart.Load() {
		return saveEach(tables, emit, func(t string, line func([]byte) error) error { return c.Save(ctx, f, t, line) })
	}
	table := ""
	err := c.save(ctx, f, nil, func(line []byte) error {
		if name, begins := bytes.CutPrefix(line, []byte("*")); begins {
			table = string(name)
		}
		if !slices.Contains(tables, table) {
			return nil
		}
		return emit(table, line)
	})
	if errors.As(err, new(*exec.ExitError)) && ctx.Err() == nil {
		c.apart.Store(true)
	}
	return err
}

// saveEach saves the tables one by one.
func saveEach(tables []string, emit func(table string, line []byte) error, save func(table string, emit func([]byte) error) error) error {
	for _, t := range tables {
		if err := save(t, func(line []byte) error { return emit(t, line) }); err != nil {
			return err
		}
	}
	return nil
}

// Read implements Kernel.
func (c *Conn) Read(ctx context.Context, r Reading, emit func([]byte) error) error {
	return c.reader.read(ctx, r, emit)
}

// Counted is Save with the packet and byte counters of each rule, as "[1:60] " in front of its line. It may be called concurrently
// with a Kernel's methods.
func (c *Conn) Counted(ctx context.Context, f Family, table string, emit func([]byte) error) error {
	return c.save(ctx, f, []string{"-c", "-t", table}, emit)
}

func (c *Conn) save(ctx context.Context, f Family, args []string, emit func([]byte) error) error {
	name := c.cfg.Programs.of(f, "save")
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.WaitDelay = waitDelay
	var problem bytes.Buffer
	cmd.Stderr = &problem
	err := c.inside(func() error {
		out, err := cmd.StdoutPipe()
		if err != nil {
			return err
		}
		if err := cmd.Start(); err != nil {
			return err
		}
		seen := eachLine(out, emit)
		if seen != nil {
			_ = cmd.Process.Kill() // the process may be blocked on a full pipe
		}
		if err := cmd.Wait(); seen == nil && err != nil {
			return err
		}
		return seen
	})
	if errors.Is(err, exec.ErrNotFound) {
		return fmt.Errorf("%w: %w", ErrNoProgram, err)
	}
	if err != nil {
		if noTable(problem.String()) {
			return nil
		}
		return fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, oneLine(problem.String()))
	}
	return nil
}

func eachLine(r io.Reader, emit func([]byte) error) error {
	s := bufio.NewScanner(r)
	s.Buffer(make([]byte, 64<<10), 1<<20)
	for s.Scan() {
		if err := emit(s.Bytes()); err != nil {
			return err
		}
	}
	return s.Err()
}

// List implements Kernel.
func (c *Conn) List(ctx context.Context, f Family, table, chain string) ([]string, error) {
	name := c.cfg.Programs.of(f, "")
	cmd := exec.CommandContext(ctx, name, "-t", table, "-S", chain)
	cmd.WaitDelay = waitDelay
	var out, problem bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &problem
	if c.cfg.Backend == Legacy { // reading needs no lock, but iptables takes it
		cmd.Env, cmd.ExtraFiles = c.lock.childEnv(), c.lock.childFiles()
	}
	if err := c.inside(cmd.Run); err != nil {
		s := problem.String()
		if strings.Contains(s, "is incompatible") { // also printed for a missing chain
			there, err := c.declares(ctx, f, table, chain)
			if err != nil || !there {
				return nil, err
			}
		}
		if noTable(s) || strings.Contains(s, "No chain/target/match by that name") || strings.Contains(s, "does not exist") {
			return nil, nil
		}
		return nil, fmt.Errorf("%s -t %s -S %s: %w: %s", name, table, chain, err, oneLine(problem.String()))
	}
	rules := []string{}
	for l := range strings.Lines(out.String()) {
		if l = strings.TrimSuffix(l, "\n"); strings.HasPrefix(l, "-A ") {
			rules = append(rules, l)
		}
	}
	return rules, nil
}

// declares reports whether a table has a chain.
func (c *Conn) declares(ctx context.Context, f Family, table, chain string) (bool, error) {
	there := false
	err := c.Save(ctx, f, table, func(line []byte) error {
		there = there || bytes.HasPrefix(line, []byte(":"+chain+" "))
		return nil
	})
	return there, err
}

// noTable reports whether the output means that the kernel has no such table: legacy programs fail then.
func noTable(s string) bool {
	return strings.Contains(s, "Table does not exist") || strings.Contains(s, "can't initialize") && !strings.Contains(s, "Permission denied")
}

func itoa(n int) string { return strconv.Itoa(n) }

func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

func environ(extra string) []string { return append(os.Environ(), extra) }
