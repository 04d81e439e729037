package inspect

import (
	"cmp"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/fairlead/fairlead/internal/engine"
	"github.com/fairlead/fairlead/internal/model"
)

// Audit is the answer of `fairlead audit`.
type Audit struct {
	At        time.Time     `json:"at"`
	Now       time.Time     `json:"now"`
	Next      time.Time     `json:"next,omitzero"`      // earliest time of the next audit; before it the last answer is repeated
	Repeated  bool          `json:"repeated,omitempty"` // this is the last answer repeated
	Objects   int           `json:"objects"`
	Compared  int           `json:"compared,omitempty"` // objects compared one by one, because the checksum of all was not the expected one
	Took      time.Duration `json:"tookNanoseconds"`
	Missing   int           `json:"missing"`
	Different int           `json:"different"`
	Foreign   int           `json:"foreign"`
	Names     []string      `json:"names,omitempty"`  // the first of those objects
	Relays    bool          `json:"relays,omitempty"` // the agent carries the connections: the objects are its own
	Left      bool          `json:"left,omitempty"`   // nothing of it has been repaired
	Others    *[]Other      `json:"others,omitempty"` // rules of other programs at the same hooks; nil: not requested
	Unread    string        `json:"unread,omitempty"` // which rules of other programs could not be read
	Unserved  *Noted        `json:"unserved,omitempty"`
	Also      []Stranger    `json:"alsoHere,omitempty"` // other proxies, which answer for the same addresses
}

// Other is the effect of another program's table on packets of Services.
type Other struct {
	Where string `json:"where"`
	Does  string `json:"does"`
	To    string `json:"to"`
	// Sure: the rule names an address of a Service or of an endpoint. Otherwise the
	// rule may match any packet, or has a condition that is not parsed here.
	Sure bool `json:"sure"`
}

// Clean reports whether the actual state of the kernel was the desired one.
func (a *Audit) Clean() bool { return a.Missing+a.Different+a.Foreign == 0 }

// Unwell returns a message about the worst finding; "" if there is none.
func (a *Audit) Unwell() string {
	if !a.Clean() {
		done := "differed from the desired state and were repaired"
		if a.Left {
			done = "differ from the desired state; this audit did not repair them"
		}
		return fmt.Sprintf("%d objects in the kernel %s", a.Missing+a.Different+a.Foreign, done)
	}
	if a.Others != nil && len(*a.Others) > 0 && (*a.Others)[0].Sure {
		o := (*a.Others)[0]
		return fmt.Sprintf("%s: %s %s", o.Where, o.Does, o.To)
	}
	return ""
}

// Text writes the report.
func (a *Audit) Text(w io.Writer) {
	age := ""
	if a.Repeated {
		age = fmt.Sprintf(" (%s ago; the next audit is possible in %s)", a.Now.Sub(a.At).Round(time.Second), max(a.Next.Sub(a.Now), 0).Round(time.Second))
	}
	what := "kernel: %s objects read in %s, %d missing, %d different, %d foreign in Fairlead's tables%s\n"
	if a.Relays {
		what = "sockets and routes of the agent: %s objects read in %s, %d missing, %d different, %d foreign%s\n"
	}
	fmt.Fprintf(w, what, number(a.Objects), brief(a.Took), a.Missing, a.Different, a.Foreign, age)
	for _, n := range a.Names {
		fmt.Fprintf(w, "  %s%s\n", n, map[bool]string{false: " (repaired)"}[a.Left])
	}
	a.others(w)
	for i := range a.Also {
		fmt.Fprintf(w, "would handle packets of Fairlead's Services: %s\n", a.Also[i].text())
	}
	if u := a.Unserved; u != nil {
		fmt.Fprintf(w, "unserved: %d Services have endpoints but no usable one on this node, such as %s (reason: fairlead explain %s)\n",
			u.Services, strings.Join(u.Some, ", "), u.Some[0])
	}
}

// others writes the findings about the rules of other programs.
func (a *Audit) others(w io.Writer) {
	if a.Others == nil {
		return
	}
	if len(*a.Others) == 0 {
		also := " or iptables-legacy"
		if a.Unread != "" {
			also = ""
		}
		fmt.Fprintf(w, "other programs at the same hooks: no rule in nftables%s that ends the path of a packet\n", also)
	}
	if a.Unread != "" {
		fmt.Fprintf(w, "other programs at the same hooks: %s\n", a.Unread)
	}
	for _, o := range *a.Others {
		fmt.Fprintf(w, "other: %s: %s %s\n", o.Where, o.Does, o.To)
	}
}

// brief rounds a duration to three digits.
func brief(d time.Duration) time.Duration {
	step := time.Duration(1)
	for d/step >= 1000 {
		step *= 10
	}
	return d.Round(step)
}

// Rule is a rule of another program, as far as it can be parsed.
type Rule struct {
	Where, Does  string
	Daddr, Saddr *netip.Prefix
	Dport        uint16
}

// Concerns returns the effects that rules of other programs have on packets of
// Services, certain ones first. Only the engine's goroutine may call it. It reads all
// Services.
func Concerns(rules []Rule, v engine.View) []Other {
	t := targets{rules: rules, of: map[int]string{}}
	for k := range v.State().Keys() {
		svc, list := v.State().Service(k)
		t.service(k, svc, list)
	}
	out := []Other{}
	for i := range rules {
		r := &rules[i]
		limited := r.Daddr != nil || r.Saddr != nil
		o := Other{Where: r.Where, Does: "may " + r.Does, To: "any packet (the rule's other conditions are not parsed)", Sure: limited}
		if limited && t.of[i] == "" {
			continue // it matches no address of a Service or endpoint
		}
		if limited {
			o.Does, o.To = r.Does, r.text()+": "+t.of[i]
		}
		if r.Dport != 0 {
			o.To = fmt.Sprintf("port %d, %s", r.Dport, o.To)
		}
		out = append(out, o)
	}
	slices.SortStableFunc(out, func(a, b Other) int { return cmp.Compare(order(a), order(b)) })
	return slices.Compact(out)
}

func order(o Other) int {
	if o.Sure {
		return 0
	}
	return 1
}

func (r *Rule) text() string {
	if r.Daddr != nil {
		return "packets to " + r.Daddr.String()
	}
	return "packets from " + r.Saddr.String()
}

// targets finds for each rule one Service that it affects.
type targets struct {
	rules []Rule
	of    map[int]string
}

func (t *targets) service(k model.ServiceKey, svc *model.Service, list []*model.Slice) {
	if svc != nil && svc.Proxied {
		for _, addrs := range [...][]netip.Addr{svc.ClusterIPs, svc.LoadBalancerIPs, svc.ExternalIPs} {
			for _, a := range addrs {
				t.address(a, "an address of Service "+k.String())
			}
		}
	}
	for _, sl := range list {
		for i := range sl.Endpoints {
			t.address(sl.Endpoints[i].Addr, "an endpoint of Service "+k.String())
		}
	}
}

// address records the lowest name, so that the answer is stable.
func (t *targets) address(a netip.Addr, what string) {
	for i := range t.rules {
		r := &t.rules[i]
		if old := t.of[i]; old != "" && old <= what {
			continue
		}
		if r.Daddr != nil && r.Daddr.Contains(a) || r.Daddr == nil && r.Saddr != nil && r.Saddr.Contains(a) {
			t.of[i] = what
		}
	}
}
