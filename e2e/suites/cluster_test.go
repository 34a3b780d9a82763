//go:build e2e

package suites

import (
	"context"
	"maps"
	"os"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// cluster is a client of the cluster in the kubeconfig.
type cluster struct {
	kubernetes.Interface
	config *rest.Config
	nodes  []node
}

// node is a schedulable node.
type node struct {
	name, zone string
	addresses  []string // its InternalIPs, one for each family
}

// connect reads $KUBECONFIG and the nodes. It fails if the cluster is too small for the suites, and names what is
// missing.
func connect(ctx context.Context) cluster {
	GinkgoHelper()
	path := os.Getenv("KUBECONFIG")
	Expect(path).NotTo(BeEmpty(), "KUBECONFIG must be set to the kubeconfig of the cluster under test")
	config, err := clientcmd.BuildConfigFromFlags("", path)
	Expect(err).NotTo(HaveOccurred(), "read kubeconfig %s", path)
	// The suites must wait for the cluster only, and never for the client's own rate limits.
	config.QPS, config.Burst = 200, 400
	// Many specs trigger warnings on purpose. Warnings are shown only if a spec fails.
	config.WarningHandler = rest.NewWarningWriter(GinkgoWriter, rest.WarningWriterOptions{})
	client, err := kubernetes.NewForConfig(config)
	Expect(err).NotTo(HaveOccurred())
	connected := cluster{Interface: client, config: config}
	connected.nodes = connected.readNodes(ctx)
	Expect(len(connected.zones())).To(BeNumerically(">=", 3), "zones (%s) with a ready, schedulable node; nodes: %+v",
		corev1.LabelTopologyZone, connected.nodes)
	return connected
}

// readNodes returns the nodes that are ready and schedulable, sorted by name.
func (c cluster) readNodes(ctx context.Context) []node {
	GinkgoHelper()
	list, err := c.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	Expect(err).NotTo(HaveOccurred())
	var nodes []node
	for _, object := range list.Items {
		if !isSchedulable(&object) {
			continue
		}
		found := node{name: object.Name, zone: object.Labels[corev1.LabelTopologyZone]}
		for _, address := range object.Status.Addresses {
			if address.Type == corev1.NodeInternalIP {
				found.addresses = append(found.addresses, address.Address)
			}
		}
		nodes = append(nodes, found)
	}
	slices.SortFunc(nodes, func(a, b node) int { return strings.Compare(a.name, b.name) })
	return nodes
}

func isSchedulable(object *corev1.Node) bool {
	if object.Spec.Unschedulable || slices.ContainsFunc(object.Spec.Taints, func(taint corev1.Taint) bool {
		return taint.Effect == corev1.TaintEffectNoSchedule || taint.Effect == corev1.TaintEffectNoExecute
	}) {
		return false
	}
	return slices.ContainsFunc(object.Status.Conditions, func(condition corev1.NodeCondition) bool {
		return condition.Type == corev1.NodeReady && condition.Status == corev1.ConditionTrue
	})
}

// zones returns the names of the zones that have nodes, sorted.
func (c cluster) zones() []string {
	names := map[string]bool{}
	for _, node := range c.nodes {
		if node.zone != "" {
			names[node.zone] = true
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// inZone returns the nodes of a zone.
func (c cluster) inZone(zone string) []node {
	var found []node
	for _, node := range c.nodes {
		if node.zone == zone {
			found = append(found, node)
		}
	}
	return found
}

// oneOfEachZone returns the first node of every zone, in the order of zones.
func (c cluster) oneOfEachZone() []node {
	var first []node
	for _, zone := range c.zones() {
		first = append(first, c.inZone(zone)[0])
	}
	return first
}

// twoOfEachZone returns two nodes of every zone. It fails the spec if the cluster does not have them: such specs must
// be filtered out.
func (c cluster) twoOfEachZone() []node {
	GinkgoHelper()
	var nodes []node
	for _, zone := range c.zones() {
		inThisZone := c.inZone(zone)
		Expect(len(inThisZone)).To(BeNumerically(">=", 2),
			"nodes of %s; this spec needs two in each zone: skip it with LABEL_FILTER='!%s' if there are fewer", zone, sixNodes)
		nodes = append(nodes, inThisZone[:2]...)
	}
	return nodes
}

// sixNodes labels the specs that need two nodes in each of three zones.
const sixNodes = "six-nodes"
