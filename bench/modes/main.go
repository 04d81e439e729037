package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// options are the options of one run.
type options struct {
	sizes               []int
	subjects            []string
	each                int
	requests, clients   int
	connects, changes   int
	flags               []string
	then                string
	fairlead, kubeProxy string
	out                 string
	limit               time.Duration
}

// record is the result of one trial: a line of the results.
type record struct {
	Kernel, Subject     string // "fairlead:nftables"
	Services, Endpoints int
	SyncSeconds         float64           // from the start until sampled Services answer and the subject reports that it is in sync, in the guest's time
	SyncCPU             float64           // seconds
	AB                  *table            `json:",omitempty"`
	Connect             map[string]spread `json:",omitempty"`
	Then                []after           `json:",omitempty"`
	Changes             *changed          `json:",omitempty"`
	Failed              string            `json:",omitempty"`
}

// after is the result of a repeated measurement after a change to the node.
type after struct {
	Command, Said string
	Connect       map[string]spread
}

func main() {
	if len(os.Args) > 1 {
		for name, do := range map[string]func() error{"serve": serve, "connect": connect, "report": report} {
			if os.Args[1] == name {
				if err := do(); err != nil {
					fmt.Fprintln(os.Stderr, name+":", err)
					os.Exit(1)
				}
				return
			}
		}
	}
	o, err := flags()
	if err == nil {
		err = o.run()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "modes:", err)
		os.Exit(1)
	}
}

func flags() (o options, err error) {
	sizes := flag.String("sizes", "100 500 1000 2000 3000 4000 10000", "numbers of Services")
	subjects := flag.String("subjects", "fairlead:nftables kube-proxy:nftables", "which, as program:mode")
	flag.IntVar(&o.each, "each", 2, "endpoints of a Service that is asked")
	flag.IntVar(&o.requests, "requests", 10_000, "short connections of ab")
	flag.IntVar(&o.clients, "clients", 1_000, "clients of ab at a time")
	flag.IntVar(&o.connects, "connects", 1_000, "connections of our client to each target")
	flag.IntVar(&o.changes, "changes", 0, "in ipvs mode: measure so many single changes and a restart, and no connections")
	flag.StringVar(&o.then, "then", "", "commands, one a line, for the node: connections are measured again after each, while the subject stands still")
	more := flag.String("flags", "", "more flags for each subject")
	flag.StringVar(&o.fairlead, "fairlead", "bin/fairlead", "the program")
	flag.StringVar(&o.kubeProxy, "kube-proxy", "", "the program")
	flag.StringVar(&o.out, "out", "bench/results/modes.jsonl", "file to add lines to; what it has is not measured again")
	flag.DurationVar(&o.limit, "limit", 4*time.Minute, "give a subject up that has not synced within this time of the guest")
	flag.Parse()
	for _, s := range strings.Fields(*sizes) {
		n, err := strconv.Atoi(s)
		if err != nil {
			return o, err
		}
		o.sizes = append(o.sizes, n)
	}
	o.subjects, o.flags = strings.Fields(*subjects), strings.Fields(*more)
	return o, nil
}

// run makes every trial that is missing in the results.
func (o *options) run() error {
	have := o.have()
	for _, subject := range o.subjects {
		var missing []int
		for _, n := range o.sizes {
			if !have[fmt.Sprint(subject, n)] {
				missing = append(missing, n)
			}
		}
		if len(missing) == 0 {
			continue
		}
		if err := o.trial(subject, missing); err != nil {
			return err
		}
	}
	return nil
}

func (o *options) have() map[string]bool {
	have := map[string]bool{}
	text, _ := os.ReadFile(o.out) // does not exist at first
	for line := range strings.Lines(string(text)) {
		var r record
		if json.Unmarshal([]byte(line), &r) == nil {
			have[fmt.Sprint(r.Subject, r.Services)] = true
		}
	}
	return have
}

func (o *options) keep(r *record) error {
	line, err := json.Marshal(r)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(o.out, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	defer f.Close()
	fmt.Printf("%s\n", line)
	_, err = f.Write(append(line, '\n'))
	return err
}
