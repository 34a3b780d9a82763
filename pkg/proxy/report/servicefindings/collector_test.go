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
	reader := NewCollector(func(all []ServiceFindings) {
		for _, found := range all {
			byNamespace[found.Service.Namespace]++
			if found.Service.Compare(last) <= 0 {
				t.Errorf("%s comes after %s", found.Service, last)
			}
			last = found.Service
		}
	})
	findings := []model.Finding{{}}
	for i := range 3 * MaxFound {
		reader.OnApplied(model.ObjectName{Namespace: "a-crowd", Name: fmt.Sprintf("web-%03d", i)}, findings)
	}
	for i := range 10 {
		reader.OnApplied(model.ObjectName{Namespace: "shop", Name: fmt.Sprint("web-", i)}, findings)
	}
	reader.OnSynced(selection.SyncState{})
	if byNamespace["shop"] != 10 || byNamespace["a-crowd"] != MaxFound-10 {
		t.Errorf("got findings for %v, want all ten of shop, and %d in total", byNamespace, MaxFound)
	}
}
