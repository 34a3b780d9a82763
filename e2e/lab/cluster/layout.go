package cluster

import (
	"fmt"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
)

// rackLabel is a label without a meaning in Kubernetes, as administrators use for real racks.
const rackLabel = "example.com/rack"

// labels returns the labels of the node with the given number, from 1: three zones round-robin, two nodes in each rack,
// one region. Six nodes have every combination that topology keys can distinguish: two nodes of a zone are in different
// racks, and nodes of a rack in different zones.
func labels(number int) map[string]string {
	return map[string]string{
		corev1.LabelTopologyRegion: "region-1",
		corev1.LabelTopologyZone:   "zone-" + string(rune('a'+(number-1)%3)),
		rackLabel:                  fmt.Sprintf("rack-%d", (number-1)/2+1),
	}
}

func nodeName(number int) string { return fmt.Sprintf("node-%d", number) }

// Folder is the folder of a lab on the machine.
type Folder string

// Kubeconfig returns the kubeconfig file with which the machine's user reaches the cluster.
func (f Folder) Kubeconfig() string { return filepath.Join(string(f), "kubeconfig") }

// Logs returns the folder of all logs: those of the control plane, and a folder for each node with the logs of its
// programs and pods.
func (f Folder) Logs() string { return filepath.Join(string(f), "logs") }

// Run returns the folder of everything that exists only while the lab runs.
func (f Folder) Run() string { return filepath.Join(string(f), "run") }

// OwnPrograms returns the folder of this repository's programs that run in the cluster.
func (f Folder) OwnPrograms() string { return filepath.Join(string(f), "own") }

// Groups returns the file that lists the cgroups to remove.
func (f Folder) Groups() string { return filepath.Join(string(f), "cgroups") }

// Install returns the folder of the kustomizations that Vicinity is installed from.
func (f Folder) Install() string { return filepath.Join(string(f), "install") }

// Off returns the file whose existence turns a node off. It is the desired state, which the lab's user sets; PID is the
// actual state.
func (f Folder) Off(node string) string { return filepath.Join(f.off(), node) }

func (f Folder) off() string { return filepath.Join(string(f), "off") }

// PID returns the file with the process id of a node's first process, in the machine's PID namespace. It exists while
// the node runs. If the node was turned on again, it exists once the node is ready.
func (f Folder) PID(node string) string { return filepath.Join(f.pids(), node) }

func (f Folder) pids() string { return filepath.Join(string(f), "pids") }

// Contents returns all paths that a lab creates in its folder, except for the lock.
func (f Folder) Contents() []string {
	return []string{f.Kubeconfig(), f.Logs(), f.Run(), f.OwnPrograms(), f.Groups(), f.Install(), f.off(), f.pids()}
}
