package policy

import "github.com/fairlead/fairlead/internal/model"

// unfulfilled returns the requests of a Service that only a data plane that carries
// connections can fulfil, and that this node's data plane cannot.
func unfulfilled(svc *model.Service, node *Self) (out []model.Problem) {
	add := func(asked bool, annotation, why string) {
		if asked {
			out = append(out, model.Problem{Object: "Service " + svc.Key.String(),
				Field: "metadata.annotations[fairlead.dev/" + annotation + "]", Reason: why})
		}
	}
	r := svc.Extras.Relay
	if node.Relayed {
		add(r.KeepSource && node.NoSource != "", "source-address", "the endpoints see this agent's address, not the client's: "+node.NoSource)
		return out
	}
	const only = "only userspace mode can do that: "
	add(r.ProxyProtocol, "proxy-protocol", only+"rules of the kernel write nothing into a connection, so the endpoints get no header")
	add(r.EndpointGrace != 0, "endpoint-grace", only+"rules of the kernel end no connection")
	add(r.MaxConnections != 0, "max-connections", only+"rules of the kernel count no connections")
	add(r.KeepSource, "source-address", only+"rules of the kernel leave the client's address as it is, but for connections that they must masquerade")
	return out
}
