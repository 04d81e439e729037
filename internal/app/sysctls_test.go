package app

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"syscall"
	"testing"

	"github.com/fairlead/fairlead/internal/kernel/sysctl"
)

// What a container may not set is one line, and no warning; a real fault is one.
func TestSysctlsThatAreReadOnly(t *testing.T) {
	var out bytes.Buffer
	change := func(name string, err error) sysctl.Change {
		return sysctl.Change{Name: name, To: "1", Err: err}
	}
	logSysctls(slog.New(slog.NewTextHandler(&out, nil)), []sysctl.Change{
		change("a", fmt.Errorf("write: %w", syscall.EROFS)), change("b", syscall.EACCES), change("c", syscall.EPERM), change("d", errors.New("odd")),
	})
	got := out.String()
	if strings.Count(got, "\n") != 2 || strings.Count(got, "level=WARN") != 1 || !strings.Contains(got, "name=d") ||
		!strings.Contains(got, `level=INFO msg="sysctls are read-only in this container or user namespace; keeping the host's values" wanted="a=1 b=1 c=1"`) {
		t.Errorf("said:\n%s", got)
	}
}
