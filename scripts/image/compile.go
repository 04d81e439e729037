package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// binary is the program for one processor architecture.
type binary struct {
	arch string
	name string // of the file in the result
	data []byte
}

// compile builds the program without anything specific to the machine on which it is built.
func (r request) compile(arch string) (binary, error) {
	out, err := filepath.Abs(r.out)
	if err != nil {
		return binary{}, err
	}
	b := binary{arch: arch, name: "fairlead-linux-" + arch}
	// -version reports the commit. The version control state is left out, because git may report a
	// different state of the working tree for the same sources.
	cmd := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w -buildid= -X main.version="+r.version,
		"-o", filepath.Join(out, b.name), "./cmd/fairlead")
	cmd.Dir = r.root
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+arch, "GOAMD64=v1", "GOARM64=v8.0", "GOWORK=off")
	if said, err := cmd.CombinedOutput(); err != nil {
		return b, fmt.Errorf("build for %s: %w\n%s", arch, err, said)
	}
	b.data, err = os.ReadFile(filepath.Join(out, b.name))
	return b, err
}
