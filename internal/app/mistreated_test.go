package app

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/test/flowlab"
)

// TestMistreated: an agent with acceleration among many links that come and go, beside somebody else's flowtable, and killed in its writes.
// Streams go on meanwhile, and all is well afterwards.
func TestMistreated(t *testing.T) {
	flowlab.OnlyIfAskedFor(t)
	inAcceleratedModes(t, func(n *acceleratedNode) {
		streams := []flowlab.Stream{n.Dial("tcp", "10.96.0.1:53"), n.Dial("udp", "[fd96::1]:53")}
		streams[0].Ask(20)
		n.wantDevices("with a long connection", "c0 s0")
		n.fast("at first", streams...)
		n.manyLinks(streams)
		n.strangersFlowtable(streams)
		n.killedInWrites(streams)
	})
}

// manyLinks: two hundred pods come, and go. Their links' names are as long as names are.
func (n *acceleratedNode) manyLinks(streams []flowlab.Stream) {
	n.Helper()
	const pods = 200
	var come, leave []string
	want := []string{"c0", "s0"}
	for i := range pods {
		outside, inside := fmt.Sprintf("veth%011d", i), fmt.Sprintf("eth%012d", i)
		come = append(come, "link add "+outside+" type veth peer name "+inside, "link set "+outside+" up", "link set "+inside+" up")
		leave = append(leave, "link del "+outside)
		want = append(want, outside, inside)
	}
	n.IP(come...)
	n.wantDevices("with many links", strings.Join(slices.Sorted(slices.Values(want)), " "))
	n.fast("with many links", streams...)
	n.IP(leave...)
	n.wantDevices("without them", "c0 s0")
	n.fast("without them", streams...)
	n.unharmed()
}

// strangersFlowtable: somebody else takes all connections over before our threshold, and then no more.
func (n *acceleratedNode) strangersFlowtable(streams []flowlab.Stream) {
	n.Helper()
	n.Feed("table inet other { flowtable g { hook ingress priority 0; devices = { c0, s0 }; }; chain f { type filter hook forward priority 0; flow add @g; }; }",
		"nft", "-f", "-")
	s := n.Dial("tcp", "10.96.0.1:53")
	if s.Ask(4); !s.Offloaded() {
		n.Error("the other flowtable takes nothing over")
	}
	n.fast("beside another flowtable", append(streams, s)...)
	n.Run("nft delete table inet other")
	n.fast("without the other flowtable", append(streams, s)...)
	n.unharmed()
}

// killedInWrites: it is killed at several moments after a start and a change, and the next one writes what is left.
func (n *acceleratedNode) killedInWrites(streams []flowlab.Stream) {
	n.Helper()
	for after := time.Duration(0); after < 160*time.Millisecond; after += 40 * time.Millisecond {
		_ = n.agent.cmd.Process.Kill()
		n.agent.code()
		n.own = map[bool]string{true: "7", false: "off"}[n.own == "off"]
		n.write()
		n.RecreateLink()
		n.agent = begin(n.T, n.args("20")...)
		time.Sleep(after) // the kill comes at another moment each time, and any moment will do
	}
	_ = n.agent.cmd.Process.Kill()
	n.agent.code()
	n.begin("20")
	n.wantDevices("after all", "c0 s0")
	n.fast("after all", streams...)
	n.unharmed()
	n.agent.terminate()
	n.begin("20")
	time.Sleep(2 * wakeLook) // that nothing is written cannot be waited for: the waker has looked by then
	if got := n.operations(); got != "0" {
		n.Errorf("after all, an agent that is started again writes %s objects", got)
	}
}

// unharmed: the log tells of no trouble, and status neither.
func (n *acceleratedNode) unharmed() {
	n.Helper()
	for _, level := range []string{"level=WARN", "level=ERROR"} {
		if log := n.agent.log(); strings.Contains(log, level) {
			n.Errorf("the log says\n%s", log)
		}
	}
	eventually(n.T, "status tells of acceleration", func() error {
		if got := n.metric("fairlead_offload_threshold_packets"); got != "20" {
			return errors.New("its threshold is " + got)
		}
		return nil
	})
}
