package cluster

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
)

func testServiceLifecycle(t *testing.T, e *env) {
	svc := e.createService("web")
	web := clusterIPs(svc)
	e.agent.start()
	e.eventually("a Service without endpoints refuses", e.refused(web))

	e.setBackends("web", 8080, "pod-a1", "pod-b1")
	e.eventually("the first endpoints answer", e.reach(web, 8080, "pod-a1", "pod-b1"))
	e.setBackends("web", 8080, "pod-b1", "pod-b2", "pod-a3")
	e.eventually("endpoints are added and removed", e.reach(web, 8080, "pod-b1", "pod-b2", "pod-a3"))
	e.setBackends("web", 8081, "pod-b1", "pod-b2")
	e.eventually("the endpoint port moves", e.reach(web, 8081, "pod-b1", "pod-b2"))

	moved := clusterIPs(e.updateService("web", func(s *corev1.ServiceSpec) { s.Ports[0].Port, s.Ports[1].Port = 81, 82 }))
	e.eventually("the Service port moves", e.reach(moved, 8081, "pod-b1", "pod-b2"))
	e.eventually("the old port is gone", e.silent(web))

	e.setBackends("web", 8081)
	e.eventually("without endpoints it refuses again", e.refused(moved))
	e.setBackends("web", 8080, "pod-a2")
	e.eventually("it comes back", e.reach(moved, 8080, "pod-a2"))

	e.deleteService("web")
	e.eventually("a deleted Service is silent", e.silent(moved))
	again := clusterIPs(e.createService("web"))
	e.eventually("the same name again, with the slices that are still there", e.reach(again, 8080, "pod-a2"))
	e.agent.mustLive()
}

func testNodePort(t *testing.T, e *env) {
	e.agent.start()
	svc := e.createService("web", func(s *corev1.ServiceSpec) { s.Type = corev1.ServiceTypeNodePort })
	e.setBackends("web", 8080, "pod-a1", "pod-b1")
	ports := e.nodePorts(svc)
	e.eventually("the node port answers", e.reach(append(ports, clusterIPs(svc)...), 8080, "pod-a1", "pod-b1"))

	svc = e.updateService("web", func(s *corev1.ServiceSpec) {
		s.Type = corev1.ServiceTypeClusterIP
		s.Ports[0].NodePort, s.Ports[1].NodePort = 0, 0
	})
	e.eventually("the node port is closed", e.refused(ports))
	e.eventually("the cluster address still answers", e.reach(clusterIPs(svc), 8080, "pod-a1", "pod-b1"))
	e.agent.mustLive()
}
