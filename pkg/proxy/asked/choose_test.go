package asked

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/vicinity-proxy/vicinity/pkg/demandpage"
	"github.com/vicinity-proxy/vicinity/pkg/model"
)

// frontends returns a number of distinct frontends.
func frontends(number, count int) []model.Frontend {
	addr := netip.AddrFrom4([4]byte{10, 96, byte(number >> 8), byte(number)})
	list := make([]model.Frontend, count)
	for port := range list {
		list[port] = model.Frontend{Addr: addr, Protocol: model.TCP, Port: uint16(port)}
	}
	return list
}

func TestNamespacesTakeTurnsWhereNotAllAreCounted(t *testing.T) {
	services := map[model.ObjectName][]model.Frontend{}
	for number := range 3 * demandpage.MaxServices {
		services[model.ObjectName{Namespace: "large", Name: fmt.Sprintf("web-%05d", number)}] = frontends(number, 1)
	}
	for number := range 10 {
		name := model.ObjectName{Namespace: "small", Name: fmt.Sprintf("web-%05d", number)}
		services[name] = frontends(3*demandpage.MaxServices+number, 1)
	}
	chosen, leftOut := choose(services)
	if len(chosen) != demandpage.MaxServices || leftOut != 2*demandpage.MaxServices+10 {
		t.Errorf("%d frontends are counted, %d Services left out", len(chosen), leftOut)
	}
	byNamespace := map[string]int{}
	for _, owner := range chosen {
		byNamespace[owner.Namespace]++
	}
	if byNamespace["small"] != 10 {
		t.Errorf("counted by Namespace: %v, want all ten of the small one", byNamespace)
	}
}

func TestAServiceWithTooManyFrontendsLeavesOthersTheirRoom(t *testing.T) {
	services := map[model.ObjectName][]model.Frontend{
		{Namespace: "a", Name: "huge"}:  frontends(1, maxFrontends+1),
		{Namespace: "b", Name: "large"}: frontends(2, maxFrontends-1),
		{Namespace: "c", Name: "small"}: frontends(3, 1),
		{Namespace: "d", Name: "late"}:  frontends(4, 1),
	}
	chosen, leftOut := choose(services)
	if len(chosen) != maxFrontends || leftOut != 2 {
		t.Errorf("%d frontends are counted, %d Services left out; want %d and 2", len(chosen), leftOut, maxFrontends)
	}
	if owner := chosen[frontends(3, 1)[0]]; owner.Name != "small" {
		t.Errorf("the frontend of c/small is counted for %q", owner)
	}
}
