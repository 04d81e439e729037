package wait

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// Params are what to wait for.
type Params struct {
	Service   string // "NAME", with or without "service/" in front
	Namespace string // "" = the pod's own
	Endpoints int    // how many pods must be published; 0 with Hostnames = as many as those, else 1
	Hostnames []string
	Resolve   bool          // a lookup in this pod must find them too
	Connect   uint16        // TCP port that must accept on each; 0 = none
	Timeout   time.Duration // 0 = check once
	Server    string        // name server, "" = that of ResolvConf
	// ResolvConf and Account are files of the pod; "" = where a pod has them.
	ResolvConf string
	Account    string
	Out        io.Writer // progress and the verdict
}

// ErrTimeout is returned when the time ran out. What was missing has been
// written to Params.Out.
var ErrTimeout = errors.New("not complete in time")

// usageError is an error in the command's arguments.
type usageError struct{ error }

func (u usageError) Unwrap() error { return u.error }

// ExitCode returns the process's exit code for an error of the command: 0 all there,
// 1 not in time, 2 wrong usage.
func ExitCode(err error) int {
	var u usageError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &u):
		return 2
	}
	return 1
}

// Command returns the subcommand wait. Its errors are to be passed to ExitCode.
func Command() *cobra.Command {
	p := Params{}
	cmd := &cobra.Command{
		Use:   "wait service/NAME",
		Short: "Wait until a Service has its endpoints; for init containers",
		Long: `wait blocks until a Service has the endpoints that a program needs before it
starts. It queries the pod's own name server and needs no rights. At the timeout
it lists the missing endpoints; if the name server is Fairlead's, with the reasons.

Exit code 0: complete. 1: not complete in time. 2: wrong usage.`,
		Example:      "  fairlead wait service/flux --hostnames flux-0 --connect 8050 --timeout 120s\n  fairlead wait service/flux --endpoints 4",
		SilenceUsage: true, SilenceErrors: true,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usageError{fmt.Errorf("wait takes one argument, service/NAME, and got %d", len(args))}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			p.Service, p.Out = args[0], cmd.ErrOrStderr()
			return Run(cmd.Context(), p)
		},
	}
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{err} })
	f := cmd.Flags()
	f.StringVarP(&p.Namespace, "namespace", "n", "", "namespace of the Service (default the pod's, by its DNS search list)")
	f.IntVar(&p.Endpoints, "endpoints", 0, "number of endpoints that must be published; a pod with addresses of two families counts once (default 1, or one for each of --hostnames)")
	f.StringSliceVar(&p.Hostnames, "hostnames", nil, "hostnames of endpoints that must be published, such as flux-0,flux-1")
	f.BoolVar(&p.Resolve, "resolve", false, "also wait until the names resolve with this pod's search list, at its first name server")
	f.Uint16Var(&p.Connect, "connect", 0, "also wait until each endpoint accepts TCP on this port")
	f.DurationVar(&p.Timeout, "timeout", time.Minute, "how long to wait; 0 = check once")
	f.StringVar(&p.Server, "server", "", "name server to query, address or address:port (default that of /etc/resolv.conf)")
	return cmd
}

// check validates the parameters and fills in the defaults.
func (p *Params) check() error {
	name, ok := strings.CutPrefix(p.Service, "service/")
	if !ok {
		name = strings.TrimPrefix(p.Service, "svc/")
	}
	if name == "" || strings.ContainsAny(name, "/. ") {
		return usageError{fmt.Errorf("%q is not a Service: write service/NAME, and the namespace with -n", p.Service)}
	}
	p.Service = name
	if p.Endpoints < 0 || p.Timeout < 0 {
		return usageError{errors.New("the number of endpoints and the timeout must not be negative")}
	}
	if p.Endpoints == 0 && len(p.Hostnames) == 0 {
		p.Endpoints = 1
	}
	for i, h := range p.Hostnames {
		p.Hostnames[i] = strings.ToLower(strings.TrimSpace(h))
		if p.Hostnames[i] == "" || strings.Contains(h, ".") {
			return usageError{fmt.Errorf("%q is not a hostname of an endpoint: it must be one label, such as flux-0", h)}
		}
	}
	if p.ResolvConf == "" {
		p.ResolvConf = "/etc/resolv.conf"
	}
	if p.Account == "" {
		p.Account = "/var/run/secrets/kubernetes.io/serviceaccount"
	}
	return nil
}
