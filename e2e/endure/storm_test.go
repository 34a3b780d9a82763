package endure_test

import (
	"strconv"
	"strings"
	"testing"
	"time"
)

// TestAStormOfForeignChangesEndsInTheRightTables makes a hundred external modifications, one after the other, while
// Services change and the proxy is killed. Connections may fail during that time.
func TestAStormOfForeignChangesEndsInTheRightTables(t *testing.T) {
	for name, acts := range map[string][]sabotage{
		"flushes": sabotages[:1], // each of them works in any state
		"changes": sabotages,
	} {
		t.Run(name, func(t *testing.T) {
			s := newTown(t)
			s.write(web, "a", "b")
			s.write(sticky, "a", "b")
			d := s.start("--own-tables", "never")
			d.waitForSync()
			changing := &changes{town: s, random: seeded(t), present: map[string]bool{}}
			done, kills := 0, 0
			for tries := 0; done < 100 && tries < 1000; tries++ {
				act := acts[changing.random.IntN(len(acts))]
				order := strings.ReplaceAll(act.text, itsHandle, strconv.Itoa(changing.random.IntN(100)))
				if _, err := s.run("nft", order); err == nil { // its object may not exist at the moment
					done++
				}
				if changing.random.IntN(3) == 0 {
					changing.one()
				}
				if changing.random.IntN(10) == 0 {
					d.kill()
					d = s.start("--own-tables", "never")
					kills++
				}
				time.Sleep(time.Duration(changing.random.IntN(50)) * time.Millisecond)
			}
			t.Logf("%d external modifications, %d changes of manifests, %d kills", done, changing.made, kills)
			if done < 100 || kills == 0 || changing.made == 0 {
				t.Errorf("too few changes to be conclusive")
			}
			s.waitForTables(s.rendered(), waitTimeout)
			s.goOn(nil)
			d.kill()
			s.likeAFreshStart("--own-tables", "never")
		})
	}
}
