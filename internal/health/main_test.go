package health

import (
	"os"
	"testing"

	"github.com/fairlead/fairlead/internal/kernel/netnstest"
)

// TestMain: these tests open real sockets, so that no port of this machine is touched,
// and the ports are always free.
func TestMain(m *testing.M) { os.Exit(netnstest.Main(m)) }
