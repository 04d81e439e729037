package policy

import "github.com/fairlead/fairlead/internal/model"

// needRelay names the wishes of a Service that the kernel's rules cannot fulfil.
func needRelay(svc *model.Service) (out []model.Problem) {
	add := func(asked bool, annotation, why string) {
		if asked {
			out = append(out, model.Problem{Object: "Service " + svc.Key.String(),
				Field: "metadata.annotations[fairlead.dev/" + annotation + "]", Reason: "only userspace mode can do that: " + why})
		}
	}
	r := svc.Extras.Relay
	add(r.ProxyProtocol, "proxy-protocol", "rules of the kernel write nothing into a connection, so the endpoints get no header")
	add(r.EndpointGrace != 0, "endpoint-grace", "rules of the kernel end no connection")
	add(r.MaxConnections != 0, "max-connections", "rules of the kernel count no connections")
	return out
}
