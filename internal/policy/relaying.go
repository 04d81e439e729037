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
	const only = "supported in userspace mode only: "
	add(r.ProxyProtocol, "proxy-protocol", only+"kernel rules cannot insert data into a connection, so the endpoints receive no PROXY header")
	add(r.EndpointGrace != 0, "endpoint-grace", only+"kernel rules cannot close a connection")
	add(r.MaxConnections != 0, "max-connections", only+"kernel rules cannot limit the number of connections")
	add(r.KeepSource, "source-address", only+"kernel rules keep the client's address, except for connections that they must masquerade")
	return out
}
