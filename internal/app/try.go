package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/choose"
	"github.com/fairlead/fairlead/internal/config"
	"github.com/fairlead/fairlead/internal/dataplane"
	"github.com/fairlead/fairlead/internal/dataplane/offload"
	kerneliptables "github.com/fairlead/fairlead/internal/kernel/iptables"
	kernelipvs "github.com/fairlead/fairlead/internal/kernel/ipvs"
	"github.com/fairlead/fairlead/internal/kernel/nft"
)

// tryLimit bounds how long one mode is tried: a kernel that is only busy is asked again
// until then, and one in an emulator may load its modules for half a minute.
const tryLimit = probeLimit

// Where a mode was tried, in words that follow "was tried".
const (
	apart = "in a network namespace of its own"
	here  = "in this network namespace, because a separate one needs CAP_SYS_ADMIN"
)

// trial tries modes with the settings of cfg.
type trial struct {
	cfg   *config.Config
	where string // of the last try that was not about userspace mode
}

// try opens a mode, runs its driver's probe, and closes everything. It does this in a
// new network namespace, so that not even tables that iptables creates on a read, or
// virtual servers of IPVS, affect the node's traffic.
func (t *trial) try(ctx context.Context, mode string) choose.Try {
	ctx, cancel := context.WithTimeout(ctx, tryLimit)
	defer cancel()
	var caps dataplane.Caps
	probed := func() (err error) {
		caps, err = probeMode(ctx, withMode(t.cfg, mode))
		return err
	}
	var err error
	if mode == choose.Userspace { // its sockets leave nothing behind, and a new namespace has no loopback address
		err = probed()
	} else {
		err = t.inside(probed)
	}
	out := choose.Try{Mode: mode, Works: err == nil, Notes: caps.Notes}
	switch {
	case err == nil:
		out.Why = strings.Join(strings.Fields(strings.Trim(fmt.Sprint(caps.Families), "[]")), " and ")
	default:
		out.Why, out.Unsure, out.Notes = oneLine(err), !certain(err), nil
	}
	return out
}

// inside runs f in a new network namespace, or here if none can be made.
func (t *trial) inside(f func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread, and with it the namespace, ends with the goroutine
		t.where = apart
		if unix.Unshare(unix.CLONE_NEWNET) != nil {
			t.where = here
		}
		done <- f()
	}()
	return <-done
}

// withMode returns a copy of cfg with another mode, as the package choose names it.
func withMode(cfg *config.Config, mode string) *config.Config {
	c := *cfg
	c.Mode, c.IPTablesBackend, _ = strings.Cut(mode, "-")
	return &c
}

func probeMode(ctx context.Context, cfg *config.Config) (dataplane.Caps, error) {
	plane, err := openDriver(ctx, cfg)
	if err != nil {
		return dataplane.Caps{}, err
	}
	defer plane.close()
	return probe(ctx, plane.driver, slog.New(slog.DiscardHandler))
}

// certain distinguishes an error that says what is missing from one that may pass.
func certain(err error) bool {
	for _, e := range [...]error{dataplane.ErrUnsupported, kerneliptables.ErrNoPrograms, kernelipvs.ErrNoIPVS,
		unix.EPERM, unix.EACCES, unix.EPROTONOSUPPORT, unix.EAFNOSUPPORT, unix.EOPNOTSUPP} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

func oneLine(err error) string {
	return strings.Join(strings.FieldsFunc(err.Error(), func(r rune) bool { return r == '\n' }), "; ")
}

// accelerate tries what would let open connections bypass the rules: a flowtable and a
// rule that fills it, created and deleted in one transaction.
func (t *trial) accelerate(ctx context.Context) choose.Try {
	err := t.inside(func() error {
		k, err := nft.Open(nft.Config{})
		if err != nil {
			return err
		}
		defer func() { _ = k.Close() }()
		table := nft.TableRef{Family: nft.IPv4, Name: "fairlead-probe"}
		var b nft.Batch
		b.NewTable(table, nil)
		b.NewFlowtable(nft.Flowtable{Ref: table.Set("flows")})
		b.NewChain(nft.ChainSpec{Ref: table.Chain("forward"), Hook: &nft.Hook{Type: "filter", Num: nft.HookForward}})
		b.NewRule(nft.RuleSpec{Chain: table.Chain("forward"), Exprs: []nft.Expr{nft.FlowOffload("flows")}})
		b.DelTable(table)
		_, err = k.Commit(ctx, &b)
		return err
	})
	out := choose.Try{Mode: "acceleration", Why: offload.Fault(release())}
	if doubt := offload.Suspicion(release()); out.Why == "" && doubt != "" {
		out.Notes = append(out.Notes, doubt+": the agent tests it with packets when it starts")
	}
	switch {
	case err != nil:
		out.Why = noFlowtables(err)
	case out.Why == "":
		out.Works, out.Why = true, "in nftables and iptables modes, with --feature-gates=KubeProxyAcceleration=true"
	}
	return out
}

// noFlowtables returns what the error of the attempt to create a flowtable means.
func noFlowtables(err error) string {
	if errors.Is(err, unix.EPERM) {
		return "cannot test here whether the kernel has flowtables: " + oneLine(err)
	}
	return "the kernel has no flowtables (CONFIG_NF_FLOW_TABLE): " + oneLine(err)
}
