// Command load sends queries to DNS servers as fast as they answer, or at a given rate.
// It prints for each server how many queries a second were answered and how long the
// slowest took. One run queries the servers in turns, so that other work of the machine
// affects all of them alike.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/miekg/dns"
)

type result struct {
	Server        string
	Round         int
	Mode          string // "saturated" or "paced"
	QPS           float64
	P50, P99, Max float64 // ms
	Lost          int
	Asked         int
}

// alone stops all servers except the one whose turn it is, if their process ids are
// known. Pending work of another server, such as garbage collection, must not run
// during its turn. The pause lets the server finish its own.
func alone(o *options, turnOf int) {
	for i, s := range o.servers {
		fields := strings.Split(s, "=")
		if len(fields) < 3 {
			continue
		}
		pid, err := strconv.Atoi(fields[2])
		if err != nil || pid <= 1 {
			continue
		}
		signal := syscall.SIGSTOP
		if i == turnOf {
			signal = syscall.SIGCONT
		}
		_ = syscall.Kill(pid, signal)
	}
	time.Sleep(700 * time.Millisecond)
}

type options struct {
	servers         []string
	names           int
	pattern         string
	sockets, window int
	rate            float64
	length          time.Duration
	rounds          int
}

func main() {
	var o options
	servers := flag.String("servers", "", "comma list of name=address:port, or name=address:port=pid to have the others stopped meanwhile")
	flag.IntVar(&o.names, "names", 50000, "number of names")
	flag.StringVar(&o.pattern, "pattern", "svc-%d.load.svc.cluster.local.", "name, %d is the number")
	flag.IntVar(&o.sockets, "sockets", 8, "UDP sockets")
	flag.IntVar(&o.window, "window", 16, "questions in flight on each socket")
	flag.Float64Var(&o.rate, "rate", 1000, "questions a second in the paced half")
	flag.DurationVar(&o.length, "length", 3*time.Second, "of one turn")
	flag.IntVar(&o.rounds, "rounds", 5, "turns of each server and mode")
	flag.Parse()
	o.servers = strings.Split(*servers, ",")
	packets, err := questions(&o)
	if err != nil {
		fmt.Fprintln(os.Stderr, "load:", err)
		os.Exit(1)
	}
	out := json.NewEncoder(os.Stdout)
	for round := range o.rounds {
		for _, mode := range []string{"saturated", "paced"} {
			for i := range o.servers {
				turnOf := (i + round) % len(o.servers)
				alone(&o, turnOf)
				name, rest, _ := strings.Cut(o.servers[turnOf], "=")
				addr, _, _ := strings.Cut(rest, "=")
				r, err := turn(&o, addr, mode, packets)
				if err != nil {
					fmt.Fprintln(os.Stderr, "load:", err)
					os.Exit(1)
				}
				r.Server, r.Round, r.Mode = name, round, mode
				_ = out.Encode(r)
			}
		}
	}
}

func questions(o *options) ([][]byte, error) {
	list := make([][]byte, o.names)
	for i := range list {
		m := new(dns.Msg)
		m.SetQuestion(fmt.Sprintf(o.pattern, i), dns.TypeA)
		m.SetEdns0(1232, false)
		var err error
		if list[i], err = m.Pack(); err != nil {
			return nil, err
		}
	}
	rand.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	return list, nil
}

// asker is one socket: it keeps window queries in flight, or sends at a rate.
type asker struct {
	conn    net.Conn
	sent    [1 << 16]time.Time // by message id
	took    []time.Duration
	lost    int
	asked   int
	wrong   int
	next    uint16
	packets [][]byte
	at      int
}

func turn(o *options, addr, mode string, packets [][]byte) (*result, error) {
	list := make([]*asker, o.sockets)
	for i := range list {
		conn, err := net.Dial("udp", addr)
		if err != nil {
			return nil, err
		}
		defer conn.Close()
		list[i] = &asker{conn: conn, packets: packets, at: i * len(packets) / o.sockets}
	}
	var wg sync.WaitGroup
	start := time.Now()
	for _, a := range list {
		wg.Go(func() {
			if mode == "paced" {
				a.paced(o.length, o.rate/float64(o.sockets))
			} else {
				a.saturated(o.length, o.window)
			}
		})
	}
	wg.Wait()
	r := &result{}
	var all []time.Duration
	for _, a := range list {
		all = append(all, a.took...)
		r.Lost += a.lost
		r.Asked += a.asked
		if a.wrong > 0 {
			return nil, fmt.Errorf("%s: %d wrong answers", addr, a.wrong)
		}
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("%s answers nothing", addr)
	}
	slices.Sort(all)
	at := func(q float64) float64 { return float64(all[int(q*float64(len(all)-1))]) / 1e6 }
	r.QPS, r.P50, r.P99, r.Max = float64(len(all))/min(time.Since(start), o.length).Seconds(), at(.5), at(.99), at(1)
	return r, nil
}

func (a *asker) send() {
	p := a.packets[a.at%len(a.packets)]
	a.at++
	a.next++
	var buf [512]byte
	b := append(buf[:0], p...)
	b[0], b[1] = byte(a.next>>8), byte(a.next)
	a.sent[a.next] = time.Now()
	a.asked++
	_, _ = a.conn.Write(b)
}

// receive reads one answer. It returns false after a quarter of a second without one.
func (a *asker) receive(buf []byte, deadline time.Time) bool {
	_ = a.conn.SetReadDeadline(deadline)
	n, err := a.conn.Read(buf)
	if err != nil {
		return false
	}
	id := uint16(buf[0])<<8 | uint16(buf[1])
	if n < 12 || buf[3]&15 != 0 || buf[7] != 1 { // one record each
		a.wrong++
		return true
	}
	if at := a.sent[id]; !at.IsZero() {
		a.took = append(a.took, time.Since(at))
		a.sent[id] = time.Time{}
	}
	return true
}

func (a *asker) saturated(length time.Duration, window int) {
	buf := make([]byte, 4096)
	end := time.Now().Add(length)
	for range window {
		a.send()
	}
	for time.Now().Before(end) {
		if !a.receive(buf, time.Now().Add(250*time.Millisecond)) { // the whole window is lost
			a.lost += window
			for range window {
				a.send()
			}
			continue
		}
		a.send()
	}
}

func (a *asker) paced(length time.Duration, rate float64) {
	done := make(chan struct{})
	end := time.Now().Add(length)
	var mu sync.Mutex
	go func() {
		defer close(done)
		buf := make([]byte, 4096)
		for a.receiveLocked(&mu, buf, end.Add(250*time.Millisecond)) {
		}
	}()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	start := time.Now()
	for n := 0; time.Now().Before(end); <-tick.C {
		for ; float64(n) < rate*time.Since(start).Seconds(); n++ {
			mu.Lock()
			a.send()
			mu.Unlock()
		}
	}
	<-done
	a.lost = a.asked - len(a.took)
}

func (a *asker) receiveLocked(mu *sync.Mutex, buf []byte, deadline time.Time) bool {
	_ = a.conn.SetReadDeadline(deadline)
	n, err := a.conn.Read(buf)
	if err != nil {
		return false
	}
	mu.Lock()
	defer mu.Unlock()
	id := uint16(buf[0])<<8 | uint16(buf[1])
	if n < 12 || buf[3]&15 != 0 || buf[7] != 1 {
		a.wrong++
	} else if at := a.sent[id]; !at.IsZero() {
		a.took = append(a.took, time.Since(at))
		a.sent[id] = time.Time{}
	}
	return true
}
