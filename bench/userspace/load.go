package main

import (
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// patience bounds one connection.
const patience = 5 * time.Second

// The endpoints of the abuse.
const (
	silentAt  = "127.0.0.1:19061" // reads nothing, and sends nothing
	endlessAt = "127.0.0.1:19062" // sends without an end
)

// endpoints serves all kinds until a socket fails.
func endpoints(short, bulk string) error {
	failed := make(chan error, 5) // one for each
	go func() { failed <- echo(short) }()
	for at, serve := range map[string]func(net.Conn){
		silentAt: func(net.Conn) { time.Sleep(time.Minute) }, // never reads or answers
		endlessAt: func(c net.Conn) {
			for chunk := make([]byte, 16<<10); ; {
				if _, err := c.Write(chunk); err != nil {
					return
				}
			}
		},
		short: func(c net.Conn) { _, _ = io.CopyN(c, c, 1) },
		bulk:  func(c net.Conn) { _, _ = io.CopyBuffer(struct{ io.Writer }{io.Discard}, c, make([]byte, 256<<10)) },
	} {
		l, err := net.Listen("tcp", at)
		if err != nil {
			return err
		}
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					failed <- err
					return
				}
				go func() {
					serve(c)
					_ = c.Close()
				}()
			}
		}()
	}
	return <-failed
}

// pour sends as much as possible through some connections.
func pour(to string, length time.Duration, streams int) (int64, time.Duration, error) {
	var sent atomic.Int64
	var all sync.WaitGroup
	begin := time.Now()
	for range streams {
		c, err := net.DialTimeout("tcp", to, patience)
		if err != nil {
			return 0, 0, err
		}
		_ = c.SetDeadline(begin.Add(length))
		all.Go(func() {
			defer c.Close() //nolint:errcheck // what was sent counts
			chunk := make([]byte, 256<<10)
			for {
				n, err := c.Write(chunk)
				sent.Add(int64(n))
				if err != nil { // the time is over
					return
				}
			}
		})
	}
	all.Wait()
	return sent.Load(), time.Since(begin), nil
}

// visits makes one connection after the other, each for a byte and its answer.
func visits(to string, length time.Duration, workers int) (times []time.Duration, failed int, took time.Duration) {
	var mu sync.Mutex
	var all sync.WaitGroup
	begin := time.Now()
	for range workers {
		all.Go(func() {
			var mine []time.Duration
			bad := 0
			for time.Since(begin) < length {
				at := time.Now()
				if visit(to) != nil {
					bad++
					continue
				}
				mine = append(mine, time.Since(at))
			}
			mu.Lock()
			defer mu.Unlock()
			times, failed = append(times, mine...), failed+bad
		})
	}
	all.Wait()
	return times, failed, time.Since(begin)
}

func visit(to string) error {
	c, err := net.DialTimeout("tcp", to, patience)
	if err != nil {
		return err
	}
	defer c.Close() //nolint:errcheck // the answer is what counts
	_ = c.SetDeadline(time.Now().Add(patience))
	if _, err := c.Write([]byte("x")); err != nil {
		return err
	}
	_, err = io.ReadFull(c, make([]byte, 1))
	return err
}

// cpu returns the CPU time that a process and its children have used; their clock ticks
// 100 times a second.
func cpu(pid int) (sum time.Duration) {
	if pid == 0 {
		return 0
	}
	list, _ := os.ReadDir("/proc")
	for _, e := range list {
		n, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		text, _ := os.ReadFile("/proc/" + e.Name() + "/stat")
		_, rest, ok := strings.Cut(string(text), ") ")
		f := strings.Fields(rest)
		if !ok || len(f) < 13 || n != pid && f[1] != strconv.Itoa(pid) {
			continue
		}
		for _, ticks := range f[11:13] { // utime, stime
			t, _ := strconv.Atoi(ticks)
			sum += time.Duration(t) * 10 * time.Millisecond
		}
	}
	return sum
}
