package iptables

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/internal/kernel/iptables"
)

// Releases of iptables may print the same rule with other blanks, or with its options
// in another order. Actual and desired rules are compared as text, so Probe
// learns how this iptables prints each kind of rule that the driver writes. From then on a
// dialect translates rules that are read into the form that the driver writes.

// option is one option of a rule with its values: `--dport 80`, `! -i lo`.
type option struct {
	name   string   // with "! " in front if it is negated
	values []string // a comment with its quotes is one value
	text   string   // the original text, including trailing blanks
}

func (o *option) equal(p *option) bool { return o.name == p.name && slices.Equal(o.values, p.values) }

// options splits a rule.
func options(rule string) []option {
	var out []option
	negated, begin := false, 0
	for at := 0; at < len(rule); {
		end := at + wordLength(rule[at:])
		word := rule[at:end]
		next := end + len(rule[end:]) - len(strings.TrimLeft(rule[end:], " "))
		switch {
		case word == "!":
			negated, begin = true, at
		case strings.HasPrefix(word, "-") && len(word) > 1:
			if !negated {
				begin = at
			} else {
				word = "! " + word
			}
			negated = false
			out = append(out, option{name: word, text: rule[begin:next]})
		case word == "":
		case len(out) == 0 || negated:
			out, negated = append(out, option{name: word, text: rule[at:next]}), false
		default:
			last := &out[len(out)-1]
			last.values = append(last.values, word)
			last.text += rule[at:next]
		}
		at = next
	}
	return out
}

// wordLength is how long the first word is; blanks in quotes are part of it.
func wordLength(s string) int {
	quoted := false
	for i := 0; i < len(s); i++ {
		switch {
		case s[i] == '\\' && quoted:
			i++
		case s[i] == '"':
			quoted = !quoted
		case s[i] == ' ' && !quoted:
			return i
		}
	}
	return len(s)
}

// shapeOf distinguishes one kind of rule from another: the names of its options, in order, and
// how many values each has.
func shapeOf(list []option) string {
	var b strings.Builder
	for i := range list {
		fmt.Fprintf(&b, "%s/%d ", list[i].name, len(list[i].values))
	}
	return b.String()
}

// dialect maps each shape in which this iptables prints a rule to the form that the driver
// writes: the position of each option and its text.
type dialect map[string]reading

// reading is what is learned of one shape.
type reading struct {
	way     []wording
	differs bool // a rule of that shape was read otherwise than it was written
}

// wording is how the driver writes one option.
type wording struct {
	at     int      // its index among those that are printed
	blanks []string // between its words, and after the last one
}

func (w wording) equal(v wording) bool { return w.at == v.at && slices.Equal(w.blanks, v.blanks) }

// learn compares a rule that was written with the one that was read back.
func (d dialect) learn(wrote, read string) error {
	ours, theirs := options(wrote), options(read)
	shape := shapeOf(theirs)
	way := make([]wording, 0, len(ours))
	taken := make([]bool, len(theirs))
	for i := range ours {
		at := slices.IndexFunc(theirs, func(o option) bool { return o.equal(&ours[i]) })
		for at >= 0 && at < len(theirs) && (taken[at] || !theirs[at].equal(&ours[i])) {
			at++
		}
		if at < 0 || at == len(theirs) {
			return &MisreadError{Wrote: wrote, Read: read}
		}
		taken[at] = true
		way = append(way, wording{at, blanks(ours[i].text)})
	}
	if len(theirs) != len(ours) {
		return &MisreadError{Wrote: wrote, Read: read}
	}
	known, ok := d[shape]
	if ok && !slices.EqualFunc(known.way, way, wording.equal) {
		return &MisreadError{Wrote: wrote, Read: read} // two kinds of owned rules are printed alike
	}
	d[shape] = reading{way, known.differs || wrote != read}
	return nil
}

// differs reports whether any rule needs translation.
func (d dialect) differs() bool {
	for _, r := range d {
		if r.differs {
			return true
		}
	}
	return false
}

// blanks returns the blanks after each word.
func blanks(text string) []string {
	var out []string
	for len(text) > 0 {
		text = text[wordLength(text):]
		rest := strings.TrimLeft(text, " ")
		out = append(out, text[:len(text)-len(rest)])
		text = rest
	}
	return out
}

// ours returns a rule in the form that the driver writes. A rule of another kind is returned unchanged.
func (d dialect) ours(rule string) string {
	list := options(rule)
	known := d[shapeOf(list)]
	if !known.differs {
		return rule
	}
	var b strings.Builder
	for _, p := range known.way {
		o := &list[p.at]
		words := append(strings.Fields(o.name), o.values...)
		for i, w := range words {
			b.WriteString(w)
			if i < len(p.blanks) {
				b.WriteString(p.blanks[i])
			}
		}
	}
	return b.String()
}

// MisreadError reports that iptables-save prints a rule in words that are not those it
// was written in, beyond blanks and the order of options.
type MisreadError struct{ Wrote, Read string }

// Error implements error.
func (e *MisreadError) Error() string {
	return fmt.Sprintf("iptables-save prints a rule in another form than written, so the agent cannot recognize its own rules: wrote %q, read %q", e.Wrote, e.Read)
}

// translated is a Kernel that returns rules in the form that the driver writes.
type translated struct {
	iptables.Kernel
	dialect dialect
}

// Save implements iptables.Kernel.
func (t translated) Save(ctx context.Context, f iptables.Family, table string, emit func([]byte) error) error {
	return t.Kernel.Save(ctx, f, table, func(line []byte) error { return emit(t.line(line)) })
}

// SaveAll implements iptables.Kernel.
func (t translated) SaveAll(ctx context.Context, f iptables.Family, tables []string, emit func(string, []byte) error) error {
	return t.Kernel.SaveAll(ctx, f, tables, func(table string, line []byte) error { return emit(table, t.line(line)) })
}

// List implements iptables.Kernel.
func (t translated) List(ctx context.Context, f iptables.Family, table, chain string) ([]string, error) {
	list, err := t.Kernel.List(ctx, f, table, chain)
	for i := range list {
		list[i] = string(t.line([]byte(list[i])))
	}
	return list, err
}

func (t translated) line(line []byte) []byte {
	chain, rule, ok := splitRule(line)
	if !ok || len(rule) == 0 {
		return line
	}
	now := t.dialect.ours(string(rule))
	if now == string(rule) {
		return line
	}
	return bytes.Join([][]byte{[]byte("-A"), chain, []byte(now)}, []byte(" "))
}
