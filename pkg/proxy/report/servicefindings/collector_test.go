package servicefindings

import (
	"fmt"
	"testing"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/selection"
)

// The order of the names of namespaces does not matter.
func TestANamespaceWithManyFindingsHidesNoOthers(t *testing.T) {
	byNamespace, last := map[string]int{}, model.ObjectName{}
	collector := NewCollector(func(all []ServiceFindings) {
		for _, found := range all {
			byNamespace[found.Service.Namespace]++
			if found.Service.Compare(last) <= 0 {
				t.Errorf("%s comes after %s", found.Service, last)
			}
			last = found.Service
		}
	})
	findings := []model.Finding{{}}
	for i := range 3 * MaxServices {
		collector.OnApplied(model.ObjectName{Namespace: "a-large", Name: fmt.Sprintf("web-%03d", i)}, findings)
	}
	for i := range 10 {
		collector.OnApplied(model.ObjectName{Namespace: "shop", Name: fmt.Sprint("web-", i)}, findings)
	}
	collector.OnSynced(selection.SyncState{})
	if byNamespace["shop"] != 10 || byNamespace["a-large"] != MaxServices-10 {
		t.Errorf("got findings for %v, want all ten of shop, and %d in total", byNamespace, MaxServices)
	}
}
