package handover

import (
	"errors"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/fairlead/fairlead/test/patience"
)

// A socket lives on from one Shelf to the next: whoever asks while nobody listens waits,
// and is answered. What the next process does not ask for is refused again.
func TestShelf(t *testing.T) {
	var old, next Shelf
	cfg := net.ListenConfig{}
	first, err := old.Listen(t.Context(), cfg, "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	at := first.Addr().String()
	gram, err := old.ListenPacket(t.Context(), cfg, "udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	unused, err := old.Listen(t.Context(), cfg, "tcp", "127.0.0.2:0")
	if err != nil {
		t.Fatal(err)
	}
	ended, err := old.Listen(t.Context(), cfg, "tcp", "127.0.0.3:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = ended.Close()
	var items []Item
	if err := old.Estate(func(it Item) error { items = append(items, it); return nil }); err != nil {
		t.Fatal(err)
	}
	if len(items) != 3 {
		t.Fatalf("%d Items", len(items))
	}
	if err := next.Inherit(items); err != nil {
		t.Fatal(err)
	}
	closeFiles(items)
	_, _, _ = first.Close(), gram.Close(), unused.Close()

	// Nobody listens now.
	c, err := net.Dial("tcp", at)
	if err != nil {
		t.Fatalf("a client between the two: %v", err)
	}
	defer c.Close() //nolint:errcheck // of the test
	asker, err := net.Dial("udp", gram.LocalAddr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer asker.Close() //nolint:errcheck // of the test
	if _, err := asker.Write([]byte("?")); err != nil {
		t.Fatal(err)
	}

	again, err := next.Listen(t.Context(), cfg, "tcp", "127.0.0.1:0")
	if err != nil || again.Addr().String() != at {
		t.Fatalf("%v, %v", again, err)
	}
	defer again.Close() //nolint:errcheck // of the test
	_ = again.(*net.TCPListener).SetDeadline(time.Now().Add(patience.Of(30 * time.Second)))
	if s, err := again.Accept(); err != nil || s.RemoteAddr().String() != c.LocalAddr().String() {
		t.Errorf("the client who has waited: %v, %v", s, err)
	}
	packets, err := next.ListenPacket(t.Context(), cfg, "udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer packets.Close() //nolint:errcheck // of the test
	_ = packets.SetReadDeadline(time.Now().Add(patience.Of(30 * time.Second)))
	if _, from, err := packets.ReadFrom(make([]byte, 1)); err != nil || from.String() != asker.LocalAddr().String() {
		t.Errorf("the question that has waited is from %v, %v", from, err)
	}
	next.Drop()
	if _, err := net.Dial("tcp", unused.Addr().String()); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("what nobody asks for any more: %v", err)
	}
	// And from there to the one after.
	items = nil
	if err := next.Estate(func(it Item) error { items = append(items, it); return nil }); err != nil || len(items) != 2 {
		t.Errorf("%d Items, %v", len(items), err)
	}
	closeFiles(items)
}
