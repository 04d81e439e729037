package iptables

import (
	"bytes"
	"regexp"
	"strconv"
	"strings"
)

// lineNumber matches the lines that iptables-restore names: "Error occurred at
// line: 5", "line 5 failed", "line 5: RULE_APPEND failed".
var lineNumber = regexp.MustCompile(`line:? (\d+)`)

// explain parses the output of a failed iptables-restore.
func explain(program string, code int, said string, input []byte) *RestoreError {
	e := &RestoreError{Program: program, Code: code}
	for _, m := range lineNumber.FindAllStringSubmatch(said, -1) {
		if n, err := strconv.Atoi(m[1]); err == nil {
			e.Lines = append(e.Lines, n)
		}
	}
	lines := bytes.Split(input, []byte("\n"))
	if len(e.Lines) > 0 && strings.Contains(said, "does not exist") && strings.Contains(said, "Chain '") {
		// nf_tables reports a missing chain at the end of the table: find the rule that refers to it.
		e.Lines = missingChain(said, lines, e.Lines)
	}
	if len(e.Lines) > 0 && e.Lines[0] >= 1 && e.Lines[0] <= len(lines) {
		e.Text = string(lines[e.Lines[0]-1])
		e.Commit = e.Text == "COMMIT"
		for _, l := range lines[:e.Lines[0]-1] {
			if string(l) == "COMMIT" {
				e.Committed++
			}
		}
	}
	if i := strings.Index(said, "Try `"); i >= 0 {
		said = said[:i]
	}
	if _, rest, ok := strings.Cut(said, "): "); ok && strings.HasPrefix(said, "ip") {
		said = rest
	}
	e.Message = oneLine(said)
	return e
}

var quotedChain = regexp.MustCompile(`Chain '([^']+)' does not exist`)

func missingChain(said string, lines [][]byte, named []int) []int {
	m := quotedChain.FindStringSubmatch(said)
	if m == nil {
		return named
	}
	for i, l := range lines {
		if bytes.HasSuffix(l, []byte(" "+m[1])) && bytes.HasPrefix(l, []byte("-")) {
			return []int{i + 1}
		}
	}
	return named
}
