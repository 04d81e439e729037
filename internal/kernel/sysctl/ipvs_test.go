package sysctl

import "testing"

// TestIPVS: kube-proxy of 2019 left conn_reuse_mode 0 behind; each setting is made once.
func TestIPVS(t *testing.T) {
	for _, c := range []struct {
		name   string
		newer  bool
		strict bool
		want   map[string]string
	}{
		{"Linux 5.4", false, false, map[string]string{"net/ipv4/vs/conn_reuse_mode": "0", "net/ipv4/conf/all/arp_ignore": "0"}},
		{"Linux 6.1", true, true, map[string]string{"net/ipv4/vs/conn_reuse_mode": "1", "net/ipv4/conf/all/arp_ignore": "1", "net/ipv4/conf/all/arp_announce": "2"}},
	} {
		f := &Fake{Values: map[string]string{"net/ipv4/vs/conntrack": "0", "net/ipv4/vs/conn_reuse_mode": "0", "net/ipv4/vs/expire_nodest_conn": "0",
			"net/ipv4/vs/expire_quiescent_template": "0", "net/ipv4/ip_forward": "0", "net/ipv4/conf/all/arp_ignore": "0", "net/ipv4/conf/all/arp_announce": "0"}}
		for _, ch := range IPVS(f, c.newer, c.strict) {
			if ch.Err != nil {
				t.Errorf("%s: %v", c.name, ch.Err)
			}
		}
		for name, want := range c.want {
			if got, err := f.Get(name); got != want || err != nil {
				t.Errorf("%s: %s is %s, %v; want %s", c.name, name, got, err, want)
			}
		}
		if again := IPVS(f, c.newer, c.strict); len(again) > 0 {
			t.Errorf("%s: the second time %v", c.name, again)
		}
	}
}
