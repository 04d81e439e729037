package dataplane

import (
	"fmt"
	"iter"

	"github.com/fairlead/fairlead/internal/model"
)

// Kind is a driver's own kind of kernel object. Its numeric value is the
// creation order: an object may refer only to objects of a lower Kind (or to
// one of its own Kind emitted earlier). Creations are applied in ascending
// order, deletions in descending order.
type Kind uint8

// KindRoot is the container of everything a driver owns in one family (the nft
// table). It is never updated, only created and deleted: a family whose container
// differs from the desired one is rebuilt (RebuildError). When the kernel deletes a
// root it deletes everything in it.
const KindRoot Kind = 1

// Key is the identity of a kernel object of one driver.
type Key struct {
	Kind   Kind
	Family model.Family
	ID     string // the driver's own encoding; packed bytes are fine
}

// String returns a form for tests; Driver.KeyString returns a readable one.
func (k Key) String() string { return fmt.Sprintf("%d/%s/%x", k.Kind, k.Family, k.ID) }

// Object is one kernel object in its desired state. Value is never empty (a set
// member without data uses "\x01") and is compared byte by byte: a driver that
// cannot read the content back from the kernel uses a digest as Value.
//
// Example in nftables mode: the element of the map services for 10.96.0.10:80/TCP has a
// Key of kind services, family IPv4 and the ID "\x0a\x60\x00\x0a\x06\x00\x50" (address,
// protocol, port), and the Value "lb-a-4", the name of the chain that it refers to.
//
// Objects of a pool kind (Driver.Width > 0) have a Value of packed slots, each
// Width bytes long; an all-zero slot is a hole. Which slot holds which element
// does not matter, so delta keeps elements in their actual slots: removing one
// element costs one move and one removal, independent of the pool's size.
type Object struct {
	Key   Key
	Value string
}

// Op is one difference between the desired and the actual state. Have is the actual
// value, as last committed or loaded ("" = absent). Want is the desired value
// ("" = absent). They are never equal.
type Op struct {
	Key        Key
	Have, Want string
}

// Batch is the input of one Apply. The driver sorts the operations into the order
// that the kernel requires (see Kind).
type Batch struct {
	Ops []Op
	// Rebuild names the families that are rebuilt in this one transaction. Ops hold
	// the whole desired state of these families, all as creations (Have ""), in the
	// order of their kinds. Every actual object that is not among them is deleted. The
	// engine never splits such a batch. The driver decides how to rebuild: state that
	// the kernel learned from packets (session affinity) should survive.
	Rebuild []model.Family
	// Later are the operations of the batches that follow immediately, when a build
	// does not fit into one; nil: none. They are for sizes: the objects that this batch
	// creates must have room for them.
	Later iter.Seq[Op]
}
