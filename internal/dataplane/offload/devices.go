package offload

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"

	"github.com/fairlead/fairlead/internal/dataplane"
	"github.com/fairlead/fairlead/internal/kernel/nft"
	"github.com/fairlead/fairlead/internal/model"
)

// deviceValue returns the value of a device: its index, which distinguishes it from a later device of the same name, and its MTU. An
// offloaded connection keeps the MTU that the device had when it was offloaded; if the MTU has decreased since, the kernel sends
// larger packets without fragmentation (seen on Linux 6.1).
func deviceValue(l *model.Link) string { return strconv.Itoa(l.Index) + " mtu " + strconv.Itoa(l.MTU) }

// isResized reports whether an operation only changes the MTU of a device.
func isResized(op dataplane.Op) bool {
	before, _, _ := strings.Cut(op.Have, " ")
	after, _, _ := strings.Cut(op.Want, " ")
	return op.Key.Kind == kindDevice && before == after && op.Have != op.Want
}

// applyDevices adds and removes devices of the flowtables and returns the number of operations. It does so in separate transactions:
// a device may be deleted before the agent is notified, and the kernel then rejects the whole transaction.
func (s *side) applyDevices(ctx context.Context, ops []dataplane.Op) int {
	n := 0
	for i, f := range families() {
		add, remove := slices.Clone(s.renewed[i]), []string(nil)
		for _, op := range ops {
			switch {
			case op.Key.Kind != kindDevice || op.Key.Family != f:
			case op.Want != "" && slices.Contains(add, op.Key.ID): // device of a flowtable that was rebuilt
			case op.Want != "":
				add = append(add, op.Key.ID)
			case slices.Contains(add, op.Key.ID): // not yet in the rebuilt flowtable
				add = slices.DeleteFunc(add, func(d string) bool { return d == op.Key.ID })
			case s.book.table[i]: // else the flowtable has been deleted
				remove = append(remove, op.Key.ID)
			}
		}
		if len(add)+len(remove) == 0 {
			continue
		}
		done, err := s.setDevices(ctx, i, add, remove)
		if err != nil {
			s.fail("set the devices", err)
		}
		n += done
	}
	return n
}

// setDevices adds devices and removes those of remove that are still in the flowtable.
func (s *side) setDevices(ctx context.Context, i int, add, remove []string) (int, error) {
	n, f := 0, families()[i]
	if len(remove) > 0 {
		there, err := s.devices(ctx, f)
		if err != nil {
			return 0, err
		}
		remove = slices.DeleteFunc(remove, func(d string) bool { return !slices.Contains(there, d) })
	}
	for _, d := range remove {
		var b nft.Batch
		b.DelFlowtable(flowRef(f), d)
		if err := s.commit(ctx, &b); err != nil && !refusedAsAbsent(err) {
			return n, err
		}
		n++
	}
	done, err := s.addDevices(ctx, f, add)
	n += done
	if err != nil {
		return n, err
	}
	there, err := s.devices(ctx, f)
	s.book.devices[i] = there
	s.tell(func(st *Status) { st.Devices = len(there) })
	return n, err
}

// addDevices adds the devices that the kernel accepts.
func (s *side) addDevices(ctx context.Context, f model.Family, add []string) (int, error) {
	for len(add) > 0 {
		var b nft.Batch
		for i, d := range add {
			b.Tag(i)
			b.NewFlowtable(nft.Flowtable{Ref: flowRef(f), Devices: []string{d}, Counter: true}) // without Counter it would be switched off
		}
		err := s.commit(ctx, &b)
		if err == nil {
			return len(add), nil
		}
		var refused *nft.BatchError
		if !errors.As(err, &refused) || len(refused.Tags) == 0 {
			return 0, err
		}
		var left []string
		for i, d := range add {
			if !slices.Contains(refused.Tags, i) {
				left = append(left, d)
			}
		}
		s.tell(func(st *Status) { st.Refused["device"] += uint64(len(add) - len(left)) })
		s.p.Log.Debug("the kernel rejected devices for a flowtable", "error", err)
		add = left
	}
	return 0, nil
}

func refusedAsAbsent(err error) bool {
	var refused *nft.BatchError
	return errors.As(err, &refused) && absent(refused.Errno)
}

// devices returns the actual devices of the flowtable.
func (s *side) devices(ctx context.Context, f model.Family) ([]string, error) {
	list, err := s.p.Flowtables(ctx, tableRef(f))
	if err != nil {
		return nil, err
	}
	for i := range list {
		if list[i].Ref.Name == flowtable {
			return list[i].Devices, nil
		}
	}
	return nil, nil
}
