package main

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
)

func main() {
	serve := flag.String("serve", "", "be a server: echo, sink, source, udpecho or udpsink")
	drive := flag.String("drive", "", "be a client: crr, rr, stream, fetch, udprr or udpstream")
	at := flag.String("at", "", "IPv4 address and port for -serve and -drive")
	n := flag.Int("n", 0, "transactions of -drive, or bytes of a stream, or connections of fetch")
	size := flag.Int("bytes", 0, "bytes of each connection of fetch")
	b := bench{}
	flag.StringVar(&b.fairlead, "fairlead", "bin/fairlead", "the agent")
	flag.StringVar(&b.out, "out", "bench/results/acceleration.json", "file for the results, one JSON object a line")
	flag.IntVar(&b.rounds, "rounds", 5, "how often each variant is measured, in turn")
	flag.Float64Var(&b.scale, "scale", 1, "how much each measurement does")
	parts := flag.String("parts", "thresholds,placement,crossover", "what is measured")
	sizes := flag.String("sizes", "1000,4000,10000,20000,40000,100000,400000,1600000", "bytes of a connection, for the crossover")
	only := flag.String("variants", "", "only those whose names match this regular expression")
	flag.Parse()
	err := error(nil)
	switch {
	case *serve != "":
		err = serveAt(*serve, *at)
	case *drive != "":
		err = driveAt(*drive, *at, *n, *size)
	default:
		b.parts, b.only = strings.Split(*parts, ","), regexp.MustCompile(*only)
		for _, s := range strings.Split(*sizes, ",") {
			bytes, bad := strconv.Atoi(s)
			if bad != nil || bytes < 1 {
				fmt.Fprintf(os.Stderr, "acceleration: -sizes: %q is no number of bytes\n", s)
				os.Exit(2)
			}
			b.sizes = append(b.sizes, bytes)
		}
		err = b.run()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "acceleration:", err)
		os.Exit(1)
	}
}
