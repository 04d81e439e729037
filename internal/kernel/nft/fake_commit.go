package nft

import (
	"context"
	"encoding/binary"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/kernel/netlink"
)

// fakeTx is one batch being executed: it modifies the live state and records how to undo that.
type fakeTx struct {
	*Fake
	undo    []func()
	changed bool
	touched []TableRef
}

// Commit implements Kernel.
func (f *Fake) Commit(ctx context.Context, b *Batch) (Generation, error) {
	return f.commit(ctx, b, true)
}

func (f *Fake) commit(ctx context.Context, b *Batch, own bool) (Generation, error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	b.closeList()
	f.mu.Lock()
	defer f.mu.Unlock()
	if b.Expect != 0 && b.Expect != f.gen {
		return 0, ErrGeneration
	}
	tx := &fakeTx{Fake: f}
	a := answer{batch: b}
	for i := range b.msgs {
		// Continue after a failure, as the kernel does, to report all failures.
		m, before := b.messageAt(i), len(tx.undo)
		if errno, offset := tx.execute(m, b.msgs[i].kind); errno != 0 {
			if f.Vague {
				offset = 0
			}
			a.errs = append(a.errs, OpError{Errno: errno, Kind: b.msgs[i].kind, Tags: b.tags(i, offset)})
		} else if t := (TableRef{m.family(), string(tableName(m))}); len(tx.undo) > before && !slices.Contains(tx.touched, t) {
			tx.touched = append(tx.touched, t)
		}
	}
	if len(a.errs) > 0 {
		for _, u := range slices.Backward(tx.undo) {
			u()
		}
		return 0, a.batchError()
	}
	if tx.changed {
		f.gen = f.gen.Next()
		f.tellOthers(own, tx.touched)
	}
	return f.gen, nil
}

// tellOthers notifies the watchers of a foreign commit; it skips the program's own commits, as Conn's filter does.
func (f *Fake) tellOthers(own bool, touched []TableRef) {
	if own {
		return
	}
	for w := range f.watchers {
		w.tell(Move{Generation: f.gen, Tables: touched})
	}
}

// messageAt returns message i as the kernel would receive it.
func (b *Batch) messageAt(i int) nlmsg {
	m := b.buf[b.msgs[i].off:]
	return nlmsg{netlink.Message{
		Type: binary.NativeEndian.Uint16(m[4:]), Flags: binary.NativeEndian.Uint16(m[6:]),
		Body: m[nlmsgHdrLen:binary.NativeEndian.Uint32(m)],
	}}
}

// done records a change and how to undo it.
func (tx *fakeTx) done(undo func()) {
	tx.changed = true
	tx.undo = append(tx.undo, undo)
}

// execute runs one message; offset is that of the rejected element, 0 if no particular one was.
func (tx *fakeTx) execute(m nlmsg, kind OpKind) (errno unix.Errno, offset int) {
	f, attrs := m.family(), m.attrs()
	switch kind {
	case OpNewTable:
		return tx.newTable(decodeTable(f, attrs)), 0
	case OpDelTable:
		return tx.delTable(decodeTable(f, attrs).Ref), 0
	case OpNewSet:
		return tx.newSet(decodeSet(f, attrs)), 0
	case OpDelSet:
		return tx.delSet(decodeSet(f, attrs).Ref), 0
	case OpNewChain:
		return tx.newChain(decodeChain(f, attrs)), 0
	case OpDelChain:
		return tx.delChain(decodeChain(f, attrs).Ref), 0
	case OpFlushChain:
		return tx.flushChain(decodeRule(f, attrs).Chain), 0
	case OpNewRule:
		return tx.newRule(decodeRule(f, attrs), m.Flags&unix.NLM_F_APPEND == 0), 0
	case OpDelRule:
		return tx.delRule(decodeRule(f, attrs)), 0
	case OpNewFlowtable:
		return tx.newFlowtable(decodeFlowtable(f, attrs)), 0
	case OpDelFlowtable:
		return tx.delFlowtable(decodeFlowtable(f, attrs)), 0
	case OpFlushSet, OpAddElement, OpDelElement:
		return tx.elements(m, kind)
	}
	return unix.EOPNOTSUPP, 0
}
