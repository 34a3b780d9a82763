package cluster

import (
	"fmt"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
)

// rackLabel is a label that Kubernetes knows nothing of, as the owners of real racks have.
const rackLabel = "example.com/rack"

// labels are those of the node with the given number, from 1: three zones in turn, two nodes in each rack, one
// region. Six nodes have every combination that topology keys can distinguish: two nodes of a zone are in different
// racks, and nodes of a rack in different zones.
func labels(number int) map[string]string {
	return map[string]string{
		corev1.LabelTopologyRegion: "region-1",
		corev1.LabelTopologyZone:   "zone-" + string(rune('a'+(number-1)%3)),
		rackLabel:                  fmt.Sprintf("rack-%d", (number-1)/2+1),
	}
}

func nodeName(number int) string { return fmt.Sprintf("node-%d", number) }

// Folder is where a lab is: a folder of the machine.
type Folder string

// Kubeconfig is the file by which the machine's owner reaches the cluster.
func (f Folder) Kubeconfig() string { return filepath.Join(string(f), "kubeconfig") }

// Logs is the folder of all logs: those of the control plane, and a folder for each node with its programs' and its
// pods'.
func (f Folder) Logs() string { return filepath.Join(string(f), "logs") }

// Run is the folder of everything that exists only while the lab runs.
func (f Folder) Run() string { return filepath.Join(string(f), "run") }

// Own is the folder of this repository's programs that run in the cluster.
func (f Folder) Own() string { return filepath.Join(string(f), "own") }

// Groups is the file that names the cgroups to remove.
func (f Folder) Groups() string { return filepath.Join(string(f), "cgroups") }

// Install is the folder of the kustomizations that Vicinity is installed from.
func (f Folder) Install() string { return filepath.Join(string(f), "install") }

// Off is the file that turns a node off as long as it exists. It is the wish of the lab's user: PID says what is.
func (f Folder) Off(node string) string { return filepath.Join(f.off(), node) }

func (f Folder) off() string { return filepath.Join(string(f), "off") }

// PID is the file that names the first process of a node, as the machine sees it. It exists while the node runs, from
// the moment that it is ready if it was turned on again.
func (f Folder) PID(node string) string { return filepath.Join(f.pids(), node) }

func (f Folder) pids() string { return filepath.Join(string(f), "pids") }

// Contents is all of that, and nothing else.
func (f Folder) Contents() []string {
	return []string{f.Kubeconfig(), f.Logs(), f.Run(), f.Own(), f.Groups(), f.Install(), f.off(), f.pids()}
}
