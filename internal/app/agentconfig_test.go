package app

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const configFile = `apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: nftables
conntrack: {maxPerCore: 0, min: 0}
clientConnection: {kubeconfig: KUBECONFIG}
`

// TestConfigFileChangeEndsTheAgent, so that it is started again with the new one. The
// same content written again, and other files of the folder, do not.
func TestConfigFileChangeEndsTheAgent(t *testing.T) {
	dir := t.TempDir()
	text := strings.ReplaceAll(configFile, "KUBECONFIG", unwilling(t))
	write := func(version, text string) { // as the kubelet mounts a ConfigMap: a new folder, then a swap of links
		t.Helper()
		for _, err := range []error{
			os.Mkdir(filepath.Join(dir, version), 0o755), os.WriteFile(filepath.Join(dir, version, "config.yaml"), []byte(text), 0o644),
			os.Symlink(version, filepath.Join(dir, "..data_tmp")), os.Rename(filepath.Join(dir, "..data_tmp"), filepath.Join(dir, "..data")),
		} {
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	write("..1", text)
	if err := os.Symlink("..data/config.yaml", filepath.Join(dir, "config.yaml")); err != nil {
		t.Fatal(err)
	}
	p := begin(t, "run", "--config", filepath.Join(dir, "config.yaml"), "--hostname-override", "node-a")
	p.says("forbidden")
	write("..2", text)
	if err := os.WriteFile(filepath.Join(dir, "notes.txt"), []byte("x"), 0o644); err != nil {
		t.Fatal(err)
	}
	select {
	case <-p.done:
		t.Fatal("ended although the file says the same")
	default:
	}
	write("..3", text+"iptables: {masqueradeBit: 3}\n")
	eventually(t, "ended by a change", func() error {
		select {
		case <-p.done:
			return nil
		default:
			return errors.New("still running")
		}
	})
	if code := p.code(); code != 1 || !strings.Contains(p.log(), "config.yaml changed: exiting to be restarted with the new configuration") {
		t.Errorf("ended with status %d", code)
	}
}
