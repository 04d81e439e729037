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
// table). It is never changed, only made and deleted: a family whose container is
// unlike ours is rebuilt (RebuildError). A root that is deleted takes everything
// in it away.
const KindRoot Kind = 1

// Key identifies a kernel object of one driver.
type Key struct {
	Kind   Kind
	Family model.Family
	ID     string // the driver's own encoding; packed bytes are fine
}

// String is for tests; Driver.KeyString gives a readable form.
func (k Key) String() string { return fmt.Sprintf("%d/%s/%x", k.Kind, k.Family, k.ID) }

// Object is one thing that the kernel should hold. Value is never empty (a set
// member without data uses "\x01") and is compared byte by byte: a driver that
// cannot read text back puts a digest there.
//
// Objects of a pool kind (Driver.Width > 0) have a Value of packed slots, each
// Width bytes long; an all-zero slot is a hole. Which slot holds which element
// does not matter, so delta keeps elements in the slots where they are:
// removing one element costs one move and one removal, whatever the pool's size.
type Object struct {
	Key   Key
	Value string
}

// Op is one difference: Have is what was last committed or loaded ("" = absent),
// Want is what it should become ("" = absent). They are never equal.
type Op struct {
	Key        Key
	Have, Want string
}

// Batch is what one Apply should do. The driver puts the operations in the order
// that its kernel needs (see Kind).
type Batch struct {
	Ops []Op
	// Rebuild names families that are made anew in this one transaction: of them
	// Ops hold everything that is wanted, all as creations (Have ""), in the order
	// of their kinds, and what is not among them goes. The engine never splits such
	// a batch. How it is done is the driver's: what packets have taught the kernel
	// (which client has which endpoint) should survive.
	Rebuild []model.Family
	// Later are the ops of the batches that follow at once, when a build does not fit
	// into one; nil: none. They are for sizes: what this batch makes must hold them.
	Later iter.Seq[Op]
}
