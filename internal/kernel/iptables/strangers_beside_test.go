package iptables

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/fairlead/fairlead/internal/kernel/netlink"
)

// beside runs another program's change right before and after each iptables-restore of the Conn.
func (w *crowd) beside(before, after string) {
	w.Helper()
	dir := w.TempDir()
	script := "#!/bin/sh -e\n" + before + "\niptables-nft-restore \"$@\"\n" + after + "\n"
	if err := os.WriteFile(filepath.Join(dir, "iptables-beside-restore"), []byte(script), 0o700); err != nil { //nolint:gosec // it is to be run
		w.Fatal(err)
	}
	w.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	w.c.cfg.Programs.Suffix = "-beside"
}

// TestStrangerBesideRestore: the Conn does not listen during its own write, so a concurrent write of another program
// causes a complete read, whatever it changes; the Conn's own write alone does not.
func TestStrangerBesideRestore(t *testing.T) {
	const his = "iptables-nft -t nat -A OURS-3 -j ACCEPT"
	for name, c := range map[string]struct {
		before, after string
		all           bool
	}{
		"nobody":                 {"", "", false},
		"before":                 {his, "", true},
		"after":                  {"", his, true},
		"on both sides":          {his, "iptables-nft -t nat -D OURS-3 2", true},
		"somewhere else":         {"", "nft add table ip his", true},
		"many, for all to count": {"for i in 1 2 3 4 5 6 7 8 9; do " + his + "; done", "", true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newCrowd(t)
			w.beside(c.before, c.after)
			w.restore("*nat", ":OURS-20 - [0:0]", "-A OURS-20 -j ACCEPT", "COMMIT")
			want := []string{"OURS-20"}
			read := w.warm()
			if c.all {
				want = w.ours()
			}
			if !slices.Equal(read, want) {
				t.Errorf("%q were read, not %q", read, want)
			}
			w.isTrue(name)
			w.sh(his) // he is heard again
			if read := w.warm(); !slices.Equal(read, []string{"OURS-3"}) {
				t.Errorf("%q were read afterwards", read)
			}
		})
	}
}

// TestStrangersAroundRestore: the Conn hears writes before and after a Restore, and does not listen during it.
func TestStrangersAroundRestore(t *testing.T) {
	w := newCrowd(t)
	const members = `awk '$2 == 12 && $4 != "00000000"' /proc/net/netlink > ` // sockets of netfilter's in a group
	dir := t.TempDir()
	listens := func(file string) bool {
		text, err := os.ReadFile(filepath.Join(dir, file))
		if err != nil {
			t.Fatal(err)
		}
		return len(text) > 0
	}
	w.beside(members+dir+"/beside", "")
	w.sh(members + dir + "/before")
	for n := range 3 { // more than once in a row: it is heard each time
		w.sh("$IPT -t nat -A OURS-3 -j RETURN; nft add table ip his")
		w.restore("*nat", fmt.Sprintf("-A OURS-4 -s 10.0.0.%d -j ACCEPT", n), "COMMIT")
		w.sh("$IPT -t nat -A OURS-5 -j RETURN; nft delete table ip his")
		if n == 1 {
			w.sh(members + dir + "/behind")
		}
	}
	if read := w.warm(); !slices.Equal(read, []string{"OURS-3", "OURS-4", "OURS-5"}) {
		t.Errorf("%q were read", read)
	}
	w.isTrue("around")
	if !listens("before") || listens("beside") || !listens("behind") {
		t.Errorf("listening before a Restore: %t, beside: %t, behind: %t", listens("before"), listens("beside"), listens("behind"))
	}
}

// TestStrangerInPlaceOfOurs: a COMMIT of the Conn that changes nothing makes no generation. Another program's commit is not taken for it.
func TestStrangerInPlaceOfOurs(t *testing.T) {
	w := newCrowd(t)
	w.restore("*nat", ":OURS-EMPTY - [0:0]", "COMMIT")
	w.warm()
	said := w.restore("*nat", ":OURS-EMPTY - [0:0]", "COMMIT")
	if now, err := w.c.Stamp(t.Context()); err != nil || now != said {
		t.Errorf("the stamp is %v, %v; Restore said %v", now, err, said)
	}
	w.sh("iptables-nft -t nat -A OURS-3 -j ACCEPT")
	if now, err := w.c.Stamp(t.Context()); err != nil || now == said {
		t.Errorf("somebody has written, and the stamp is %v as before (%v)", now, err)
	}
	w.warm()
	w.isTrue("behind ours")
	w.beside("iptables-nft -t nat -A OURS-4 -j ACCEPT", "")
	w.restore("*nat", ":OURS-EMPTY - [0:0]", "COMMIT")
	w.warm()
	w.isTrue("beside ours")
}

// TestHeardAtWork: a commit that is at work when a reading begins is waited for, and makes nothing be read.
func TestHeardAtWork(t *testing.T) {
	w := newCrowd(t)
	done := make(chan error, 1)
	go func() {
		_, err := w.try(`nft add table ip his; nft add chain ip his c; for n in 1 2 3 4; do { for i in $(seq 4000); do echo "add rule ip his c ip saddr 10.1.1.1 counter return"; done; } | nft -f -; nft flush chain ip his c; done`)
		done <- err
	}()
	for n := 0; ; n++ {
		select {
		case err := <-done:
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%d readings", n)
			return
		default:
			if read := w.warm(); len(read) > 0 {
				t.Fatalf("%q were read", read)
			}
		}
	}
}

// TestTooMuchToHear: what does not fit into the buffer makes everything be read.
func TestTooMuchToHear(t *testing.T) {
	w := newCrowd(t)
	w.sh(`nft add table ip his; nft add chain ip his c; { for i in $(seq 20000); do echo "add rule ip his c ip saddr 10.1.1.1 tcp dport 80 counter return"; done; } | nft -f -; $IPT -t nat -A OURS-3 -j ACCEPT`)
	if read := w.warm(); !slices.Equal(read, w.ours()) {
		t.Errorf("only %q were read", read)
	}
	w.isTrue("after too much")
	w.sh("$IPT -t nat -D OURS-3 2")
	if read := w.warm(); !slices.Equal(read, []string{"OURS-3"}) {
		t.Errorf("%q were read afterwards", read)
	}
}

// TestHardOfHearing: whatever fails while others are heard, what they write is found.
func TestHardOfHearing(t *testing.T) {
	w := newCrowd(t)
	heard := 0
	for _, fault := range netlink.EveryFault() {
		for at := range 12 {
			for _, receives := range []bool{true, false} {
				w.sh(fmt.Sprintf("$IPT -t nat -R OURS-3 1 -s 10.0.%d.%d -j RETURN", fault, at))
				_, sent, received := w.faults.Calls()
				plan := func(from int) func(int) netlink.Fault {
					return func(call int) netlink.Fault {
						if call == from+at {
							return fault
						}
						return netlink.None
					}
				}
				if receives {
					w.faults.OnReceive = plan(received)
				} else {
					w.faults.OnSend = plan(sent)
				}
				read, err := w.tryWarm()
				w.faults.OnReceive, w.faults.OnSend = nil, nil
				if errors.Is(err, ErrUnreadable) {
					read, err = w.tryWarm()
				}
				if err != nil {
					t.Fatal(err)
				}
				if len(read) == 1 {
					heard++
				}
				w.isTrue(fmt.Sprintf("%s at call %d, receiving: %t", fault, at, receives))
			}
		}
	}
	t.Logf("in %d readings he was heard all the same", heard)
}

// TestTwoStrangers: two write all the time, and so do we. Once all are done each thing is found that they did.
func TestTwoStrangers(t *testing.T) {
	const rounds, writes = 6, 8
	w := newCrowd(t)
	for round := range rounds {
		done := make(chan error, 2)
		stranger := func(script string) {
			go func() {
				out, err := w.try(fmt.Sprintf("for i in $(seq %d); do %s; done", writes, script))
				if err != nil {
					err = fmt.Errorf("%w: %s", err, out)
				}
				done <- err
			}()
		}
		stranger(fmt.Sprintf("$IPT -w -t nat -R OURS-$((i+%d)) 1 -s 10.%d.$i.1 -j RETURN", round, round))
		stranger("$IPT -t nat -N CNI-$i; $IPT -t nat -A CNI-$i -j RETURN; $IPT -t nat -F CNI-$i; $IPT -t nat -X CNI-$i")
		for running := 2; running > 0; {
			select {
			case err := <-done:
				if err != nil {
					t.Fatal(err)
				}
				running--
			default:
				w.restore("*nat", ":OURS-30 - [0:0]", fmt.Sprintf("-A OURS-30 -s 10.0.0.%d -j RETURN", round), "COMMIT")
				w.warm()
			}
		}
		w.warm()
		w.isTrue(fmt.Sprint("round ", round))
	}
}
