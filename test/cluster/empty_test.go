package cluster

import (
	"testing"
	"time"
)

// untilTold bounds the wait for an Event about an empty Service: the agent waits for a minute, and reads the request counts once a
// minute.
const untilTold = 5 * time.Minute

// testEmptyServiceIsTold: where requests are counted, a Service without endpoints gets an Event if clients send requests to it, even
// if it was already empty when the agent started. A Service without requests gets no Event.
func testEmptyServiceIsTold(t *testing.T, e *env) {
	if e.subject.name != "fairlead" {
		t.Skip("the flag is Fairlead's") // kube-proxy as the subject has no such flag
	}
	asked := clusterIPs(e.createService("asked"))
	e.createService("idle")
	e.agent.args = append(e.agent.args, "--service-metrics=10")
	e.agent.start()
	e.eventually("it refuses", e.refused(asked))
	e.within(untilTold, "the Event", e.warned("NoEndpoints", "asked"))
	if err := e.warned("NoEndpoints", "idle")(t.Context()); err == nil {
		t.Error("there is an Event on the Service that nobody asked for")
	}
	e.agent.mustLive()
}
