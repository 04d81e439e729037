package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// binary is the program for one kind of processor.
type binary struct {
	arch string
	name string // of the file in the result
	data []byte
}

// compile builds the program with nothing in it of the machine it was built on.
func (r request) compile(arch string) (binary, error) {
	out, err := filepath.Abs(r.out)
	if err != nil {
		return binary{}, err
	}
	b := binary{arch: arch, name: "fairlead-linux-" + arch}
	// The commit is told by -version: what git says of a working tree may differ for the same sources.
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
