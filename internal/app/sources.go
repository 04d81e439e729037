package app

import (
	"context"
	"time"

	"github.com/fairlead/fairlead/internal/config"
	"github.com/fairlead/fairlead/internal/dataplane/userspace"
	"github.com/fairlead/fairlead/internal/node"
	"github.com/fairlead/fairlead/internal/policy"
	"github.com/fairlead/fairlead/internal/source/exclusions"
	"github.com/fairlead/fairlead/internal/source/file"
	"github.com/fairlead/fairlead/internal/source/k8s"
)

// addExclusions adds the file of the addresses that are never accelerated as a source, and returns the source's name.
func (a *agent) addExclusions() []string {
	if a.cfg.Offload.ExcludeFile == "" || a.offload == nil {
		return nil
	}
	w := exclusions.New(a.cfg.Offload.ExcludeFile)
	a.add("exclusions from acceleration", func(ctx context.Context) error { return w.Run(ctx, a.put) })
	return []string{exclusions.Name}
}

// addSource adds the folder or the API server, and returns the names of the
// sources that must be read before anything is written.
func (a *agent) addSource(version string) ([]string, error) {
	cfg := a.cfg
	headless := a.readsHeadless()
	if cfg.Manifests != "" {
		s := file.New(file.Config{Dir: cfg.Manifests, EmptyDeletes: cfg.ManifestsEmptyDeletes, NodeName: cfg.NodeName, Headless: headless,
			LocalEndpoints: a.rootless != nil, Log: a.log.Logger})
		a.reportFolder()
		a.add("manifests", func(ctx context.Context) error { return s.Run(ctx, a.put) })
		return append([]string{file.Name, node.Name}, a.addExclusions()...), nil
	}
	s, err := k8s.New(k8s.Config{Kubeconfig: cfg.Client.Kubeconfig, Master: cfg.Client.Master, ContentType: cfg.Client.ContentType,
		QPS: cfg.Client.QPS, Burst: cfg.Client.Burst, NodeName: cfg.NodeName, Headless: headless, UserAgent: "fairlead/" + version, Log: a.log.Logger})
	if err != nil {
		return nil, err
	}
	k8s.ReportRequests(a.metrics.RESTLatency(), a.metrics.RESTResult())
	rec := s.Recorder("fairlead", cfg.NodeName)
	a.recorder, a.status, a.events = rec, s.Status, newServiceEvents(rec.WarnForAll, a.caps.Unsupported)
	a.add("API server", func(ctx context.Context) error { return s.Run(ctx, a.put) })
	a.add("events", func(ctx context.Context) error { rec.Run(ctx); return nil })
	a.add("empty Services", a.events.run)
	if cfg.StartupTaint != "" {
		a.add("start-up taint", func(ctx context.Context) error {
			u := untaint{key: cfg.StartupTaint, synced: a.follow.inKernel, remove: s.RemoveTaint, pause: pauseFor, log: a.log}
			return u.run(ctx)
		})
	}
	a.add("watch metrics", func(ctx context.Context) error { return a.reportWatch(ctx, s) })
	return append([]string{k8s.Name, node.Name}, a.addExclusions()...), nil
}

// readsHeadless reports whether headless Services and those of other proxies are read: only DNS needs them.
func (a *agent) readsHeadless() bool { return len(a.cfg.DNS.Addrs) > 0 }

// reportFolder updates the metric of whether the folder of manifests, if there is one, can be read.
func (a *agent) reportFolder() {
	if a.cfg.Manifests != "" {
		a.metrics.Watch("manifests", a.memory.unreadable() == "", time.Time{})
	}
}

// reportWatch updates the metrics of the state of the watch, each second.
func (a *agent) reportWatch(ctx context.Context, s *k8s.Source) error {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		for _, r := range s.Status().Resources {
			a.metrics.Watch(r.Name, r.Connected, r.LastHeard)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// viewInputs returns what the configuration and the probes say about the node.
func (a *agent) viewInputs() policy.ViewInputs {
	in := viewInputs(a.cfg)
	if a.rootless != nil {
		in.NoSource = a.rootless.noSource
	}
	return in
}

// viewInputs returns what the configuration says about the node.
func viewInputs(cfg *config.Config) policy.ViewInputs {
	iface := cfg.DetectLocal.Bridge
	if cfg.DetectLocal.Mode == config.InterfaceNamePrefix {
		iface = cfg.DetectLocal.Prefix
	}
	return policy.ViewInputs{
		Cluster:         cfg.Manifests == "",
		NodePortPrimary: cfg.NodePorts.Primary, NodePortCIDRs: cfg.NodePorts.CIDRs,
		Mode: policy.LocalModeName(cfg.DetectLocal.Mode), ClusterCIDRs: cfg.DetectLocal.ClusterCIDRs, Interface: iface,
		MasqueradeAll: cfg.MasqueradeAll, MasqueradeBit: cfg.MasqueradeBit,
		CountRefusals:  cfg.ServiceMetrics > 0,
		LocalhostPorts: cfg.LocalhostNodePorts, BindAddress: cfg.BindAddress,
		NoExternalIPs: !cfg.FeatureGates["AllowServiceExternalIPs"], NoExternalIPsOfNode: cfg.NoExternalIPsOfNode,
		Relayed: cfg.Mode == userspace.Name,
	}
}
