package kit

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/fairlead/fairlead/test/netlab"
)

// sentence is one expectation line, split: `HEAD: TAIL`, without the first word of HEAD.
type sentence struct {
	text       string
	proto      netlab.Protocol // used if the line names no protocol
	head, tail []string
}

// parsers returns the parser of a sentence for each first word.
func parsers() map[string]func(sentence) ([]expectation, error) {
	return map[string]func(sentence) ([]expectation, error){
		"from": parseFrom, "flow": parseFlow, "traffic": parseTraffic, "http": parseHTTP, "log": parseLog, "metric": parseMetric, "prints": parsePrints,
		"explain": parseExplain,
	}
}

func parseExpectation(line string, proto netlab.Protocol) ([]expectation, error) {
	head, tail, _ := strings.Cut(line, ": ")
	h, err1 := words(head)
	t, err2 := words(tail)
	if err := errors.Join(err1, err2); err != nil {
		return nil, err
	}
	parse, ok := parsers()[h[0]]
	if !ok {
		return nil, errBadLine
	}
	return parse(sentence{line, proto, h[1:], t})
}

// parseFrom reads `from HOST... to ADDRESS:PORT [PROTOCOL]: ANSWER`, one expectation per host.
func parseFrom(s sentence) ([]expectation, error) {
	to := slices.Index(s.head, "to")
	if to < 1 || len(s.head) < to+2 || len(s.head) > to+3 {
		return nil, errBadLine
	}
	addr, err := parseAddr(s.head[to+1])
	if err != nil {
		return nil, err
	}
	if len(s.head) == to+3 {
		s.proto = netlab.Protocol(s.head[to+2])
	}
	a, err := parseAnswer(s.tail)
	if err != nil {
		return nil, err
	}
	var out []expectation
	for _, host := range s.head[:to] {
		out = append(out, &fromExpectation{text: s.text, host: host, to: addr, proto: s.proto, answer: a})
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

// parseFlow reads `flow NAME: ANSWER` and `flow NAME: same backend`.
func parseFlow(s sentence) ([]expectation, error) {
	if strings.Join(s.tail, " ") == "same backend" {
		s.tail = append(s.tail, "1", "times")
	}
	a, err := parseAnswer(s.tail)
	if len(s.head) != 1 || err != nil {
		return nil, errors.Join(errBadLine, err)
	}
	return []expectation{&flowExpectation{text: s.text, name: s.head[0], answer: a}}, nil
}

// parseTraffic reads `traffic NAME: lost 0 of N`.
func parseTraffic(s sentence) ([]expectation, error) {
	if len(s.head) != 1 || len(s.tail) != 4 || strings.Join(s.tail[:3], " ") != "lost 0 of" {
		return nil, errBadLine
	}
	n, err := strconv.Atoi(s.tail[3])
	return []expectation{&trafficExpectation{text: s.text, name: s.head[0], atLeast: n}}, err
}

// parseHTTP reads `http HOST URL: STATUS [contains TEXT]... [header "NAME: VALUE"]...`.
func parseHTTP(s sentence) ([]expectation, error) {
	if len(s.head) != 2 || len(s.tail)%2 != 1 {
		return nil, errBadLine
	}
	status, err := strconv.Atoi(s.tail[0])
	if err != nil {
		return nil, errBadLine
	}
	e := &httpExpectation{text: s.text, host: s.head[0], url: s.head[1], status: status}
	for pair := range slices.Chunk(s.tail[1:], 2) {
		switch pair[0] {
		case "contains":
			e.contains = append(e.contains, pair[1])
		case "header":
			e.headers = append(e.headers, pair[1])
		default:
			return nil, errBadLine
		}
	}
	return []expectation{e}, nil
}

// parseLog reads `log contains WORD...` and `log lacks WORD...`.
func parseLog(s sentence) ([]expectation, error) {
	if len(s.head) < 2 || s.head[0] != "contains" && s.head[0] != "lacks" {
		return nil, errBadLine
	}
	return []expectation{&logExpectation{text: s.text, lacks: s.head[0] == "lacks", words: s.head[1:]}}, nil
}

// parseMetric reads `metric NAME OPERATOR NUMBER`.
func parseMetric(s sentence) ([]expectation, error) {
	if len(s.head) != 3 || !slices.Contains([]string{"=", ">=", ">", "<", "<="}, s.head[1]) {
		return nil, errBadLine
	}
	n, err := strconv.ParseFloat(s.head[2], 64)
	return []expectation{&metricExpectation{text: s.text, name: s.head[0], op: s.head[1], value: n}}, err
}

// parsePrints reads `prints HOST COMMAND: contains WORD...` and `... lacks WORD...`.
func parsePrints(s sentence) ([]expectation, error) {
	if len(s.head) != 2 || len(s.tail) < 2 || s.tail[0] != "contains" && s.tail[0] != "lacks" {
		return nil, errBadLine
	}
	return []expectation{&printsExpectation{text: s.text, host: s.head[0], command: s.head[1], lacks: s.tail[0] == "lacks", words: s.tail[1:]}}, nil
}

// parseExplain reads `explain SERVICE: OUTCOME contains WORD...`.
func parseExplain(s sentence) ([]expectation, error) {
	if len(s.head) != 1 || len(s.tail) < 3 || s.tail[1] != "contains" || !slices.Contains([]string{"forward", "reject", "drop", "none"}, s.tail[0]) {
		return nil, errBadLine
	}
	return []expectation{&explainExpectation{text: s.text, about: s.head[0], outcome: s.tail[0], words: s.tail[2:]}}, nil
}
