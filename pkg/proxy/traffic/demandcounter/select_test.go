package demandcounter

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/vicinity-proxy/vicinity/pkg/demandapi"
	"github.com/vicinity-proxy/vicinity/pkg/model"
)

// frontends returns count distinct frontends.
func frontends(number, count int) []model.Frontend {
	addr := netip.AddrFrom4([4]byte{10, 96, byte(number >> 8), byte(number)})
	list := make([]model.Frontend, count)
	for port := range list {
		list[port] = model.Frontend{Addr: addr, Protocol: model.TCP, Port: uint16(port)}
	}
	return list
}

func TestNamespacesAreSelectedRoundRobin(t *testing.T) {
	services := map[model.ObjectName][]model.Frontend{}
	for number := range 3 * demandapi.MaxServices {
		services[model.ObjectName{Namespace: "large", Name: fmt.Sprintf("web-%05d", number)}] = frontends(number, 1)
	}
	for number := range 10 {
		name := model.ObjectName{Namespace: "small", Name: fmt.Sprintf("web-%05d", number)}
		services[name] = frontends(3*demandapi.MaxServices+number, 1)
	}
	chosen, skipped := selectFrontends(services)
	if len(chosen) != demandapi.MaxServices || skipped != 2*demandapi.MaxServices+10 {
		t.Errorf("%d frontends are counted, %d Services skipped", len(chosen), skipped)
	}
	byNamespace := map[string]int{}
	for _, owner := range chosen {
		byNamespace[owner.Namespace]++
	}
	if byNamespace["small"] != 10 {
		t.Errorf("counted by Namespace: %v, want all ten of the small one", byNamespace)
	}
}

func TestAServiceWithTooManyFrontendsLeavesRoomForOthers(t *testing.T) {
	services := map[model.ObjectName][]model.Frontend{
		{Namespace: "a", Name: "huge"}:  frontends(1, maxFrontends+1),
		{Namespace: "b", Name: "large"}: frontends(2, maxFrontends-2),
		{Namespace: "c", Name: "small"}: frontends(3, 1),
		{Namespace: "d", Name: "late"}:  frontends(4, 1),
	}
	chosen, skipped := selectFrontends(services)
	if len(chosen) != maxFrontends || skipped != 1 {
		t.Errorf("%d frontends are counted, %d Services skipped; want %d and 1", len(chosen), skipped, maxFrontends)
	}
	for number, want := range map[int]string{2: "large", 3: "small", 4: "late"} {
		if owner := chosen[frontends(number, 1)[0]]; owner.Name != want {
			t.Errorf("the frontend of %s is counted for %q", want, owner)
		}
	}
}

// A Service with 8,000 ports is in the namespace that comes first by name, next to other Services there and in 30 other
// namespaces.
func TestOneServiceWithManyPortsSkipsNoService(t *testing.T) {
	services := map[model.ObjectName][]model.Frontend{{Namespace: "a", Name: "a"}: frontends(0, 8000)}
	number := 0
	for namespace := range 31 {
		for service := range 4 {
			number++
			name := model.ObjectName{Namespace: "a", Name: fmt.Sprint("web-", service)}
			if namespace > 0 {
				name.Namespace = fmt.Sprint("team-", namespace)
			}
			services[name] = frontends(number, 25)
		}
	}
	chosen, skipped := selectFrontends(services)
	if len(chosen) != 31*4*25 || skipped != 1 {
		t.Errorf("%d frontends are counted, %d Services skipped; want %d and 1", len(chosen), skipped, 31*4*25)
	}
}

// Each request for the page selects frontends again.
func BenchmarkSelectFrontends(b *testing.B) {
	services := map[model.ObjectName][]model.Frontend{}
	for number := range 20_000 {
		services[model.ObjectName{Namespace: fmt.Sprint(number % 500), Name: fmt.Sprint(number)}] = frontends(number, 1+number%7)
	}
	for b.Loop() {
		selectFrontends(services)
	}
}
