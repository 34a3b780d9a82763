package endure_test

import (
	"strconv"
	"strings"
	"testing"
	"time"
)

// TestTablesAfterManyExternalModifications makes a hundred external modifications, one after the other, while
// Services change and the proxy is killed. Connections may fail during that time.
func TestTablesAfterManyExternalModifications(t *testing.T) {
	for name, acts := range map[string][]sabotage{
		"flushes": sabotages[:1], // each of them works in any state
		"changes": sabotages,
	} {
		t.Run(name, func(t *testing.T) {
			s := newSetup(t)
			s.write(web, "a", "b")
			s.write(sticky, "a", "b")
			d := s.start("--own-tables", "never")
			d.waitForSync()
			changing := &changes{setup: s, random: seeded(t), present: map[string]bool{}}
			done, kills := 0, 0
			for tries := 0; done < 100 && tries < 1000; tries++ {
				act := acts[changing.random.IntN(len(acts))]
				input := strings.ReplaceAll(act.text, handlePlaceholder, strconv.Itoa(changing.random.IntN(100)))
				if _, err := s.run("nft", input); err == nil { // its object may not exist at the moment
					done++
				}
				if changing.random.IntN(3) == 0 {
					changing.makeOne()
				}
				if changing.random.IntN(10) == 0 {
					d.kill()
					d = s.start("--own-tables", "never")
					kills++
				}
				time.Sleep(time.Duration(changing.random.IntN(50)) * time.Millisecond)
			}
			t.Logf("%d external modifications, %d changes of manifests, %d kills", done, changing.count, kills)
			if done < 100 || kills == 0 || changing.count == 0 {
				t.Errorf("too few changes to be conclusive")
			}
			s.waitForTables(s.renderedTables(), waitTimeout)
			s.checkConnections(nil)
			d.kill()
			s.compareWithFreshStart("--own-tables", "never")
		})
	}
}
