//go:build linux

package localhost

import (
	"fmt"
	"testing"

	"github.com/vicinity-proxy/vicinity/pkg/model"
)

// TestLimitsOfServicesThatUseAll: no Service gets more slots than are left, and together they never exceed the total.
func TestLimitsOfServicesThatUseAll(t *testing.T) {
	for services, each := range map[int]int{1: 2048, 2: 1365, 3: 1024, 63: 64, 4095: 1} {
		t.Run(fmt.Sprint(services), func(t *testing.T) {
			limiter := newConnLimiter(MaxConnections)
			held := map[model.ObjectName]int{}
			for progress := true; progress; { // in turn, until no Service gets another slot
				progress = false
				for i := range services {
					name := model.ObjectName{Namespace: "shop", Name: fmt.Sprint(i)}
					if limiter.acquire(name) {
						held[name]++
						progress = true
					}
				}
			}
			sum := 0
			for name, slots := range held {
				if sum += slots; slots < each || slots > each+1 {
					t.Errorf("%s has %d slots, want %d or one more", name, slots, each)
				}
			}
			if len(held) != services || sum > MaxConnections || !limiter.acquire(model.ObjectName{Namespace: "shop", Name: "late"}) {
				t.Errorf("%d Services have %d slots, and none is free for another", len(held), sum)
			}
			for name, slots := range held {
				for range slots {
					limiter.release(name)
				}
			}
			limiter.release(model.ObjectName{Namespace: "shop", Name: "late"})
			if limiter.free != MaxConnections || len(limiter.inUse) != 0 {
				t.Errorf("%d slots are free, %v are in use", limiter.free, limiter.inUse)
			}
		})
	}
}

func TestLimitFor(t *testing.T) {
	for descriptors, want := range map[uint64]int{
		0: 1, 1024: 85, 20000: 1666, 12*MaxConnections - 1: MaxConnections - 1, 12 * MaxConnections: MaxConnections, 1 << 30: MaxConnections,
		^uint64(0): MaxConnections, // unlimited
	} {
		if got := limitFor(descriptors); got != want {
			t.Errorf("%d descriptors: %d connections, want %d", descriptors, got, want)
		}
	}
}
