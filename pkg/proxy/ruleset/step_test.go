package ruleset_test

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/ruleset"
)

// stepLimit is the limit of a step in these tests.
const stepLimit = 40

// beyondLimit is the maximum that a step may write beyond its limit: one slot for each frontend, and the class of each,
// which contains the number of slots; and one frontend with all its slots. If session affinity is enabled or disabled
// it is a whole port, whose elements are in other sets then.
const beyondLimit, beyondLimitOfAffinity = 3*16 + 2*60, (16 + 1) * (2*60 + 3)

// randomPorts returns a Service with up to three ports, each with some of a few possible frontends and endpoints.
func randomPorts(random *rand.Rand, affinity bool) ruleset.Service {
	service := emptyService("web")
	for number := range random.IntN(4) {
		port := portOf("web", "10.96.0.1")
		port.ID.Port = fmt.Sprint("port-", number)
		for i := range random.IntN(60) {
			port.Cluster = append(port.Cluster, netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 244, 0, byte(i + random.IntN(3))}), 8080))
		}
		if affinity && random.IntN(2) == 0 {
			port.Affinity = time.Hour
		}
		class := ruleset.RefuseClass
		if len(port.Cluster) > 0 {
			class = ruleset.BalanceClass(len(port.Cluster))
		}
		port.Frontends = nil
		for i := range 1 + random.IntN(16) {
			port.Frontends = append(port.Frontends, ruleset.Frontend{Class: class, Frontend: model.Frontend{
				Addr: netip.AddrFrom4([4]byte{192, 0, byte(number), byte(i)}), Protocol: model.TCP, Port: 80,
			}})
		}
		service.Ports = append(service.Ports, port)
	}
	return service
}

// TestStepsLeadToTheDesiredState, in steps of a limited size that the tables accept, from any state.
func TestStepsLeadToTheDesiredState(t *testing.T) {
	multiStep := 0
	for seed := range uint64(100) {
		random := rand.New(rand.NewPCG(seed, 0))
		r, affinity, limit := start(t), seed%2 == 0, stepLimit+beyondLimit
		if affinity {
			limit = stepLimit + beyondLimitOfAffinity
		}
		for range 4 {
			want, steps := randomPorts(random, affinity), 0
			for last := false; !last; steps++ {
				if steps > 1000 {
					t.Fatalf("seed %d: not done after %d steps", seed, steps)
				}
				var next ruleset.Service
				next, last = ruleset.NextStep(r.mirror.Service(want.Name), want, stepLimit)
				plan := r.change(t, next)
				if added := plan.Prerequisites.Count(model.IPv4, ruleset.Add) + plan.Batch.Count(model.IPv4, ruleset.Add); added > limit {
					t.Errorf("seed %d: step %d adds %d elements", seed, steps, added)
				}
			}
			if steps > 1 {
				multiStep++
			}
			r.cleanUp(t)
		}
		want := r.mirror.Service(serviceName("web"))
		fresh := start(t, want)
		if !r.mirror.Equal(fresh.mirror) {
			t.Errorf("seed %d: the mirror differs from that of a fresh start", seed)
		}
	}
	if multiStep < 100 {
		t.Errorf("only %d of 400 changes took several steps", multiStep)
	}
}

// TestAStepDeletesEverythingThatIsRemoved, so that another Service can have it.
func TestAStepDeletesEverythingThatIsRemoved(t *testing.T) {
	for seed := range uint64(100) {
		random := rand.New(rand.NewPCG(seed, 1))
		have, want := randomPorts(random, true), randomPorts(random, true)
		wanted := map[model.Frontend]bool{}
		for frontend := range want.Frontends() {
			wanted[frontend] = true
		}
		next, _ := ruleset.NextStep(have, want, 1)
		for frontend := range next.Frontends() {
			if !wanted[frontend] {
				t.Errorf("seed %d: the first step keeps %s, which was removed", seed, frontend)
			}
		}
	}
}

// TestAStepNeverEmptiesAPortThatHasEndpoints: a class of zero slots would refuse connections.
func TestAStepNeverEmptiesAPortThatHasEndpoints(t *testing.T) {
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 2))
		next, _ := ruleset.NextStep(randomPorts(random, true), randomPorts(random, true), 1)
		for _, port := range next.Ports {
			for _, frontend := range port.Frontends {
				if frontend.Class.IsBalanced() && (frontend.Class.Slots() == 0 || frontend.Class.Slots() != len(port.Cluster)) {
					t.Errorf("seed %d: a frontend has the class of %d slots, and the port %d", seed, frontend.Class.Slots(), len(port.Cluster))
				}
			}
		}
	}
}

// TestACleanupIsBounded: a cleanup deletes up to a limit of elements, continues where it ended, and loses nothing if it
// fails.
func TestACleanupIsBounded(t *testing.T) {
	var endpoints []string
	for i := range 100 {
		endpoints = append(endpoints, fmt.Sprintf("10.244.1.%d:8080", i+1))
	}
	r := start(t, serviceOf(portOf("web", "10.96.0.1", endpoints...)))
	r.change(t, emptyService("web"))
	var counts []int
	for !r.mirror.IsClean() {
		batch := r.mirror.Cleanup(30)
		if again := r.mirror.Cleanup(30); again.Count(model.IPv4, ruleset.Delete) != batch.Count(model.IPv4, ruleset.Delete) {
			t.Fatal("a failed cleanup is retried with another number of elements")
		}
		batch = r.mirror.Cleanup(30)
		mustApply(t, &r.Tables, batch)
		r.mirror.CleanupDone()
		counts = append(counts, batch.Count(model.IPv4, ruleset.Delete))
	}
	// 100 slots and the class of the dispatch map; the chain lb-100 is deleted last.
	if want := []int{30, 30, 30, 11, 0}; !slices.Equal(counts, want) {
		t.Errorf("the cleanups delete %v elements, want %v", counts, want)
	}
	if remaining := r.Objects(model.IPv4).Chains; slices.Contains(remaining, "lb-100") {
		t.Error("chain lb-100 still exists")
	}
}
