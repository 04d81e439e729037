package config

import (
	"time"

	"github.com/spf13/pflag"
)

// Userspace holds the settings of userspace mode.
type Userspace struct {
	Addresses          string // "service" or "loopback"; "" = as the namespace allows
	Map                string // file that maps each Service to the address where it is answered; "" = none
	ServiceConnections int    // most connections of one Service; 0 = its fair share only
	// Takeover: replace a running agent and continue with its sockets.
	Takeover bool
	// DrainGrace is how long connections continue in a process that has handed
	// over.
	DrainGrace time.Duration
	// EndpointGrace is how long connections continue to an endpoint that no longer exists; 0 = no
	// limit.
	EndpointGrace time.Duration
}

// userspaceNames returns the flags of Userspace. They apply in addition to
// --config.
func userspaceNames() []string {
	return []string{"userspace-addresses", "userspace-map", "userspace-service-connections", "userspace-drain-grace", "userspace-endpoint-grace", "takeover"}
}

func (u *Userspace) add(fs *pflag.FlagSet) {
	fs.StringVar(&u.Addresses, "userspace-addresses", "auto", "where Services are answered in userspace mode: service, on their own addresses (needs CAP_NET_ADMIN and should have a network namespace of its own); loopback, on addresses in 127.0.0.0/8; or auto, service in a user namespace that allows it, else loopback")
	fs.StringVar(&u.Map, "userspace-map", "", "file to which userspace mode writes where each Service is answered, one line per port")
	fs.IntVar(&u.ServiceConnections, "userspace-service-connections", 0, "maximum number of connections of one Service in userspace mode; 0: limited by the free file descriptors")
	fs.BoolVar(&u.Takeover, "takeover", false, "userspace mode: take the listening sockets over from the running agent, which then ends with its last connection; no client is refused during the handover")
	fs.DurationVar(&u.DrainGrace, "userspace-drain-grace", 15*time.Minute, "how long connections continue in an agent of userspace mode that has handed over to its successor; 0: they end at once")
	fs.DurationVar(&u.EndpointGrace, "userspace-endpoint-grace", 15*time.Minute, "how long connections to a removed endpoint continue in userspace mode, unless the Service has the annotation fairlead.dev/endpoint-grace; 0: without limit")
}

// fill validates the flags and returns the settings.
func (u *Userspace) fill(v *validator) Userspace {
	out := *u
	switch out.Addresses {
	case "auto":
		out.Addresses = ""
	case "service", "loopback":
	default:
		v.badOwn("userspace-addresses", out.Addresses, "must be auto, service or loopback")
	}
	if out.ServiceConnections < 0 {
		v.badOwn("userspace-service-connections", "a negative number", "must be 0 or more")
	}
	if out.DrainGrace < 0 {
		v.badOwn("userspace-drain-grace", out.DrainGrace.String(), "must not be negative")
	}
	if out.EndpointGrace < 0 {
		v.badOwn("userspace-endpoint-grace", out.EndpointGrace.String(), "must not be negative")
	}
	return out
}
