package inspect

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"github.com/fairlead/fairlead/internal/model"
)

// Subject is the subject of a question: a Service, or a destination of packets.
type Subject struct {
	Service model.ServiceKey // of a Service by name
	Port    string           // of that Service: a name or a number; "" means all

	To       netip.AddrPort // otherwise the destination of a packet; an invalid address means a NodePort
	Protocol model.Protocol // 0: any
}

// ByName reports whether the Subject is a Service by its name.
func (s Subject) ByName() bool { return s.Service.Name != "" }

// ParseSubject parses [NS/]SERVICE[:PORT], IP:PORT[/PROTO] or :NODEPORT[/PROTO].
func ParseSubject(text, namespace string) (Subject, error) {
	if s, ok := parseAddress(text); ok {
		return s, nil
	}
	if namespace == "" {
		namespace = "default"
	}
	name, port, _ := strings.Cut(text, ":")
	if ns, n, both := strings.Cut(name, "/"); both {
		namespace, name = ns, n
	}
	if name == "" || namespace == "" || strings.ContainsAny(name, "/[] .") || strings.Contains(port, ":") {
		return Subject{}, fmt.Errorf("%q is not [NAMESPACE/]SERVICE[:PORT], IP:PORT[/PROTOCOL] or :NODEPORT", text)
	}
	return Subject{Service: model.ServiceKey{Namespace: namespace, Name: name}, Port: port}, nil
}

func parseAddress(text string) (Subject, bool) {
	var s Subject
	at, proto, named := strings.Cut(text, "/")
	if named {
		p, ok := model.ParseProtocol(strings.ToUpper(proto))
		if !ok || proto == "" {
			return s, false
		}
		s.Protocol = p
	}
	if number, isNodePort := strings.CutPrefix(at, ":"); isNodePort {
		port, err := strconv.ParseUint(number, 10, 16)
		s.To = netip.AddrPortFrom(netip.Addr{}, uint16(port))
		return s, err == nil && port > 0
	}
	to, err := netip.ParseAddrPort(at)
	s.To = netip.AddrPortFrom(to.Addr().Unmap(), to.Port())
	return s, err == nil && to.Port() > 0 && to.Addr().Zone() == ""
}

// protocols returns the protocols that the Subject may mean.
func (s Subject) protocols() []model.Protocol {
	if s.Protocol != 0 {
		return []model.Protocol{s.Protocol}
	}
	return []model.Protocol{model.TCP, model.UDP, model.SCTP}
}
