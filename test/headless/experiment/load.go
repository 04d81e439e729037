package main

import (
	"context"
	"fmt"
	"net/netip"
	"os/exec"
	"path/filepath"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func clusterIPService(name, ip string) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "load", Name: name},
		Spec: corev1.ServiceSpec{ClusterIP: ip, ClusterIPs: []string{ip}, IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol},
			Ports: []corev1.ServicePort{{Name: "http", Port: 80, Protocol: corev1.ProtocolTCP}}},
	}
}

func (r *rig) addProbe() {
	for _, ns := range []string{"load", "jobs"} {
		r.api.Put("namespaces", &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}})
	}
	r.api.Put("services", clusterIPService("probe", "10.96.255.1"))
}

// load sends queries for the same names to all servers in turns; each server has one
// CPU, the client the other.
func (r *rig) load(ctx context.Context, names, rounds int) error {
	r.addProbe()
	for i := range names {
		r.api.Put("services", clusterIPService(fmt.Sprintf("svc-%d", i), fmt.Sprintf("10.%d.%d.%d", 97+i>>16, i>>8&255, i&255)))
	}
	var list []string
	for i, name := range []string{"fairlead", "coredns", "coredns-uncached"} {
		addr := netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), uint16(5301+i))
		if err := r.start(ctx, servers()[name], addr, "1"); err != nil {
			return err
		}
		list = append(list, fmt.Sprintf("%s=%s=%d", name, addr, r.procs[i].Pid()))
	}
	cmd := exec.Command("taskset", "-c", "0", filepath.Join(r.bin, "load"), "-servers", strings.Join(list, ","),
		"-names", fmt.Sprint(names), "-rounds", fmt.Sprint(rounds), "-length", "1s")
	var log strings.Builder
	cmd.Stdout, cmd.Stderr = r.out, &log
	p, err := r.node.Start(cmd)
	if err != nil {
		return err
	}
	select {
	case <-p.Done():
	case <-ctx.Done():
		p.Kill()
	}
	if p.Err() != nil {
		return fmt.Errorf("load: %w: %s", p.Err(), log.String())
	}
	return nil
}
