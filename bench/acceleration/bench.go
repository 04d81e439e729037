package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

type bench struct {
	fairlead, out string
	rounds        int
	scale         float64
	parts         []string
	sizes         []int
	only          *regexp.Regexp // names of variants
	lab           *lab
	agent         string // the mode and flags with which it was started
	file          *os.File
}

// result is one line of the results.
type result struct {
	Part    string  `json:"part"`
	Round   int     `json:"round"`
	Variant string  `json:"variant"`
	Mode    string  `json:"mode"`
	Kind    string  `json:"kind"`              // the kind of traffic
	Packets string  `json:"packets,omitempty"` // "mtu" or "gso"
	Bytes   int     `json:"bytes,omitempty"`   // of each connection, in the part crossover
	Awake   bool    `json:"awake,omitempty"`   // measured after a long connection, in the part thresholds
	Per     float64 `json:"ns"`                // the guest's nanoseconds for a transaction, a connection, or a megabyte
}

// measure is one measurement.
type measure struct {
	kind, server, packets string
	n, bytes              int
	per                   float64 // the divisor of the time
	awake                 bool    // after a long connection, so that the agent has added the devices to the fast path
}

func (b *bench) run() (err error) {
	if err := os.MkdirAll(filepath.Dir(b.out), 0o755); err != nil {
		return err
	}
	if b.file, err = os.Create(b.out); err != nil {
		return err
	}
	if b.lab, err = newLab(); err != nil {
		return err
	}
	defer b.lab.close()
	if err := b.copyAgent(); err != nil {
		return err
	}
	for _, part := range b.parts {
		do, known := map[string]func(int) error{"thresholds": b.thresholds, "placement": b.placement, "crossover": b.crossover}[part]
		if !known {
			return fmt.Errorf("-parts: nothing is called %q", part)
		}
		for round := range b.rounds {
			start := clock()
			if err := do(round); err != nil {
				return fmt.Errorf("%s, round %d: %w", part, round+1, err)
			}
			fmt.Printf("%s: round %d of %d, %.1f s of the guest's time\n", part, round+1, b.rounds, (clock() - start).Seconds())
		}
	}
	return b.file.Close()
}

// copyAgent copies the agent into the guest's memory: reads from the host are slow.
func (b *bench) copyAgent() error {
	content, err := os.ReadFile(b.fairlead)
	if err != nil {
		return err
	}
	b.fairlead = filepath.Join(b.lab.dir, "fairlead")
	return os.WriteFile(b.fairlead, content, 0o755)
}

func (b *bench) times(n int) int { return max(1, int(float64(n)*b.scale)) }

func (b *bench) thresholds(round int) error {
	const mega = 1e6
	bulk := func(kind, server, packets string, megabytes int) measure {
		return measure{kind: kind, server: server, packets: packets, n: b.times(megabytes) * mega, per: float64(b.times(megabytes))}
	}
	each := func(kind, server string, n int) measure {
		return measure{kind: kind, server: server, n: b.times(n), per: float64(b.times(n))}
	}
	return b.each("thresholds", round, thresholds("nftables"), []measure{
		each("crr", "echo", 800), awake(each("crr", "echo", 800)), bulk("stream", "sink", "gso", 30), bulk("stream", "sink", "mtu", 12),
		each("rr", "echo", 2000), each("udprr", "udpecho", 2000), bulk("udpstream", "udpsink", "", 8),
	})
}

func awake(m measure) measure {
	m.awake = true
	return m
}

// wake makes a connection of more packets than any threshold, and waits until the agent has added the devices to
// the fast path.
func (b *bench) wake(v *variant) error {
	if len(v.flags) == 0 {
		return nil
	}
	for range 1000 {
		m := measure{kind: "rr", server: "echo", n: 100}
		if _, err := b.drive(&m); err != nil {
			return err
		}
		if text, err := sh(in("node", "nft", "list", "flowtables", "ip")...); err == nil && strings.Contains(text, "devices") {
			return nil
		}
		time.Sleep(100 * time.Millisecond)
	}
	return errors.New("the agent gives the fast path no devices")
}

func (b *bench) placement(round int) error {
	n := b.times(1500)
	return b.each("placement", round, placements(), []measure{{kind: "crr", server: "echo", n: n, per: float64(n)}})
}

func (b *bench) crossover(round int) error {
	var list []measure
	for _, packets := range []string{"gso", "mtu"} {
		for _, bytes := range b.sizes {
			n := max(10, b.times(4_000_000)/(bytes+20_000))
			list = append(list, measure{kind: "fetch", server: "source", packets: packets, n: n, bytes: bytes, per: float64(n), awake: len(list) == 0})
		}
	}
	all := thresholds("nftables")
	return b.each("crossover", round, []variant{all[0], all[1], all[3], all[5]}, list) // off, 0, 4, 20
}

// each takes the measurements with each variant; the order of the variants changes from round to round.
func (b *bench) each(part string, round int, all []variant, list []measure) error {
	for _, at := range rand.New(rand.NewPCG(uint64(round), 4963)).Perm(len(all)) {
		v := &all[at]
		if !b.only.MatchString(v.name) {
			continue
		}
		fmt.Printf("%s %d: %s at %.1f s\n", part, round+1, v.name, clock().Seconds())
		if err := b.become(v); err != nil {
			return fmt.Errorf("%s: %w", v.name, err)
		}
		b.lab.pauseAgent(true)
		for _, m := range list {
			if m.awake {
				b.lab.pauseAgent(false)
				if err := b.wake(v); err != nil {
					return fmt.Errorf("%s: %w", v.name, err)
				}
				b.lab.pauseAgent(true)
			}
			if err := b.one(part, round, v, m); err != nil {
				return fmt.Errorf("%s: %w", v.name, err)
			}
		}
		b.lab.pauseAgent(false)
	}
	return nil
}

// become sets up a variant.
func (b *bench) become(v *variant) error {
	for _, family := range []string{"ip", "ip6"} {
		_, _ = sh(in("node", "nft", "delete", "table", family, "bench")...) // it may not exist
	}
	want := v.mode + " " + strings.Join(v.flags, " ")
	if len(v.flags) > 0 { // the agent starts without devices, as on a node without long connections
		b.lab.stopAgent()
		b.agent = ""
		for _, family := range []string{"ip", "ip6"} {
			_, _ = sh(in("node", "nft", "delete", "table", family, "fairlead-offload")...) // it may not exist
		}
	}
	if b.agent != want || v.inAgentsTable() {
		if err := b.lab.startAgent(b.fairlead, v.mode, v.flags...); err != nil {
			return err
		}
		if b.agent = want; v.inAgentsTable() {
			b.agent = "" // the next variant must start the agent again
		}
	}
	acct := "0"
	if v.acct || len(v.flags) > 0 {
		acct = "1"
	}
	if _, err := sh(in("node", "sysctl", "-qw", "net.netfilter.nf_conntrack_acct="+acct)...); err != nil {
		return err
	}
	if v.rules == "" && v.native == nil {
		return nil
	}
	b.lab.pauseAgent(true) // otherwise the agent would repair its modified table
	if v.native != nil {
		return inNamespace("node", v.native)
	}
	cmd := exec.Command("ip", in("node", "nft", "-f", "-")[1:]...)
	cmd.Stdin = strings.NewReader(v.rules)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("nft: %w: %s", err, out)
	}
	return nil
}

// one takes one measurement, from a conntrack table without connections.
func (b *bench) one(part string, round int, v *variant, m measure) error {
	if err := segments(m.packets != "mtu"); err != nil {
		return err
	}
	if _, err := sh(in("node", "conntrack", "-F")...); err != nil {
		return err
	}
	time.Sleep(20 * time.Millisecond) // of the guest's time, which costs nothing: pending work of the last measurement ends
	took, err := b.drive(&m)
	if err != nil {
		return err
	}
	line, err := json.Marshal(result{Part: part, Round: round, Variant: v.name, Mode: v.mode, Kind: m.kind, Packets: m.packets, Bytes: m.bytes, Awake: m.awake, Per: took / m.per})
	if err != nil {
		return err
	}
	_, err = b.file.Write(append(line, '\n'))
	return err
}

// drive returns how many nanoseconds of the guest's time the traffic of a measurement takes.
func (b *bench) drive(m *measure) (float64, error) {
	words := in("client", b.lab.self, "-drive", m.kind, "-at", vip+":"+strconv.Itoa(ports()[m.server]), "-n", strconv.Itoa(m.n), "-bytes", strconv.Itoa(m.bytes))
	cmd := exec.Command(words[0], words[1:]...)
	cmd.Env = append(slices.Clone(os.Environ()), quiet)
	var out, problem bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &problem
	if err := cmd.Run(); err != nil {
		return 0, errors.Join(err, errors.New(problem.String()))
	}
	return strconv.ParseFloat(strings.TrimSpace(out.String()), 64)
}
