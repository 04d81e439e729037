package config

import (
	"github.com/spf13/pflag"
)

// ownFlags are Fairlead's, next to kube-proxy's. They hold beside --config too:
// its file has no fields for them.
type ownFlags struct {
	resetGone bool
	dns       dnsFlags
}

// ownNames are those that --config does not make void.
func ownNames() []string {
	return append(dnsNames(), "manifests", "reset-gone-endpoints", "iptables-backend")
}

func (f *Flags) addOwn(fs *pflag.FlagSet) {
	o := &f.own
	fs.BoolVar(&o.resetGone, "reset-gone-endpoints", false, "end open TCP connections to endpoints that no longer exist; terminating endpoints finish theirs")
	o.dns.add(fs)
}

// fillOwn checks and takes over our own settings.
func (f *Flags) fillOwn(c *Config, v *validator) {
	o := &f.own
	c.ResetGoneEndpoints = o.resetGone
	c.DNS = o.dns.fill(v)
}

func (v *validator) badOwn(flag, value, reason string) {
	v.errs = append(v.errs, &FieldError{Field: flag, Flag: flag, Value: value, Reason: reason})
}
