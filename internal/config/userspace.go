package config

import "github.com/spf13/pflag"

// Userspace are the settings of userspace mode.
type Userspace struct {
	Addresses          string // "service" or "loopback"; "" = as the namespace allows
	Map                string // file that says where each Service is answered; "" = none
	ServiceConnections int    // most connections of one Service; 0 = its fair share only
}

// userspaceNames are its flags; they hold beside --config too.
func userspaceNames() []string {
	return []string{"userspace-addresses", "userspace-map", "userspace-service-connections"}
}

func (u *Userspace) add(fs *pflag.FlagSet) {
	fs.StringVar(&u.Addresses, "userspace-addresses", "auto", "where Services are answered in userspace mode: service, on their own addresses (needs CAP_NET_ADMIN and should have a network namespace of its own); loopback, on addresses in 127.0.0.0/8; or auto, the first in a user namespace that allows it, else the second")
	fs.StringVar(&u.Map, "userspace-map", "", "file into which userspace mode writes where each Service is answered, a line for each port")
	fs.IntVar(&u.ServiceConnections, "userspace-service-connections", 0, "most connections of one Service in userspace mode; 0: as many as file descriptors are still free")
}

// fill checks and takes over the settings.
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
	return out
}
