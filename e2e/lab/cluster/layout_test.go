package cluster

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestNodesAreSpreadOverZonesAndRacks(t *testing.T) {
	var got []string
	for number := 1; number <= 6; number++ {
		l := labels(number)
		got = append(got, strings.Join([]string{
			nodeName(number), l["topology.kubernetes.io/region"], l["topology.kubernetes.io/zone"], l["example.com/rack"],
		}, " "))
	}
	want := []string{
		"node-1 region-1 zone-a rack-1", "node-2 region-1 zone-b rack-1",
		"node-3 region-1 zone-c rack-2", "node-4 region-1 zone-a rack-2",
		"node-5 region-1 zone-b rack-3", "node-6 region-1 zone-c rack-3",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the labels differ (-want +got):\n%s", diff)
	}
}

func TestALabRemovesOnlyWhatIsInsideItsFolder(t *testing.T) {
	folder := Folder("/somewhere/lab")
	contents := folder.Contents()
	for _, path := range contents {
		if !strings.HasPrefix(path, "/somewhere/lab/") {
			t.Errorf("%s is outside the folder but would be removed", path)
		}
	}
	if len(contents) == 0 {
		t.Error("no paths would be removed")
	}
}
