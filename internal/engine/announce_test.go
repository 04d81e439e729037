package engine

import (
	"testing"
	"testing/synctest"

	"github.com/fairlead/fairlead/internal/model"
)

// TestWhatIsWrittenIsAnnounced: the decisions of a sync are reported before its write,
// also of one that fails, and its success is reported after it.
func TestWhatIsWrittenIsAnnounced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		drv := newMemDriver()
		announced := map[model.ServiceKey]int{} // operations written before it was announced
		b := newBench(drv, func(p *Params) {
			p.BeforeWrite = func(decided []Decided) {
				for i := range decided {
					if len(decided[i].Result.Frontends) > 0 {
						announced[decided[i].Key] = drv.count().ops
					}
				}
			}
		})
		b.put(synced, svcEvent(1, 80), sliceEvent(1, 1))
		go func() { _ = b.Run(t.Context()) }()
		synctest.Wait()
		b.put(svcEvent(2, 80), sliceEvent(2, 1))
		synctest.Wait()
		one, two := svcEvent(1, 80).Service.Key, svcEvent(2, 80).Service.Key
		if n, told := announced[one]; !told || n != 0 {
			t.Errorf("the first Service was announced (%v) after %d writes", told, n)
		}
		if n, told := announced[two]; !told || n == 0 || n >= drv.count().ops {
			t.Errorf("the second Service was announced (%v) after %d of %d writes", told, n, drv.count().ops)
		}
	})
}
