package nft

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// Watch implements Kernel. The socket filter lets only NEWGEN through: a plain subscriber got 600 000 messages and ENOBUFS
// from five builds of 120 000 elements, this one gets one datagram per commit.
func (c *Conn) Watch(ctx context.Context, moved func(Generation)) error {
	if !c.watching.TryLock() {
		return errors.New("watch rule set generation: already watching")
	}
	defer c.watching.Unlock()
	s := c.events
	if err := s.nl.SetReadDeadline(time.Time{}); err != nil {
		return fmt.Errorf("watch rule set generation: %w", err)
	}
	if err := s.keepOnlyNewGen(); err != nil {
		return fmt.Errorf("filter rule set notifications: %w", err)
	}
	if err := s.nl.JoinGroup(nfnlGroupNft); err != nil {
		return fmt.Errorf("join rule set notifications: %w", err)
	}
	stop := context.AfterFunc(ctx, func() { _ = s.nl.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	// The answer is a NEWGEN like any other: it closes the gap between the caller's last look and the subscription.
	err := s.askGeneration()
	if err == nil {
		err = s.follow(ctx, moved)
	}
	// While anyone is a member the kernel builds a message per element, so leave even if the socket is about to go.
	return errors.Join(err, ignoreClosed(s.nl.LeaveGroup(nfnlGroupNft)))
}

func (s *sock) askGeneration() error {
	b := append(appendMsgHdr(nil, nfnlSubsysNft<<8|unix.NFT_MSG_GETGEN, unix.NLM_F_REQUEST), 0, 0, 0, 0)
	endMsg(b, 0)
	if err := s.send([][]byte{b}); err != nil {
		return fmt.Errorf("ask for the rule set generation: %w", err)
	}
	return nil
}

func ignoreClosed(err error) error {
	if errors.Is(err, unix.EBADF) {
		return nil
	}
	return err
}

func (s *sock) follow(ctx context.Context, moved func(Generation)) error {
	for {
		var n int
		var rerr error
		err := s.raw.Read(func(fd uintptr) bool {
			n, _, rerr = unix.Recvfrom(int(fd), s.buf, unix.MSG_DONTWAIT)
			return !errors.Is(rerr, unix.EAGAIN) && !errors.Is(rerr, unix.EINTR)
		})
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil:
			return fmt.Errorf("wait for rule set notifications: %w", err)
		case errors.Is(rerr, unix.ENOBUFS):
			moved(0)
		case rerr != nil:
			return fmt.Errorf("read rule set notifications: %w", rerr)
		default:
			eachMsg(s.buf[:n], func(m nlmsg) bool {
				if m.isNft(unix.NFT_MSG_NEWGEN) {
					moved(genOf(m))
				}
				return true
			})
		}
	}
}

// keepOnlyNewGen attaches: A = nlmsg_type; accept if NEWGEN. The filter loads big endian what lies there in host order.
func (s *sock) keepOnlyNewGen() error {
	typ := binary.NativeEndian.AppendUint16(nil, nfnlSubsysNft<<8|unix.NFT_MSG_NEWGEN)
	prog := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_H | unix.BPF_ABS, K: 4},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jt: 0, Jf: 1, K: uint32(binary.BigEndian.Uint16(typ))},
		{Code: unix.BPF_RET | unix.BPF_K, K: 0xffffffff},
		{Code: unix.BPF_RET | unix.BPF_K, K: 0},
	}
	return s.control(func(fd int) error {
		return unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER,
			&unix.SockFprog{Len: uint16(len(prog)), Filter: &prog[0]})
	})
}
