package proxy_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/selection"
)

// counter is a reader of decisions that only counts: by Service, the endpoints that were chosen for its ClusterIPs.
type counter map[model.ObjectName]int

func (counter) Digest(decisions []selection.Decision) any {
	endpoints := 0
	for _, decision := range decisions {
		choice, _ := decision.Selection.ClusterIP()
		endpoints += len(choice.Endpoints)
	}
	return endpoints
}

func (c counter) Accept(service model.ObjectName, digest any) {
	delete(c, service)
	if endpoints, _ := digest.(int); endpoints > 0 {
		c[service] = endpoints
	}
}

func (counter) Synced(selection.Sync) {}

// TestTheRulesAndAReaderAgree: what is in the tables and what is counted are two readings of the same decisions.
func TestTheRulesAndAReaderAgree(t *testing.T) {
	kernel, counted := &memoryKernel{}, counter{}
	p := starting(kernel, counted)
	everything := motley(50)
	p.Apply(everything)
	mustSync(t, p)
	slots := map[model.ObjectName]int{}
	for _, family := range model.Families {
		byAddr := map[string]model.ObjectName{}
		for name, service := range everything.Services {
			if ip, ok := service.ClusterIP(family); ok {
				byAddr[ip.String()] = name
			}
		}
		for _, element := range balancingIn(t, kernel, family)[0].slots {
			if name, isClusterIP := byAddr[element.Key.Addr.String()]; isClusterIP && element.Value.Addr.IsValid() {
				slots[name]++
			}
		}
	}
	if diff := cmp.Diff(map[model.ObjectName]int(counted), slots); diff != "" || len(slots) != 50 {
		t.Errorf("endpoints of the ClusterIPs of %d Services (-counted +in the tables):\n%s", len(slots), diff)
	}
}

// TestARefusedServiceIsReadWhenTheKernelTakesIt.
func TestARefusedServiceIsReadWhenTheKernelTakesIt(t *testing.T) {
	everything, name := motley(3), model.ObjectName{Namespace: "default", Name: "service-1"}
	kernel, counted := &pickyKernel{refused: map[thing]bool{lastSlot(everything, name, 2): true}}, counter{}
	p := starting(kernel, counted)
	p.Apply(everything)
	mustSync(t, p)
	if _, read := counted[name]; read || len(counted) != 2 {
		t.Errorf("read: %v, want the two Services that the kernel took", counted)
	}
	clear(kernel.refused)
	p.Apply(oneOf(everything, name))
	mustSync(t, p)
	if counted[name] != 4 {
		t.Errorf("read: %v, want %s with its two endpoints of each family", counted, name)
	}
}
