package main

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// table is the output of ab, in milliseconds, and the number of requests that it lost.
type table struct {
	Requests, Clients, Failed int
	Connect, Total            spread // Mean, SD, Median in ms
	Rate                      float64
}

// bench runs ab: the given number of clients that each make one short connection after
// the other.
func bench(to string, requests, clients int) (*table, error) {
	clients = min(clients, requests)
	cmd := command("client", "bash", "-c", "ulimit -n 16384 && exec ab -q -r -s 120 \"$@\"", "ab",
		"-n", strconv.Itoa(requests), "-c", strconv.Itoa(clients), fmt.Sprintf("http://%s:%d/", to, servicePort))
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("ab: %w\n%s", err, out)
	}
	return parse(string(out), requests, clients)
}

// parse parses the output of ab.
func parse(text string, requests, clients int) (*table, error) {
	t := &table{Requests: requests, Clients: clients}
	for name, to := range map[string]*spread{"Connect": &t.Connect, "Total": &t.Total} {
		m := regexp.MustCompile(name + `: +([\d.]+) +([\d.]+) +([\d.]+) +([\d.]+) +([\d.]+)`).FindStringSubmatch(text)
		if m == nil {
			return nil, fmt.Errorf("ab prints no line %s:\n%s", name, text)
		}
		to.N = requests
		for i, f := range []*float64{&to.Min, &to.Mean, &to.SD, &to.Median, &to.Max} {
			*f, _ = strconv.ParseFloat(m[i+1], 64) // the expression matches only numbers
		}
	}
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		switch {
		case strings.HasPrefix(line, "Failed requests:"):
			t.Failed, _ = strconv.Atoi(fields[2])
		case strings.HasPrefix(line, "Requests per second:"):
			t.Rate, _ = strconv.ParseFloat(fields[3], 64)
		}
	}
	return t, nil
}
