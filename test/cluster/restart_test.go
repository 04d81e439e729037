package cluster

import (
	"fmt"
	"testing"
	"time"
)

// reconnect bounds the wait for a change after the API server was unavailable: client-go backs off up to 30 s.
const reconnect = 60 * time.Second

func testKillAgent(t *testing.T, e *env) {
	steady, changed, doomed := clusterIPs(e.createService("steady")), clusterIPs(e.createService("changed")), clusterIPs(e.createService("doomed"))
	e.setBackends("steady", 8080, "pod-a1", "pod-b1", "pod-b2")
	e.setBackends("changed", 8080, "pod-a1")
	e.setBackends("doomed", 8080, "pod-a2")
	e.agent.start()
	e.eventually("all Services answer", e.reach(steady, 8080, "pod-a1", "pod-b1", "pod-b2"))
	e.eventually("all Services answer", e.reach(changed, 8080, "pod-a1"))
	e.eventually("all Services answer", e.reach(doomed, 8080, "pod-a2"))

	tr := e.startTraffic(steady)
	e.agent.kill()
	tr.goOn()
	e.setBackends("changed", 8081, "pod-b1", "pod-b2")
	e.deleteService("doomed")
	e.setBackends("doomed", 8080)
	created := clusterIPs(e.createService("created"))
	e.setBackends("created", 8080, "pod-a3")
	e.agent.start()
	e.eventually("a change made while the agent was down", e.reach(changed, 8081, "pod-b1", "pod-b2"))
	e.eventually("a Service created while the agent was down", e.reach(created, 8080, "pod-a3"))
	e.eventually("a Service deleted while the agent was down", e.silent(doomed))
	tr.stop()
	e.agent.mustLive()
}

// testKillAgentInBurst kills the agent in the middle of a burst of changes, several times. Whatever state it left
// half done, the next process must end in sync with the API server, and Services that did not change must lose no
// request.
func testKillAgentInBurst(t *testing.T, e *env) {
	const burst, lives = 30, 5
	steady := clusterIPs(e.createService("steady"))
	e.setBackends("steady", 8080, "pod-a1", "pod-b1")
	var services [burst][]frontend
	for i := range services {
		services[i] = clusterIPs(e.createService(fmt.Sprint("burst-", i)))
	}
	e.agent.start()
	e.eventually("the Service answers", e.reach(steady, 8080, "pod-a1", "pod-b1"))
	tr := e.startTraffic(steady)
	pods := [lives]string{"pod-a2", "pod-b2", "pod-a3", "pod-b3", "pod-a1"}
	for life, pod := range pods {
		for i := range services {
			e.setBackends(fmt.Sprint("burst-", i), 8080, pod)
			if i == burst*(life+1)/(lives+1) { // at a different point each time
				e.agent.kill()
				e.agent.start()
			}
		}
	}
	for i, s := range services {
		e.eventually(fmt.Sprintf("Service %d has its last backend", i), e.reach(s, 8080, pods[lives-1]))
	}
	tr.stop()
	e.agent.mustLive()
}

// testTerminateAgent: an upgrade stops the agent with SIGTERM, and Services keep working throughout.
func testTerminateAgent(t *testing.T, e *env) {
	web := clusterIPs(e.createService("web"))
	e.setBackends("web", 8080, "pod-a1", "pod-b1")
	e.agent.start()
	e.eventually("the Service answers", e.reach(web, 8080, "pod-a1", "pod-b1"))
	tr := e.startTraffic(web)
	for range 3 {
		e.agent.terminate()
		tr.goOn()
		e.agent.start()
		tr.goOn()
	}
	other := clusterIPs(e.createService("other"))
	e.setBackends("other", 8080, "pod-b2")
	e.eventually("the last start works", e.reach(other, 8080, "pod-b2"))
	tr.stop()
}

func testKillAPIServer(t *testing.T, e *env) {
	web := clusterIPs(e.createService("web"))
	e.setBackends("web", 8080, "pod-a1", "pod-b1")
	other := clusterIPs(e.createService("other"))
	e.agent.start()
	e.eventually("the Service answers", e.reach(web, 8080, "pod-a1", "pod-b1"))

	tr := e.startTraffic(web)
	e.cluster.KillAPIServer()
	tr.goOn()
	e.agent.mustLive()
	must(t, e.cluster.StartAPIServer(t.Context()))
	e.setBackends("other", 8080, "pod-b2")
	e.within(reconnect, "a change after the server came back", e.reach(other, 8080, "pod-b2"))
	tr.stop()
	e.agent.mustLive()
}

// testKillBoth: a node boots while the control plane is down.
func testKillBoth(t *testing.T, e *env) {
	web := clusterIPs(e.createService("web"))
	e.setBackends("web", 8080, "pod-a1", "pod-b1")
	other := clusterIPs(e.createService("other"))
	e.setBackends("other", 8080, "pod-a2")
	e.agent.start()
	e.eventually("the Service answers", e.reach(web, 8080, "pod-a1", "pod-b1"))

	tr := e.startTraffic(web)
	e.cluster.KillAPIServer()
	e.agent.kill()
	e.agent.start()
	tr.goOn() // an agent that handles "no answer" as "no Services" would lose some here
	e.agent.mustLive()
	must(t, e.cluster.StartAPIServer(t.Context()))
	e.setBackends("other", 8080, "pod-b2")
	e.within(reconnect, "a change after both came back", e.reach(other, 8080, "pod-b2"))
	tr.stop()
	e.agent.mustLive()
}
