package kit

import (
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"golang.org/x/tools/txtar"
)

// Scenario is one file of test/scenarios.
type Scenario struct {
	Name      string
	Families  []string // ipv4, ipv6, dual
	Protocols []string // tcp, udp, sctp
	Flags     []string // extra flags for the agent; may contain templates
	Without   []string // built-in manifests that must not be applied (nodes)
	NotFor    map[string]string
	OnlyModes []string // empty: all
	OnlyWhy   string

	script string
	files  []txtar.File
}

// Variant is a scenario in one family and protocol, the unit that the matrix counts.
type Variant struct {
	Scenario *Scenario
	Family   string
	Proto    string
}

// Name returns the unique name scenario/family/protocol.
func (v Variant) Name() string { return v.Scenario.Name + "/" + v.Family + "/" + v.Proto }

// Variants returns the scenario's variants: each family with each protocol.
func (s *Scenario) Variants() []Variant {
	var out []Variant
	for _, f := range s.Families {
		for _, p := range s.Protocols {
			out = append(out, Variant{s, f, p})
		}
	}
	return out
}

// NotApplicable returns the reason why a scenario is not applicable to a mode or subject; empty if it is applicable.
func (s *Scenario) NotApplicable(mode, subject string) string {
	proxy, _ := proxyMode(mode)
	for _, key := range []string{mode, proxy, subject, subject + "/" + mode, subject + "/" + proxy} {
		if why := s.NotFor[key]; why != "" {
			return why
		}
	}
	if len(s.OnlyModes) > 0 && !slices.Contains(s.OnlyModes, mode) && !slices.Contains(s.OnlyModes, proxy) {
		return s.OnlyWhy
	}
	return ""
}

// Load reads every *.txtar in the root of fsys, in name order.
func Load(fsys fs.FS) ([]*Scenario, error) {
	names, err := fs.Glob(fsys, "*.txtar")
	if err != nil {
		return nil, err
	}
	slices.Sort(names)
	var out []*Scenario
	for _, name := range names {
		data, err := fs.ReadFile(fsys, name)
		if err != nil {
			return nil, err
		}
		s, err := Parse(strings.TrimSuffix(path.Base(name), ".txtar"), data)
		if err != nil {
			return nil, err
		}
		out = append(out, s)
	}
	return out, nil
}

// Parse reads one scenario and checks that the script of every variant can be parsed.
func Parse(name string, data []byte) (*Scenario, error) {
	arch := txtar.Parse(data)
	s := &Scenario{Name: name, Families: []string{"ipv4", "ipv6"}, Protocols: []string{"tcp"}, NotFor: map[string]string{}, files: arch.Files}
	lines := strings.Split(string(arch.Comment), "\n")
	at := 0
	for ; at < len(lines); at++ {
		line := strings.TrimSpace(lines[at])
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		key, value, ok := strings.Cut(line, ":")
		if known, err := s.header(key, strings.TrimSpace(value)); err != nil {
			return nil, fmt.Errorf("parse scenario %s line %d: %w", name, at+1, err)
		} else if !ok || !known {
			break // the script begins
		}
	}
	s.script = strings.Repeat("\n", at) + strings.Join(lines[at:], "\n") // keeps line numbers
	for _, v := range s.Variants() {
		if _, err := v.steps(); err != nil {
			return nil, err
		}
	}
	return s, nil
}

func (s *Scenario) header(key, value string) (known bool, err error) {
	word, rest, _ := strings.Cut(key, " ")
	switch {
	case key == "families":
		s.Families = strings.Fields(value)
		return true, oneOf(s.Families, "ipv4", "ipv6", "dual")
	case key == "protocols":
		s.Protocols = strings.Fields(value)
		return true, oneOf(s.Protocols, "tcp", "udp", "sctp")
	case key == "flags":
		s.Flags = append(s.Flags, strings.Fields(value)...)
	case key == "without":
		s.Without = strings.Fields(value)
		return true, oneOf(s.Without, "nodes.yaml")
	case word == "only" && rest != "":
		s.OnlyModes, s.OnlyWhy = strings.Fields(rest), value
	case word == "not" && rest != "":
		s.NotFor[rest] = value
	default:
		return false, nil
	}
	if value == "" {
		return true, fmt.Errorf("header %q needs a value", key)
	}
	return true, nil
}

func oneOf(got []string, known ...string) error {
	if len(got) == 0 {
		return fmt.Errorf("empty list, want some of %v", known)
	}
	for _, g := range got {
		if !slices.Contains(known, g) {
			return fmt.Errorf("unknown word %q, want some of %v", g, known)
		}
	}
	return nil
}
