package conntrack

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestNoRestAfterQuiet: endpoints that go one after the other, after a quiet time, lose
// their flows one after the other, though each look at the table takes its time.
func TestNoRestAfterQuiet(t *testing.T) {
	const slow = 20 * time.Millisecond
	synctest.Test(t, func(t *testing.T) {
		var ended []time.Time
		r := newRig(Params{Rest: 9, OnPass: func(Pass) { ended = append(ended, time.Now()) }})
		r.update(nil, "udp 10.96.0.1:53 10.1.0.1:5353", "udp [fd96::1]:53 [fd01::1]:5353")
		r.Sweep()
		go r.Run(t.Context())
		time.Sleep(10 * time.Second)                                       // virtual time (synctest)
		synctest.Wait()                                                    // a Sleep orders nothing: the Cleaner has read Fail and written ended before they are set here
		r.count.Fail = func(string) error { time.Sleep(slow); return nil } // virtual time (synctest)
		ended = nil
		r.update(nil, "udp 10.96.0.1:53 10.1.0.2:5353")
		time.Sleep(slow / 2) // virtual time (synctest)
		r.update(nil, "udp [fd96::1]:53 [fd01::2]:5353")
		time.Sleep(2*slow - slow/2) // virtual time (synctest)
		synctest.Wait()
		if len(ended) != 2 {
			t.Errorf("%d looks at the table within the time of two", len(ended))
		}
	})
}
