package nftsave

import "context"

// A dump is whole only if no commit was at work since before it began (netlink.Conn.Settle). If it comes in more than one
// datagram, a chain of 150 rules was seen to have 96. Nor need the second datagram have any
// rules: a chain of 150 was seen to have 97, all in one. So a dump counts only if what is listed
// is of the generation that it was before settle waited for the commit that might have been
// at work then.

// settle waits until all of the present generation is in place.
func (d *dumper) settle(ctx context.Context) (err error) {
	if d.settled, err = d.generation(ctx); err != nil {
		return err
	}
	return d.conn.Settle()
}
