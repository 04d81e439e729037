package sysctl

import (
	"errors"
	"os"
	"slices"
	"testing"
	"time"
)

func kernel() *Fake {
	return &Fake{Values: map[string]string{
		routeLocalnet: "0", conntrackMax: "65536", HashSize: "16384", tcpEstablished: "432000", tcpCloseWait: "60",
		tcpBeLiberal: "0", udpTimeout: "30", udpStream: "120",
	}}
}

func TestApplyConntrack(t *testing.T) {
	for name, tc := range map[string]struct {
		c     Conntrack
		cores int
		want  []string
	}{
		"nothing asked": {Conntrack{}, 4, nil},
		"kube-proxy's defaults": {
			Conntrack{MaxPerCore: 32768, Min: 131072, TCPEstablished: 24 * time.Hour, TCPCloseWait: time.Hour}, 8,
			[]string{conntrackMax + "=262144", HashSize + "=65536", tcpEstablished + "=86400", tcpCloseWait + "=3600"},
		},
		"minimum":               {Conntrack{MaxPerCore: 32768, Min: 131072}, 2, []string{conntrackMax + "=131072", HashSize + "=32768"}},
		"ceiling":               {Conntrack{MaxPerCore: 32768, Min: 131072}, 64, []string{conntrackMax + "=1048576", HashSize + "=262144"}},
		"minimum above ceiling": {Conntrack{MaxPerCore: 1, Min: 2 << 20}, 1, []string{conntrackMax + "=2097152", HashSize + "=524288"}},
		"no limit, no minimum":  {Conntrack{MaxPerCore: 0, Min: 131072}, 2, nil},
		"hash large enough":     {Conntrack{MaxPerCore: 32000}, 2, []string{conntrackMax + "=64000"}},
		"already so":            {Conntrack{MaxPerCore: 65536, TCPCloseWait: time.Minute, UDP: 30 * time.Second}, 1, nil},
		"the rest": {
			Conntrack{TCPBeLiberal: true, UDP: 5 * time.Second, UDPStream: 6 * time.Second}, 1,
			[]string{udpTimeout + "=5", udpStream + "=6", tcpBeLiberal + "=1"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := kernel()
			changes := ApplyConntrack(f, tc.c, tc.cores)
			if !slices.Equal(f.Sets, tc.want) {
				t.Errorf("wrote %q, want %q", f.Sets, tc.want)
			}
			if len(changes) != len(tc.want) {
				t.Errorf("reported %v", changes)
			}
			if again := ApplyConntrack(f, tc.c, tc.cores); len(again) != 0 {
				t.Errorf("second run changed %v", again)
			}
		})
	}
}

func TestWhatCannotBeSetIsReportedAndTheRestIsSet(t *testing.T) {
	f := kernel()
	f.ReadOnly = map[string]bool{conntrackMax: true, HashSize: true}
	delete(f.Values, tcpCloseWait)
	changes := ApplyConntrack(f, Conntrack{MaxPerCore: 1 << 17, TCPCloseWait: time.Hour, UDP: time.Second}, 1)
	if want := []string{udpTimeout + "=1"}; !slices.Equal(f.Sets, want) {
		t.Errorf("wrote %q, want %q", f.Sets, want)
	}
	var bad []string
	for _, c := range changes {
		if c.Err != nil {
			bad = append(bad, c.Name)
		}
	}
	if want := []string{conntrackMax, HashSize, tcpCloseWait}; !slices.Equal(bad, want) {
		t.Errorf("errors for %q, want %q", bad, want)
	}
	if !errors.Is(changes[0].Err, os.ErrPermission) {
		t.Errorf("cause lost: %v", changes[0].Err)
	}
}

func TestCountFlows(t *testing.T) {
	f := &Fake{Values: map[string]string{conntrackAcct: "0"}}
	if c := CountFlows(f); c == nil || c.Err != nil || c.From != "0" || c.To != "1" {
		t.Errorf("first: %+v", c)
	}
	if c := CountFlows(f); c != nil {
		t.Errorf("second: %+v", c)
	}
}

func TestEnsureRouteLocalnet(t *testing.T) {
	f := kernel()
	if c := EnsureRouteLocalnet(f); c == nil || c.Err != nil || c.From != "0" || c.To != "1" {
		t.Errorf("first: %+v", c)
	}
	if c := EnsureRouteLocalnet(f); c != nil {
		t.Errorf("second: %+v", c)
	}
}
