package explain_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vicinity-proxy/vicinity/pkg/proxy/analysis/explain"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/golden"
)

// TestManySkippedEndpointsAreCountedByReason: each sentence appears once, a few endpoints are listed individually, and
// all endpoints are listed or counted.
func TestManySkippedEndpointsAreCountedByReason(t *testing.T) {
	excluded := func(endpoint int, reason, message string) explain.Excluded {
		return explain.Excluded{Endpoint: fmt.Sprintf("10.244.0.%d:80", endpoint), Reason: reason, Message: message}
	}
	ports := []explain.PortReport{emptyPort(), emptyPort(), emptyPort()}
	for i := range 3 {
		ports[0].Excluded = append(ports[0].Excluded, excluded(i, "NotReady", "It is not ready."))
	}
	ports[1].Excluded = append(ports[1].Excluded, excluded(1, "Elsewhere", `Its zone is "b".`), excluded(2, "NotReady", "It is not ready."))
	for i := range 9 {
		ports[1].Excluded = append(ports[1].Excluded, excluded(10+i, "Elsewhere", fmt.Sprintf("Its zone is %q.", "bc"[i%2:i%2+1])))
	}
	for i := range 60 {
		ports[2].Excluded = append(ports[2].Excluded, excluded(i, "Elsewhere", fmt.Sprintf("Its zone is \"site-%d\".", i/2)))
	}
	explain.Condense(ports, false)
	var got strings.Builder
	if err := write("text")(&got, ports); err != nil {
		t.Fatal(err)
	}
	golden.File(t, filepath.Join("testdata", "condensed.txt"), got.String())
}
