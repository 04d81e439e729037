package app

import (
	"net/netip"

	"github.com/fairlead/fairlead/internal/dataplane/ipvs"
	"github.com/fairlead/fairlead/internal/engine"
	"github.com/fairlead/fairlead/internal/localhost"
	"github.com/fairlead/fairlead/internal/model"
)

// addLocalhost adds the listeners that answer NodePorts on ::1, which no kernel
// rule can (KEP-6032). Until the configuration asks for them they listen nowhere.
func (a *agent) addLocalhost() {
	if a.cfg.Mode == ipvs.Name && a.caps.Has(model.IPv4) { // IPVS sends nothing from 127.0.0.1 to another host
		a.loopback = localhost.New(localhost.Params{
			Addr: netip.AddrFrom4([4]byte{127, 0, 0, 1}), Log: a.log.Logger, OnBindError: a.onLocalhostError, OnRejected: a.metrics.LocalRejected,
		})
		a.add("localhost NodePorts of IPv4", a.loopback.Run)
	}
	if !a.caps.Has(model.IPv6) {
		return
	}
	a.localhost = localhost.New(localhost.Params{
		Addr: netip.IPv6Loopback(), Log: a.log.Logger, OnBindError: a.onLocalhostError,
		OnListening: a.metrics.LocalListeners, OnRejected: a.metrics.LocalRejected,
	})
	a.add("localhost NodePorts", a.localhost.Run)
}

func (a *agent) onLocalhostError(svc model.ServiceKey, _ uint16, err error) {
	a.metrics.LocalListenFailed()
	if a.recorder != nil {
		a.recorder.Warn(svc, "FailedToListenOnLocalhost", err.Error())
	}
}

// answerLocally updates the listeners with the changes of a committed sync.
func (f *follower) answerLocally(t *engine.Turn) {
	var decided []model.Frontend
	for i := range t.Decided {
		decided = append(decided, t.Decided[i].Result.Frontends...)
	}
	if l := f.a.localhost; l != nil {
		if t.View != nil {
			l.Enable(t.View.ListenLocalhost)
		}
		l.Update(decided, t.Gone)
	}
	if l := f.a.loopback; l != nil {
		if t.View != nil {
			l.Enable(t.View.LocalhostNodePorts)
		}
		l.Update(decided, t.Gone)
	}
}
