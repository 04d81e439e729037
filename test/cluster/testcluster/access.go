package testcluster

import (
	"fmt"

	"k8s.io/client-go/tools/clientcmd"
	api "k8s.io/client-go/tools/clientcmd/api"
)

// Access is how a kubeconfig reaches the cluster: by a client certificate, or by a token file if TokenFile is set.
type Access struct {
	Gate      *Gate  // nil: straight to the server
	TokenFile string // of the service account, see WriteToken
}

// WriteKubeconfig writes a kubeconfig for the agent: user system:kube-proxy, or the agent's service account.
func (c *Cluster) WriteKubeconfig(path string, a Access) error {
	user := api.NewAuthInfo()
	if a.TokenFile != "" {
		user.TokenFile = a.TokenFile
	} else {
		user.ClientCertificate, user.ClientKey = c.pki.path("agent.crt"), c.pki.path("agent.key")
	}
	server := api.NewCluster()
	server.Server, server.CertificateAuthority = c.URL(), c.pki.path("ca.crt")
	if a.Gate != nil {
		server.Server = c.urlAt(a.Gate.port)
	}
	cfg := api.NewConfig()
	cfg.Clusters["test"], cfg.AuthInfos["agent"] = server, user
	cfg.Contexts["test"] = &api.Context{Cluster: "test", AuthInfo: "agent"}
	cfg.CurrentContext = "test"
	if err := clientcmd.WriteToFile(*cfg, path); err != nil {
		return fmt.Errorf("write kubeconfig %s: %w", path, err)
	}
	return nil
}
