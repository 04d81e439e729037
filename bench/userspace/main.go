package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
)

// subject is a program that carries connections: at short the endpoint answers a byte with
// a byte, at bulk it reads everything. Process 0 is none: clients connect to the endpoints
// themselves.
type subject struct {
	name, short, bulk string
	pid               int
}

// row is the result of one round.
type row struct {
	Subject    string  `json:"subject"`
	Round      int     `json:"round"`
	MBPerS     float64 `json:"mb_per_s"`
	CPUPerGB   float64 `json:"cpu_s_per_gb"`
	ConnPerS   float64 `json:"connections_per_s"`
	P50ms      float64 `json:"p50_ms"`
	P99ms      float64 `json:"p99_ms"`
	CPUPerConn float64 `json:"cpu_us_per_connection"`
	Failed     int     `json:"failed"`
	// Of datagrams, there and back.
	AnswersPerS  float64 `json:"answers_per_s,omitempty"`
	CPUPerAnswer float64 `json:"cpu_us_per_answer,omitempty"`
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "bench/userspace:", err)
		os.Exit(1)
	}
}

func run() error {
	short := flag.String("short", "127.0.0.1:19001", "where the endpoint listens that answers a byte")
	bulk := flag.String("bulk", "127.0.0.1:19002", "where the endpoint listens that takes everything")
	length := flag.Duration("for", 2*time.Second, "how long each measurement is")
	rounds := flag.Int("rounds", 3, "rounds; the table has the medians")
	workers := flag.Int("workers", 16, "clients at once of short connections")
	streams := flag.Int("streams", 4, "long connections at once")
	serve := flag.Bool("serve", false, "be the endpoints, and nothing else")
	only := flag.String("only", "", "short, bulk or udp; empty for the first two")
	abused := flag.String("abuse", "", "pid,well,stormed,silent,endless: the proxy, and where it answers these Services; what abuse of one does to another")
	a := abuseFlags()
	out := flag.String("out", "", "file for the rows, as JSON")
	flag.Parse()
	if *serve {
		return endpoints(*short, *bulk)
	}
	if *abused != "" {
		return a.run(*abused, *short, *length, *rounds)
	}
	subjects, err := parse(flag.Args())
	if err != nil {
		return err
	}
	var rows []row
	for n := range *rounds {
		for _, s := range subjects {
			r, err := measure(s, *only, *length, *workers, *streams)
			if err != nil {
				return fmt.Errorf("%s: %w", s.name, err)
			}
			r.Round = n + 1
			rows = append(rows, r)
		}
	}
	table(subjects, rows)
	if *out == "" {
		return nil
	}
	text, err := json.MarshalIndent(rows, "", " ")
	if err != nil {
		return err
	}
	return os.WriteFile(*out, append(text, '\n'), 0o644)
}

// parse parses name,short,bulk,pid.
func parse(args []string) (out []subject, err error) {
	for _, a := range args {
		f := strings.Split(a, ",")
		if len(f) != 4 {
			return nil, fmt.Errorf("%q is not name,short,bulk,pid", a)
		}
		s := subject{name: f[0], short: f[1], bulk: f[2]}
		if s.pid, err = strconv.Atoi(f[3]); err != nil {
			return nil, err
		}
		out = append(out, s)
	}
	return out, nil
}

func measure(s subject, only string, length time.Duration, workers, streams int) (row, error) {
	out := row{Subject: s.name}
	if only == "udp" {
		return out, measureUDP(s, length, &out)
	}
	if only != "short" {
		before := cpu(s.pid)
		bytes, took, err := pour(s.bulk, length, streams)
		if err != nil {
			return out, err
		}
		out.MBPerS = float64(bytes) / 1e6 / took.Seconds()
		out.CPUPerGB = (cpu(s.pid) - before).Seconds() / (float64(bytes) / 1e9)
	}
	if only == "bulk" {
		return out, nil
	}
	before := cpu(s.pid)
	times, failed, took := visits(s.short, length, workers)
	if len(times) == 0 {
		return out, fmt.Errorf("none of %d connections to %s was answered", failed, s.short)
	}
	slices.Sort(times)
	out.Failed, out.ConnPerS = failed, float64(len(times))/took.Seconds()
	out.P50ms, out.P99ms = millis(times[len(times)/2]), millis(times[len(times)*99/100])
	out.CPUPerConn = float64((cpu(s.pid) - before).Microseconds()) / float64(len(times))
	return out, nil
}

// measureUDP uses the ports of short connections.
func measureUDP(s subject, length time.Duration, out *row) error {
	before := cpu(s.pid)
	n, took, err := datagrams(s.short, length, 8, 200)
	if err == nil && n > 0 {
		out.AnswersPerS, out.CPUPerAnswer = float64(n)/took.Seconds(), float64((cpu(s.pid)-before).Nanoseconds())/1000/float64(n)
	}
	return err
}

func millis(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// table prints the medians.
func table(subjects []subject, rows []row) {
	fmt.Println("| | MB/s | CPU s/GB | connections/s | p50 ms | p99 ms | CPU µs/connection | failed | UDP answers/s | CPU µs/answer |\n|---|---|---|---|---|---|---|---|---|---|")
	for _, s := range subjects {
		median := func(of func(*row) float64) float64 {
			var all []float64
			for i := range rows {
				if rows[i].Subject == s.name {
					all = append(all, of(&rows[i]))
				}
			}
			slices.Sort(all)
			return all[len(all)/2]
		}
		fmt.Printf("| %s | %.0f | %.3f | %.0f | %.2f | %.2f | %.0f | %.0f | %.0f | %.1f |\n", s.name, median(func(r *row) float64 { return r.MBPerS }),
			median(func(r *row) float64 { return r.CPUPerGB }), median(func(r *row) float64 { return r.ConnPerS }),
			median(func(r *row) float64 { return r.P50ms }), median(func(r *row) float64 { return r.P99ms }),
			median(func(r *row) float64 { return r.CPUPerConn }), median(func(r *row) float64 { return float64(r.Failed) }),
			median(func(r *row) float64 { return r.AnswersPerS }), median(func(r *row) float64 { return r.CPUPerAnswer }))
	}
}
