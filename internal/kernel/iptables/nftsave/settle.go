package nftsave

import "context"

// A dump is complete only if no commit was in progress since before it began (netlink.Conn.Settle). In a dump of more than one
// datagram, a chain of 150 rules was seen with only 96. A dump whose rules are all in one
// datagram can be incomplete too: a chain of 150 was seen with 97. So a dump counts only if the listed objects
// are of the generation that was present before settle waited for the commit that might have been
// in progress.

// settle waits until the present generation is completely applied.
func (d *dumper) settle(ctx context.Context) (err error) {
	if d.settled, err = d.generation(ctx); err != nil {
		return err
	}
	return d.conn.Settle()
}
