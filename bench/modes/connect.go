package main

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// spread summarizes times in microseconds.
type spread struct {
	N                          int
	Min, Mean, SD, Median, Max float64
	// Best is the least of the medians of rounds: other work of the machine makes rounds slower, never faster. 0 if there were no
	// rounds.
	Best float64 `json:",omitempty"`
}

func newSpread(us []float64) spread {
	if len(us) == 0 {
		return spread{}
	}
	slices.Sort(us)
	s := spread{N: len(us), Min: us[0], Median: us[len(us)/2], Max: us[len(us)-1]}
	for _, v := range us {
		s.Mean += v / float64(s.N)
	}
	for _, v := range us {
		s.SD += (v - s.Mean) * (v - s.Mean) / float64(s.N)
	}
	s.SD = math.Sqrt(s.SD)
	return s
}

// question is the input of the client process, on its standard input: how often to connect to each target, and the addresses of
// the target, from which it selects at random.
type question struct {
	Times   int
	Targets map[string][]string
}

// connect is the client process. It goes round the targets, so that any drift of the machine affects all of them, and prints a
// spread of each.
func connect() error {
	var q question
	if err := json.NewDecoder(os.Stdin).Decode(&q); err != nil {
		return err
	}
	names := make([]string, 0, len(q.Targets))
	for name := range q.Targets {
		names = append(names, name)
	}
	slices.Sort(names)
	took, random := map[string][]float64{}, rand.New(rand.NewPCG(1, 2)) // the same addresses in every trial
	for range q.Times {
		for _, name := range names {
			to := q.Targets[name][random.IntN(len(q.Targets[name]))]
			us, err := connectOnce(to)
			if err != nil {
				return fmt.Errorf("connect to %s of %s: %w", to, name, err)
			}
			took[name] = append(took[name], us)
		}
	}
	out := map[string]spread{}
	for name, us := range took {
		us = us[len(us)/10:] // the first connections are a warm-up
		best := us[0]
		for at := 0; at+round <= len(us); at += round {
			if m := newSpread(slices.Clone(us[at : at+round])).Median; at == 0 || m < best {
				best = m
			}
		}
		s := newSpread(us)
		s.Best = best
		out[name] = s
	}
	return json.NewEncoder(os.Stdout).Encode(out)
}

// round is how many connections are compared with the same number of others.
const round = 50

// connectOnce makes one connection and resets it, which leaves no socket in TIME_WAIT.
func connectOnce(to string) (us float64, err error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	defer unix.Close(fd)
	if err := unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1}); err != nil {
		return 0, err
	}
	addr, err := netip.ParseAddrPort(to)
	if err != nil {
		return 0, err
	}
	at := unix.SockaddrInet4{Port: int(addr.Port()), Addr: addr.Addr().As4()}
	start := time.Now()
	err = unix.Connect(fd, &at)
	return float64(time.Since(start).Nanoseconds()) / 1000, err
}

// ask runs the client process and returns its result.
func ask(self string, q question) (map[string]spread, error) {
	text, err := json.Marshal(q)
	if err != nil {
		return nil, err
	}
	cmd := command("client", self, "connect")
	cmd.Stdin = strings.NewReader(string(text))
	out, err := cmd.Output()
	if err != nil {
		return nil, err
	}
	var s map[string]spread
	return s, json.Unmarshal(out, &s)
}
