package testcluster

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/fairlead/fairlead/test/netlab"
)

// program is a running etcd or kube-apiserver with its log.
type program struct {
	*netlab.Process
	log string
}

func (c *Cluster) run(name string, args ...string) (*program, error) {
	line := append(append([]string{}, c.cfg.Wrap...), filepath.Join(c.cfg.Bin, name))
	line = append(line, args...)
	p := &program{log: filepath.Join(c.cfg.Dir, name+".log")}
	log, err := os.OpenFile(p.log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open log of %s: %w", name, err)
	}
	defer log.Close() // the child has its own descriptor
	cmd := exec.Command(line[0], line[1:]...)
	cmd.Stdout, cmd.Stderr = log, log
	p.Process, err = c.cfg.Host.Start(cmd)
	if err != nil {
		return nil, err
	}
	return p, nil
}

func (p *program) ended() bool {
	select {
	case <-p.Done():
		return true
	default:
		return false
	}
}

func (p *program) logTail(lines int) string {
	b, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	all := strings.Split(strings.TrimRight(string(b), "\n"), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}
