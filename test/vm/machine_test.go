package vm

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestBootsAgain uses a script as the emulator, which fails to boot for some attempts. Only then the machine is started again,
// and not without limit. A program that has begun is never started twice.
func TestBootsAgain(t *testing.T) {
	for _, c := range []struct {
		name, script string
		starts       int
		want         error
	}{
		{"the second boot works", `[ "$n" = 2 ] && printf 'VM-BEGIN\nVM-EXIT 0\n'`, 2, nil},
		{"it never boots", `echo panic`, bootTries, errNoBoot},
		{"the program fails", `printf 'VM-BEGIN\nVM-EXIT 3\n'`, 1, ExitError(3)},
		{"it crashes after the beginning", `echo VM-BEGIN`, 1, ErrNoExit},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			starts := filepath.Join(dir, "starts")
			script := "#!/bin/sh\necho x >> " + starts + "\nn=$(wc -l < " + starts + ")\n" + c.script + "\n"
			for name, content := range map[string]string{
				"bin/qemu-system-x86_64": script, "init": "init", "kernels/k/lib/modules/1/x": "", "kernels/k/boot-modules/order": "",
			} {
				path := filepath.Join(dir, name)
				if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(content), 0o755)); err != nil {
					t.Fatal(err)
				}
			}
			t.Setenv("PATH", filepath.Join(dir, "bin")+":"+os.Getenv("PATH"))
			out, err := os.Create(filepath.Join(dir, "out"))
			if err != nil {
				t.Fatal(err)
			}
			defer out.Close()
			err = Run(t.Context(), Config{Kernel: "k", Cache: dir, Init: filepath.Join(dir, "init"), Output: out})
			if !errors.Is(err, c.want) {
				t.Errorf("%v, want %v", err, c.want)
			}
			if got, _ := os.ReadFile(starts); strings.Count(string(got), "x") != c.starts {
				t.Errorf("started %d times, want %d", strings.Count(string(got), "x"), c.starts)
			}
		})
	}
}
