package kit

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fairlead/fairlead/test/netlab"
)

// step is one action and what must be true after it.
type step struct {
	line   int
	text   string
	verb   string
	args   []string // words after the verb
	rest   string   // the same, unsplit
	expect []expectation
}

var verbs = []string{"apply", "delete", "restart", "kill", "stop", "start", "cleanup", "run", "wait", "open", "close", "send"}

var errBadLine = errors.New("cannot read line")

// steps reads the script of one variant.
func (v Variant) steps() ([]step, error) {
	text, err := v.expand("script", v.Scenario.script)
	if err != nil {
		return nil, err
	}
	var out []step
	for i, line := range strings.Split(text, "\n") {
		line, _, _ = strings.Cut(line, " # ")
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		verb, rest, _ := strings.Cut(line, " ")
		if slices.Contains(verbs, verb) {
			if args := strings.Fields(rest); verb == "apply" || verb == "delete" && len(args) == 0 {
				if _, err := v.files(args); err != nil || len(args) == 0 {
					return nil, fmt.Errorf("parse scenario %s line %d: %q: %w", v.Scenario.Name, i+1, line, errors.Join(errBadLine, err))
				}
			}
			out = append(out, step{line: i + 1, text: line, verb: verb, rest: rest, args: strings.Fields(rest)})
			continue
		}
		exps, err := parseExpectation(line, netlab.Protocol(v.Proto))
		if err == nil && len(out) == 0 {
			err = errors.New("expectation before the first step")
		}
		if err != nil {
			return nil, fmt.Errorf("parse scenario %s line %d: %q: %w", v.Scenario.Name, i+1, line, err)
		}
		last := &out[len(out)-1]
		last.expect = append(last.expect, exps...)
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("parse scenario %s: no step", v.Scenario.Name)
	}
	return out, nil
}

func parseExpectation(line string, proto netlab.Protocol) ([]expectation, error) {
	head, tail, ok := strings.Cut(line, ": ")
	if !ok {
		head, tail = line, ""
	}
	subject, err := words(head)
	if err != nil || len(subject) == 0 {
		return nil, errBadLine
	}
	want, err := words(tail)
	if err != nil {
		return nil, err
	}
	switch subject[0] {
	case "from":
		return parseFrom(subject[1:], want, proto, line)
	case "flow":
		if strings.Join(want, " ") == "same backend" {
			want = []string{"same", "backend", "1", "times"}
		}
		a, err := parseAnswer(want)
		if len(subject) != 2 || err != nil {
			return nil, errors.Join(errBadLine, err)
		}
		return []expectation{&flowExpectation{text: line, name: subject[1], answer: a}}, nil
	case "http":
		return parseHTTP(subject, want, line)
	case "traffic": // traffic NAME: lost 0 of N
		if len(subject) != 2 || len(want) != 4 || want[0] != "lost" || want[1] != "0" || want[2] != "of" {
			return nil, errBadLine
		}
		n, err := strconv.Atoi(want[3])
		return []expectation{&trafficExpectation{text: line, name: subject[1], atLeast: n}}, err
	case "log":
		if len(subject) < 3 || subject[1] != "contains" && subject[1] != "lacks" {
			return nil, errBadLine
		}
		return []expectation{&logExpectation{text: line, lacks: subject[1] == "lacks", words: subject[2:]}}, nil
	case "metric":
		if len(subject) != 4 || !slices.Contains([]string{"=", ">=", ">", "<", "<="}, subject[2]) {
			return nil, errBadLine
		}
		n, err := strconv.ParseFloat(subject[3], 64)
		return []expectation{&metricExpectation{text: line, name: subject[1], op: subject[2], value: n}}, err
	case "prints":
		if len(subject) != 3 || len(want) < 2 || want[0] != "contains" && want[0] != "lacks" {
			return nil, errBadLine
		}
		return []expectation{&printsExpectation{text: line, host: subject[1], command: subject[2], lacks: want[0] == "lacks", words: want[1:]}}, nil
	}
	return nil, errBadLine
}

// parseFrom reads `from HOST... to ADDRESS:PORT [PROTOCOL]: ANSWER`, one expectation per host.
func parseFrom(subject, want []string, proto netlab.Protocol, line string) ([]expectation, error) {
	to := slices.Index(subject, "to")
	if to < 1 || len(subject) < to+2 || len(subject) > to+3 {
		return nil, errBadLine
	}
	addr, err := parseAddr(subject[to+1])
	if err != nil {
		return nil, err
	}
	if len(subject) == to+3 {
		proto = netlab.Protocol(subject[to+2])
	}
	a, err := parseAnswer(want)
	if err != nil {
		return nil, err
	}
	var out []expectation
	for _, host := range subject[:to] {
		out = append(out, &fromExpectation{text: line, host: host, to: addr, proto: proto, answer: a})
	}
	return out, nil
}

// parseAddr splits at the last colon, so that fd00:10:96::10:80 needs no brackets in a template.
func parseAddr(s string) (netip.AddrPort, error) {
	i := strings.LastIndexByte(s, ':')
	if i < 0 {
		return netip.AddrPort{}, fmt.Errorf("address %q has no port", s)
	}
	ip, err := netip.ParseAddr(strings.Trim(s[:i], "[]"))
	if err != nil {
		return netip.AddrPort{}, err
	}
	port, err := strconv.ParseUint(s[i+1:], 10, 16)
	return netip.AddrPortFrom(ip, uint16(port)), err
}

// parseAnswer reads what a request must meet: see the README for the forms.
func parseAnswer(w []string) (a answer, err error) {
	if len(w) == 0 {
		return a, errBadLine
	}
	a.kind, w = w[0], w[1:]
	switch a.kind {
	case "refused", "timeout", "unreachable", "reset", "closed", "fails":
		if len(w) > 0 {
			return a, errBadLine
		}
	case "backend", "backends":
		for len(w) > 0 && w[0] != "source" {
			a.backends, w = append(a.backends, w[0]), w[1:]
		}
		if len(a.backends) == 0 {
			return a, errBadLine
		}
	case "same": // same backend N times
		if len(w) < 3 || w[0] != "backend" || w[2] != "times" {
			return a, errBadLine
		}
		a.tries, err = strconv.Atoi(w[1])
		w = w[3:]
	case "shares": // shares NAME=PERCENT... of N
		for len(w) > 0 && w[0] != "of" {
			name, percent, _ := strings.Cut(w[0], "=")
			n, err := strconv.ParseFloat(percent, 64)
			if err != nil {
				return a, errBadLine
			}
			a.backends, a.shares, w = append(a.backends, name), append(a.shares, n), w[1:]
		}
		if len(w) != 2 || len(a.backends) == 0 {
			return a, errBadLine
		}
		a.tries, err = strconv.Atoi(w[1])
		return a, err
	case "changes": // changes backend within N tries, DURATION apart
		if len(w) != 6 || w[0] != "backend" || w[1] != "within" || w[3] != "tries" || w[5] != "apart" {
			return a, errBadLine
		}
		var err2 error
		a.tries, err = strconv.Atoi(w[2])
		a.pause, err2 = time.ParseDuration(w[4])
		return a, errors.Join(err, err2)
	default:
		return a, errBadLine
	}
	if len(w) == 2 && w[0] == "source" {
		a.source, w = w[1], nil
	}
	if len(w) > 0 {
		return a, errBadLine
	}
	return a, err
}

func parseHTTP(subject, want []string, line string) ([]expectation, error) {
	if len(subject) != 3 || len(want) == 0 {
		return nil, errBadLine
	}
	status, err := strconv.Atoi(want[0])
	if err != nil {
		return nil, errBadLine
	}
	e := &httpExpectation{text: line, host: subject[1], url: subject[2], status: status}
	for rest := want[1:]; len(rest) > 0; rest = rest[2:] {
		if len(rest) < 2 {
			return nil, errBadLine
		}
		switch rest[0] {
		case "contains":
			e.contains = append(e.contains, rest[1])
		case "header":
			e.headers = append(e.headers, rest[1])
		default:
			return nil, errBadLine
		}
	}
	return []expectation{e}, nil
}

// words splits at blanks; a word in double quotes may hold blanks.
func words(s string) ([]string, error) {
	var out []string
	for s = strings.TrimSpace(s); s != ""; s = strings.TrimSpace(s) {
		if s[0] == '"' {
			quoted, err := strconv.QuotedPrefix(s)
			if err != nil {
				return nil, fmt.Errorf("unfinished quote in %q", s)
			}
			word, _ := strconv.Unquote(quoted)
			out, s = append(out, word), s[len(quoted):]
			continue
		}
		word, rest, _ := strings.Cut(s, " ")
		out, s = append(out, strings.TrimSuffix(word, ",")), rest
	}
	return out, nil
}
