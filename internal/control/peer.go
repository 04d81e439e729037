package control

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// peerListener returns connections whose remote address is the caller's user, as the kernel
// reports it: the remote address is the one property of a connection that every wrapper keeps.
type peerListener struct {
	net.Listener
	strangers chan struct{} // one value for each connection of an untrusted user
}

func newPeerListener(l net.Listener) peerListener {
	return peerListener{Listener: l, strangers: make(chan struct{}, maxStrangers)}
}

func (l peerListener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		p := &peerConn{Conn: c, uid: -1, leave: func() {}}
		if cred, err := Peer(c); err == nil {
			p.uid = peerUID(cred.Uid)
		}
		if Trusted(int(p.uid)) {
			return p, nil
		}
		select {
		case l.strangers <- struct{}{}:
			p.leave = sync.OnceFunc(func() { <-l.strangers })
			return p, nil
		default:
			_ = c.Close()
		}
	}
}

type peerConn struct {
	net.Conn
	uid   peerUID
	leave func() // makes room for the next untrusted connection
}

func (c *peerConn) RemoteAddr() net.Addr { return c.uid }

func (c *peerConn) Close() error {
	c.leave()
	return c.Conn.Close()
}

// peerUID returns the user at the other end; -1 if the kernel does not report it.
type peerUID int

func (peerUID) Network() string  { return "unix" }
func (u peerUID) String() string { return strconv.Itoa(int(u)) }

// rootOnly accepts requests of root and of the agent's own user: the agent's state of
// Services is not for every process that shares the node's network.
func rootOnly(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if uid, err := strconv.Atoi(r.RemoteAddr); err != nil || !Trusted(uid) {
			http.Error(w, "only root and the user that runs the agent may query it", http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// Trusted reports whether a user may send and serve requests: root, and the agent's own user. In a user namespace the kernel shows every user that is
// not mapped into it as the overflow user (/proc/sys/kernel/overflowuid), so that one is not trusted there, even if the agent runs as it.
func Trusted(uid int) bool {
	return uid == 0 || uid == os.Geteuid() && !anyUser(uid, "/proc/self/uid_map", "/proc/sys/kernel/overflowuid")
}

// anyUser reports whether a user ID can stand for any user of the host: also where the map cannot be read. An overflow ID that cannot be read is
// the kernel's default, 65534.
func anyUser(uid int, uidMap, overflow string) bool {
	nobody := 65534
	if text, err := os.ReadFile(overflow); err == nil {
		if n, err := strconv.Atoi(strings.TrimSpace(string(text))); err == nil {
			nobody = n
		}
	}
	text, err := os.ReadFile(uidMap)
	all := err == nil && strings.Join(strings.Fields(string(text)), " ") == "0 0 4294967295"
	return uid == nobody && !all
}

// Peer returns the process at the other end: the one that connected, or that listens.
func Peer(c net.Conn) (*unix.Ucred, error) {
	u, ok := c.(*net.UnixConn)
	if !ok {
		return nil, fmt.Errorf("read peer credentials: a %T is not a Unix socket", c)
	}
	raw, err := u.SyscallConn()
	if err != nil {
		return nil, err
	}
	var cred *unix.Ucred
	var credErr error
	if err := raw.Control(func(fd uintptr) { cred, credErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) }); err != nil {
		return nil, err
	}
	return cred, credErr
}
