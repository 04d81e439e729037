package kit

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/fairlead/fairlead/test/netlab"
)

// step is one action and the expectations after it.
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

// steps parses the script of one variant.
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

// words splits at white space; a word in double quotes may contain it.
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
